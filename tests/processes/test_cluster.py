"""`trioperator cluster` as a process: how it ends, its clients, and its data after it was killed."""

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
    """Cluster in another process."""

    def __init__(self, program: Program, kubeconfig: pathlib.Path) -> None:
        self.program = program
        self.kubeconfig = kubeconfig

    def client(self) -> httpx.Client:
        """Return a client that is configured by the kubeconfig."""
        config: dict[str, Any] = json.loads(self.kubeconfig.read_text())
        server = config["clusters"][0]["cluster"]
        authority = base64.b64decode(server["certificate-authority-data"]).decode()
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        context = ssl.create_default_context(cadata=authority)
        return httpx.Client(base_url=server["server"], verify=context, headers=headers, timeout=60)


@pytest.fixture
def start_cluster(start_process: Callable[..., Program], tmp_path: pathlib.Path) -> Callable[..., ClusterProgram]:
    """Return a function that starts the command, and waits until it serves."""

    def start(*options: str | pathlib.Path) -> ClusterProgram:
        kubeconfig = tmp_path / "kubeconfig"
        program = start_process("-m", "trioperator", "cluster", "--kubeconfig", kubeconfig, *options)
        program.wait_for("Ctrl-C stops it.")
        return ClusterProgram(program, kubeconfig)

    return start


StartCluster = Callable[..., ClusterProgram]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_shuts_it_down_while_clients_watch(start_cluster: StartCluster, number: signal.Signals) -> None:
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


def test_options_that_cannot_be_met_are_usage_errors(
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
    """Threads that write to the cluster, and record which writes were acknowledged.

    Each thread has its own objects; ``acknowledged`` is their acknowledged content (None: deleted), ``pending`` the
    content of requests without a response.
    """

    def __init__(self, cluster: ClusterProgram, chance: random.Random) -> None:
        self.acknowledged: dict[str, str | None] = {}
        self.pending: dict[str, str | None] = {}
        self.version = 0
        self._count = threading.Semaphore(0)
        self._cluster = cluster
        self._threads = [
            threading.Thread(target=self._write, args=(f"w{number}", random.Random(chance.random())))
            for number in range(4)
        ]

    def run(self, count: int, acknowledged: dict[str, str | None]) -> None:
        """Write until this many writes were acknowledged, then kill the server."""
        self.acknowledged = dict(acknowledged)
        for thread in self._threads:
            thread.start()
        for _ in range(count):
            assert self._count.acquire(timeout=120)
        assert self._cluster.program.stop(signal.SIGKILL) == -signal.SIGKILL
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _write(self, prefix: str, chance: random.Random) -> None:
        with self._cluster.client() as client:
            while True:
                name = f"{prefix}-{chance.randrange(8)}"
                value: str | None = f"{chance.random()}" if chance.random() < 0.8 else None
                exists = self.acknowledged.get(name) is not None
                if value is None and not exists:
                    continue
                self.pending[name] = value
                try:
                    answer = self._send(client, name, value, exists)
                except httpx.TransportError:
                    return  # the server was killed
                assert answer.is_success, answer.text
                self.acknowledged[name] = self.pending.pop(name)
                self.version = max(self.version, int(answer.json()["metadata"].get("resourceVersion", 0)))
                self._count.release()

    @staticmethod
    def _send(client: httpx.Client, name: str, value: str | None, exists: bool) -> httpx.Response:
        if value is None:
            return client.delete(f"{CONFIG_MAPS}/{name}")
        body = {"metadata": {"name": name}, "data": {"value": value, "more": "x" * 60_000}}
        if not exists:
            return client.post(CONFIG_MAPS, json=body)
        return client.put(f"{CONFIG_MAPS}/{name}", json=body)


def test_a_killed_cluster_keeps_all_acknowledged_writes(start_cluster: StartCluster, tmp_path: pathlib.Path) -> None:
    data = tmp_path / "data"
    chance = random.Random(4)
    acknowledged: dict[str, str | None] = {}
    cluster = start_cluster("--data", data)
    for count in (1, 30, 200, 90, 140):
        writers = Writers(cluster, chance)
        writers.run(count, acknowledged)
        cluster = start_cluster("--data", data)
        with cluster.client() as client:
            answer = client.get(CONFIG_MAPS).json()
            assert int(answer["metadata"]["resourceVersion"]) >= writers.version
            found = {item["metadata"]["name"]: item["data"]["value"] for item in answer["items"]}
            for name, value in writers.acknowledged.items():
                possible = {value, writers.pending[name]} if name in writers.pending else {value}
                assert found.get(name) in possible
            assert found.keys() <= writers.acknowledged.keys() | writers.pending.keys()
            acknowledged = dict(found)
    assert cluster.program.stop() == 0


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can limit other processes")
def test_a_full_disk_is_a_failure_that_loses_nothing(start_cluster: StartCluster, tmp_path: pathlib.Path) -> None:
    data = tmp_path / "data"
    cluster = start_cluster("--data", data)
    with cluster.client() as client:
        assert client.post(CONFIG_MAPS, json={"metadata": {"name": "first"}}).status_code == 201
        room = data.stat().st_size + 200
        resource.prlimit(cluster.program.process.pid, resource.RLIMIT_FSIZE, (room, room))
        with pytest.raises(httpx.TransportError):
            client.post(CONFIG_MAPS, json={"metadata": {"name": "second"}, "data": {"x": "x" * 1000}})
    assert cluster.program.process.wait(60) == 1
    assert f"The data file {data} cannot be written: disk I/O error." in cluster.program.output
    assert "Traceback" not in cluster.program.output
    cluster = start_cluster("--data", data)
    with cluster.client() as client:
        assert [item["metadata"]["name"] for item in client.get(CONFIG_MAPS).json()["items"]] == ["first"]


@pytest.mark.skipif(KUBECTL is None, reason="put kubectl on PATH, or its folder into KUBEBUILDER_ASSETS")
def test_kubectl_works_after_a_restart(start_cluster: StartCluster, tmp_path: pathlib.Path) -> None:
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
