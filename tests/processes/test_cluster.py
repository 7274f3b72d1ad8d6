"""`trioperator cluster` as a process: its ends, its clients, and what it remembers after having been killed."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.processes.conftest import EXAMPLES
from tests.program import Program

ASSETS = os.environ.get("KUBEBUILDER_ASSETS")
KUBECTL = shutil.which("kubectl", path=f"{ASSETS}{os.pathsep}{os.environ['PATH']}" if ASSETS else None)
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


class ClusterProgram:
    """Know a cluster in a process of its own."""

    def __init__(self, program: Program, kubeconfig: pathlib.Path) -> None:
        self.program = program
        self.kubeconfig = kubeconfig

    def client(self) -> httpx.Client:
        """Make a client by the kubeconfig."""
        config: dict[str, Any] = json.loads(self.kubeconfig.read_text())
        server = config["clusters"][0]["cluster"]
        authority = base64.b64decode(server["certificate-authority-data"]).decode()
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        context = ssl.create_default_context(cadata=authority)
        return httpx.Client(base_url=server["server"], verify=context, headers=headers, timeout=60)


@pytest.fixture
def start_cluster(start_process: Callable[..., Program], tmp_path: pathlib.Path) -> Callable[..., ClusterProgram]:
    """Start the command, and wait until it serves."""

    def start(*options: str | pathlib.Path) -> ClusterProgram:
        kubeconfig = tmp_path / "kubeconfig"
        program = start_process("-m", "trioperator", "cluster", "--kubeconfig", kubeconfig, *options)
        program.wait_for("Ctrl-C stops it.")
        return ClusterProgram(program, kubeconfig)

    return start


StartCluster = Callable[..., ClusterProgram]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order_while_clients_watch(start_cluster: StartCluster, number: signal.Signals) -> None:
    cluster = start_cluster("--apply", EXAMPLES / "crd.yaml")
    with (
        cluster.client() as client,
        client.stream("GET", CONFIG_MAPS, params={"watch": "1"}) as response,
    ):
        assert response.status_code == 200
        assert cluster.program.stop(number) == 0
    output = cluster.program.output
    assert f"Signal {number.name} is received" in output
    assert "Traceback" not in output


def test_what_cannot_be_had_is_told_with_its_exit_code(
    start_cluster: StartCluster, start_process: Callable[..., Program], tmp_path: pathlib.Path
) -> None:
    cluster = start_cluster("--data", tmp_path / "data")
    port = str(httpx.URL(cluster.client().base_url).port)
    for options, message in (
        (("--port", port), f"cannot listen on 127.0.0.1:{port}: Address already in use."),
        (("--data", tmp_path / "data"), "cannot be opened: another process is using it."),
        (("--port", "none"), "Invalid value for '--port'"),
    ):
        other = start_process("-m", "trioperator", "cluster", *options)
        assert other.process.wait(60) == 2
        assert message in other.output
        assert "Traceback" not in other.output


class Writers:
    """Write to the cluster from several threads, and know what was acknowledged.

    Each thread has objects of its own; ``known`` is their acknowledged content (None: deleted), ``asked`` what it has
    asked for and not heard of.
    """

    def __init__(self, cluster: ClusterProgram, chance: random.Random) -> None:
        self.known: dict[str, str | None] = {}
        self.asked: dict[str, str | None] = {}
        self.version = 0
        self._acknowledged = threading.Semaphore(0)
        self._cluster = cluster
        self._threads = [
            threading.Thread(target=self._write, args=(f"w{number}", random.Random(chance.random())))
            for number in range(4)
        ]

    def run(self, count: int, known: dict[str, str | None]) -> None:
        """Write until so many writes were acknowledged, then kill the server."""
        self.known = dict(known)
        for thread in self._threads:
            thread.start()
        for _ in range(count):
            assert self._acknowledged.acquire(timeout=120)
        assert self._cluster.program.stop(signal.SIGKILL) == -signal.SIGKILL
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _write(self, prefix: str, chance: random.Random) -> None:
        with self._cluster.client() as client:
            while True:
                name = f"{prefix}-{chance.randrange(8)}"
                value: str | None = f"{chance.random()}" if chance.random() < 0.8 else None
                exists = self.known.get(name) is not None
                if value is None and not exists:
                    continue
                self.asked[name] = value
                try:
                    answer = self._send(client, name, value, exists)
                except httpx.TransportError:
                    return  # the server was killed
                assert answer.is_success, answer.text
                self.known[name] = self.asked.pop(name)
                self.version = max(self.version, int(answer.json()["metadata"].get("resourceVersion", 0)))
                self._acknowledged.release()

    @staticmethod
    def _send(client: httpx.Client, name: str, value: str | None, exists: bool) -> httpx.Response:
        if value is None:
            return client.delete(f"{CONFIG_MAPS}/{name}")
        body = {"metadata": {"name": name}, "data": {"value": value, "more": "x" * 60_000}}
        if not exists:
            return client.post(CONFIG_MAPS, json=body)
        return client.put(f"{CONFIG_MAPS}/{name}", json=body)


def test_a_killed_cluster_has_all_that_was_acknowledged(start_cluster: StartCluster, tmp_path: pathlib.Path) -> None:
    data = tmp_path / "data"
    chance = random.Random(4)
    known: dict[str, str | None] = {}
    inodes = set()
    cluster = start_cluster("--data", data)
    for count in (1, 30, 200, 90, 140):
        writers = Writers(cluster, chance)
        writers.run(count, known)
        inodes.add(data.stat().st_ino)
        cluster = start_cluster("--data", data)
        with cluster.client() as client:
            answer = client.get(CONFIG_MAPS).json()
            assert int(answer["metadata"]["resourceVersion"]) >= writers.version
            found = {item["metadata"]["name"]: item["data"]["value"] for item in answer["items"]}
            for name, value in writers.known.items():
                possible = {value, writers.asked[name]} if name in writers.asked else {value}
                assert found.get(name) in possible
            assert found.keys() <= writers.known.keys() | writers.asked.keys()
            known = dict(found)
    assert len(inodes) > 1, "the file was never begun anew"
    assert cluster.program.stop() == 0


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can limit other processes")
def test_a_full_disk_ends_it_with_an_error_and_loses_nothing(
    start_cluster: StartCluster, tmp_path: pathlib.Path
) -> None:
    data = tmp_path / "data"
    cluster = start_cluster("--data", data)
    with cluster.client() as client:
        assert client.post(CONFIG_MAPS, json={"metadata": {"name": "first"}}).status_code == 201
        room = data.stat().st_size + 200
        resource.prlimit(cluster.program.process.pid, resource.RLIMIT_FSIZE, (room, room))
        with pytest.raises(httpx.TransportError):
            client.post(CONFIG_MAPS, json={"metadata": {"name": "second"}, "data": {"x": "x" * 1000}})
    assert cluster.program.process.wait(60) == 1
    assert f"The data file {data} cannot be written: File too large." in cluster.program.output
    assert "Traceback" not in cluster.program.output
    cluster = start_cluster("--data", data)
    assert "The last write" in cluster.program.output
    with cluster.client() as client:
        assert [item["metadata"]["name"] for item in client.get(CONFIG_MAPS).json()["items"]] == ["first"]


@pytest.mark.skipif(KUBECTL is None, reason="put kubectl on PATH, or its folder into KUBEBUILDER_ASSETS")
def test_kubectl_goes_on_after_a_restart(start_cluster: StartCluster, tmp_path: pathlib.Path) -> None:
    def kubectl(*args: str | pathlib.Path) -> str:
        assert KUBECTL is not None
        command = [KUBECTL, f"--kubeconfig={tmp_path / 'kubeconfig'}", *args]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    cluster = start_cluster("--data", tmp_path / "data", "--apply", EXAMPLES / "crd.yaml")
    kubectl("apply", "-f", EXAMPLES / "obj.yaml")
    before = kubectl("get", "kopfexamples", "-o", "jsonpath={.items[*].metadata.uid}")
    assert before
    assert cluster.program.stop(signal.SIGKILL) == -signal.SIGKILL
    start_cluster("--data", tmp_path / "data")
    assert kubectl("get", "kopfexamples", "-o", "jsonpath={.items[*].metadata.uid}") == before
    assert "kopf-example-1 unchanged" in kubectl("apply", "-f", EXAMPLES / "obj.yaml")
