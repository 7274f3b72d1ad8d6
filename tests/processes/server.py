"""An embedded API server as a program: it prints its URL, and serves until it is killed.

With ``error=CODE`` it responds to every request with that code instead.
"""

from __future__ import annotations

import functools
import http.server
import json
import pathlib
import sys

import trio

from trioperator.apiserver import Cluster, User, serve_cluster

CRD = pathlib.Path(__file__).parents[2] / "examples" / "crd.yaml"


async def serve() -> None:
    cluster = Cluster(tokens={"operator-token": User(name="operator")})
    await cluster.apply(CRD)
    async with trio.open_nursery() as nursery:
        url = await nursery.start(serve_cluster, cluster)
        print(url, flush=True)  # noqa: T201 -- the test reads it


class ErrorHandler(http.server.BaseHTTPRequestHandler):
    """Request handler that responds with one error code."""

    def __init__(self, code: int, *args: object) -> None:
        self.code = code
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.code}
        body = json.dumps({**status, "message": "all requests are rejected", "reason": "Rejected"}).encode()
        self.send_response(self.code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def serve_errors(code: int) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(ErrorHandler, code))
    print(f"http://127.0.0.1:{server.server_port}", flush=True)  # noqa: T201
    server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve_errors(int(sys.argv[1].removeprefix("error=")))
    trio.run(serve)
