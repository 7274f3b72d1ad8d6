"""The reference operator, deployed by what `trioperator manifests` prints: two replicas, one of which is killed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import socket
import socketserver
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.controlplane import ControlPlane, free_ports
from tests.e2e.deployment import Deployed
from tests.e2e.test_life import until
from tests.program import Program

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "21-everything"
NAMESPACE = "database-operator"
DATABASES = "databases.db.example.com"

# There is no network of Services: each replica has a port here, and is found by that of the Service.
LOCAL_SERVICE = """
import dataclasses
import os
import trioperator

class Local(trioperator.WebhookAutoServer):
    async def __call__(self, fn):
        async for found in super().__call__(fn):
            yield {**found, "service": {**found["service"], "port": int(os.environ["SERVICE_PORT"])}}

@trioperator.on.startup()
def use_local_service(settings):
    settings.admission.server = Local()
"""


class Service(socketserver.ThreadingTCPServer):
    """A Service on a port of this machine: connections go to the first replica that accepts them."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.backends: list[int] = []
        super().__init__(("127.0.0.1", 0), Forwarder)
        self.port: int = self.server_address[1]


class Forwarder(socketserver.BaseRequestHandler):
    """A connection to a Service."""

    def handle(self) -> None:
        assert isinstance(self.server, Service)
        for port in self.server.backends:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as backend:
                back = threading.Thread(target=_copy, args=(backend, self.request), daemon=True)
                back.start()
                _copy(self.request, backend)
                back.join()
                return


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class Replicas:
    """The replicas of the operator, as processes here, and what stands for the nodes of the cluster."""

    def __init__(self, controlplane: ControlPlane, folder: pathlib.Path, service: Service) -> None:
        self.kubectl = controlplane.kubectl
        self.programs: dict[str, Program] = {}
        self.metrics: dict[str, int] = {}
        command = [sys.executable, "-m", "trioperator", "manifests"]
        printed = subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, text=True).stdout
        self._store_in_the_old_version(controlplane, list(yaml.safe_load_all(printed)))
        self.kubectl("apply", "--server-side", "-f", "-", input=printed)
        self.kubectl("wait", "--for=condition=Established", f"crd/{DATABASES}", "--timeout=60s")
        self.deployed = Deployed(controlplane, folder, yaml.safe_load_all(printed))
        self._folder, self._service = folder, service
        (folder / "local_service.py").write_text(LOCAL_SERVICE)
        spec = {"type": "ExternalName", "externalName": "localhost"}
        metadata = {"name": "database-operator-webhooks", "namespace": NAMESPACE}
        self.kubectl("delete", "service", metadata["name"], f"--namespace={NAMESPACE}")
        controlplane.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        [self._container] = self.deployed.deployment["spec"]["template"]["spec"]["containers"]
        self._container["args"].append("--module=local_service")

    def _store_in_the_old_version(self, controlplane: ControlPlane, manifests: list[dict[str, Any]]) -> None:
        """Create a database that is stored as it was before there was another version."""
        [crd] = [each for each in manifests if each["kind"] == "CustomResourceDefinition"]
        for version in crd["spec"]["versions"]:
            version["storage"] = version["name"] == "v1alpha1"
        self.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(crd))
        self.kubectl("wait", "--for=condition=Established", f"crd/{DATABASES}", "--timeout=60s")
        old = {"apiVersion": "db.example.com/v1alpha1", "kind": "Database", "spec": {"sizeGb": 1}}
        controlplane.apply({**old, "metadata": {"name": "old", "namespace": "default"}})

    def start(self, name: str) -> Program:
        """Start a replica with the arguments, the variables and the token of its pod."""
        self.deployed.health, self.deployed.webhooks, self.deployed.metrics = free_ports(3)
        self._container["env"][0] = {"name": "POD_ID", "value": name}
        environ = {**os.environ, "PYTHONPATH": str(FOLDER), "SERVICE_PORT": str(self._service.port)}
        program = self.deployed.start(environ=environ, log=self._folder / f"{name}.txt")
        self.programs[name], self.metrics[name] = program, self.deployed.metrics
        self._service.backends.append(self.deployed.webhooks)
        return program

    def count_calls(self, name: str) -> float:
        """Return how often a replica has called the reconcile handler."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics[name]}/metrics", timeout=30) as response:
            pattern = r'^trioperator_handler_calls_total{.*handler="provide".*} (\S+)'
            return sum(map(float, re.findall(pattern, response.read().decode(), re.MULTILINE)))

    def find_leader(self) -> str:
        path = "jsonpath={.spec.holderIdentity}"
        return self.kubectl("get", "lease", NAMESPACE, f"--namespace={NAMESPACE}", "-o", path, check=False)

    def run_pods(self) -> None:
        """Do what kubelets would: let the pods of databases be ready, and those of backups succeed."""
        for pod in json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]:
            phase = "Succeeded" if "job-name" in pod["metadata"]["labels"] else "Running"
            if pod["status"].get("phase") != phase and "postgres" in str(pod["spec"]["containers"]):
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": pod["metadata"]["creationTimestamp"]}
                status = json.dumps({"status": {"phase": phase, "conditions": [ready]}})
                name = pod["metadata"]["name"]
                self.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", status, check=False)

    def close(self) -> None:
        for program in self.programs.values():
            program.process.kill()
            program.process.wait()
        self.deployed.close()
        hooks = "validatingwebhookconfigurations/webhooks.db.example.com"
        self.kubectl("delete", hooks, hooks.replace("validating", "mutating"), check=False)
        self.kubectl("delete", f"crd/{DATABASES}", f"namespace/{NAMESPACE}", "--wait=false", check=False)


@pytest.fixture
def replicas(controlplane: ControlPlane, tmp_path: pathlib.Path) -> Iterator[Replicas]:
    with Service() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        with contextlib.closing(Replicas(controlplane, tmp_path, service)) as replicas:
            yield replicas
        service.shutdown()


def make_database(name: str, **spec: Any) -> str:
    metadata = {"name": name, "namespace": "default"}
    database = {"apiVersion": "db.example.com/v1", "kind": "Database", "metadata": metadata}
    return json.dumps({**database, "spec": {"storage": "1536Mi", **spec}})


def pause_and_poke(replicas: Replicas, leader: str) -> None:
    """Pause a database, change it and another one, and let the operator catch up; then poke it."""
    kubectl = replicas.kubectl

    def count(name: str) -> str:
        return kubectl("get", "statefulset", name, "-o", "jsonpath={.spec.replicas}")

    kubectl("annotate", "db", "many-2", "trioperator.dev/paused=true")
    kubectl("wait", "--for=condition=Paused", "db/many-2", "--timeout=60s")
    for name in ("many-2", "many-3"):
        kubectl("patch", "db", name, "--type=merge", "-p", '{"spec": {"replicas": 2}}')
    until(lambda: count("many-3") == "2")
    assert count("many-2") == "1", "it is paused"
    kubectl("annotate", "db", "many-2", "trioperator.dev/paused-")
    until(lambda: count("many-2") == "2")
    calls = replicas.count_calls(leader)
    kubectl("annotate", "db", "many-2", "trioperator.dev/reconcile-requested-at=now")
    until(lambda: replicas.count_calls(leader) > calls)


def test_two_replicas_one_of_which_is_killed(controlplane: ControlPlane, replicas: Replicas) -> None:
    kubectl = controlplane.kubectl

    def is_ready(name: str) -> bool:
        replicas.run_pods()
        path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        return kubectl("get", "db", name, "-o", path) == "True"

    def has_backup(name: str) -> bool:
        replicas.run_pods()
        return kubectl("get", "db", name, "-o", "jsonpath={.status.lastBackup}") != ""

    for name in ("a", "b"):
        replicas.start(name).wait_for("Serving admission webhooks")
    first = until(replicas.find_leader)
    replicas.programs[first].wait_for("The operator is ready.")
    kubectl("apply", "-f", str(FOLDER / "examples" / "database.yaml"))
    until(lambda: is_ready("orders"))

    for number in range(6):
        kubectl("create", "-f", "-", input=make_database(f"many-{number}", backups={"schedule": "* * * * *"}))
        if number == 2:
            replicas.programs[first].process.kill()
    second = until(lambda: replicas.find_leader() not in ("", first) and replicas.find_leader())
    for number in range(6):
        until(lambda number=number: is_ready(f"many-{number}"))  # type: ignore[misc]
        assert kubectl("get", "db", f"many-{number}", "-o", "jsonpath={.spec.version}") == "18"
    until(lambda: has_backup("many-0"))

    kubectl("patch", "db", "many-1", "--type=merge", "-p", '{"spec": {"storage": "1Gi"}}', check=False)
    assert kubectl("get", "db", "many-1", "-o", "jsonpath={.spec.storage}") == "1536Mi", "it cannot shrink"
    old = "databases.v1alpha1.db.example.com"
    assert kubectl("get", old, "many-1", "-o", "jsonpath={.spec.sizeGb}") == "2"
    kubectl("patch", old, "many-1", "--type=merge", "-p", '{"spec": {"replicas": 2}}')
    assert kubectl("get", "db", "many-1", "-o", "jsonpath={.spec.storage}") == "1536Mi", "nothing is lost"
    until(lambda: is_ready("many-1"))
    pause_and_poke(replicas, second)
    until(lambda: kubectl("get", "crd", DATABASES, "-o", "jsonpath={.status.storedVersions}") == '["v1"]')
    assert kubectl("get", "db", "old", "-o", "jsonpath={.spec.storage}") == "1Gi"
    kubectl("delete", "db", "--all", "--timeout=90s")

    program = replicas.programs[second]
    assert program.stop() == 0
    assert replicas.deployed.forbidden() == []
    assert '"severity": "error"' not in program.output
