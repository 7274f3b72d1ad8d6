"""``python -m tests.bench.api_server``: the embedded API server beside a real one, in CPU time of their processes.

Both are started as test environments do it, with the same flags, and asked for the same by one client; the real one has
its etcd. Programs of the real one are in ``$KUBEBUILDER_ASSETS``. ``--objects 1000`` makes it shorter.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import pathlib
import ssl
import tempfile
from collections.abc import Callable
from urllib.parse import urlsplit

import yaml

from tests.controlplane import ControlPlane
from trioperator.cli.assets import write_assets

PATH = "/api/v1/namespaces/default/configmaps"
WATCHES = 100
EVENTS = 100
LISTS = 5


class Client:
    """A client with one connection."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self._place = urlsplit(config["clusters"][0]["cluster"]["server"]).netloc
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._place, context=self._context, timeout=120)

    def send(self, method: str, path: str, body: object = None) -> bytes:
        """Send a request, and return the body of the response."""
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, content, {**self._headers, "Content-Type": "application/json"})
        response = self._connection.getresponse()
        received = response.read()
        assert response.status < 300, received
        return received

    def watch(self, version: str) -> http.client.HTTPResponse:
        """Open a watch on a connection of its own."""
        connection = self._connect()
        connection.request("GET", f"{PATH}?watch=1&resourceVersion={version}", headers=self._headers)
        return connection.getresponse()


def create(client: Client, count: int, prefix: str) -> None:
    """Create ConfigMaps of 1 kB."""
    for number in range(count):
        client.send("POST", PATH, {"metadata": {"name": f"{prefix}-{number}"}, "data": {"text": "x" * 1000}})


def list_all(client: Client) -> None:
    """List all of them, several times."""
    for _ in range(LISTS):
        client.send("GET", PATH)


def watch(client: Client) -> None:
    """Create objects while a hundred watches follow, until each has got all."""
    version = json.loads(client.send("GET", f"{PATH}?limit=1"))["metadata"]["resourceVersion"]
    watches = [client.watch(version) for _ in range(WATCHES)]
    create(client, EVENTS, "watched")
    for each in watches:
        for _ in range(EVENTS):
            assert each.readline()


def used() -> float:
    """Return the seconds of CPU time that the processes of the server have used: the children of this process."""
    total = 0
    for children in pathlib.Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def measure(assets: pathlib.Path, count: int) -> dict[str, float]:
    """Return the CPU time of the server for each task."""
    found: dict[str, float] = {}

    def record(name: str, task: Callable[[], None] = lambda: None) -> None:
        before = used()
        task()
        found[name] = used() - before

    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(pathlib.Path(folder), assets)
        try:
            plane.start(with_controllers=False)
            found["start"] = used()
            client = Client(plane.kubeconfig)
            record(f"{count:,} creations", lambda: create(client, count, "a"))
            record(f"{LISTS} lists of {count:,}", lambda: list_all(client))
            record(f"{EVENTS} creations with {WATCHES} watches", lambda: watch(client))
        finally:
            plane.stop()
    return found


def main() -> None:
    """Measure both, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.bench.api_server")
    parser.add_argument("--objects", type=int, default=10_000)
    count = parser.parse_args().objects
    real = measure(pathlib.Path(os.environ["KUBEBUILDER_ASSETS"]), count)
    with tempfile.TemporaryDirectory() as folder:
        embedded = measure(write_assets(pathlib.Path(folder)), count)
    print("| CPU seconds | embedded | kube-apiserver and etcd | ratio |\n|---|---:|---:|---:|")
    for name, seconds in real.items():
        print(f"| {name} | {embedded[name]:.1f} | {seconds:.1f} | {embedded[name] / seconds:.2f} |")


if __name__ == "__main__":
    main()
