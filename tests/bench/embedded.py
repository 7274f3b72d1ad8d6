"""The embedded API server as a process of its own: ``python -m tests.bench.embedded KUBECONFIG REQUESTS``.

It writes the kubeconfig once it serves, and adds to REQUESTS one line for each request: its verb and its user agent.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import TextIO

import trio

from trioperator.apiserver import Cluster, serve_cluster

_INTERVAL = 0.2


async def _write_requests(cluster: Cluster, file: TextIO) -> None:
    """Pass the requests on in small heaps: nothing here is in the way of a request."""
    while True:
        await trio.sleep(_INTERVAL)
        for request in cluster.requests:
            file.write(f"{request.verb or 'get'} {request.user_agent}\n")
        cluster.requests.clear()
        file.flush()


async def serve(kubeconfig: pathlib.Path, requests: pathlib.Path) -> None:
    """Serve an empty cluster until the process is ended."""
    cluster = Cluster()
    with requests.open("w") as file:
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve_cluster, cluster)
            nursery.start_soon(_write_requests, cluster, file)
            partial = kubeconfig.with_suffix(".partial")
            partial.write_text(json.dumps(cluster.kubeconfig(url)))
            partial.rename(kubeconfig)


if __name__ == "__main__":
    trio.run(serve, pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
