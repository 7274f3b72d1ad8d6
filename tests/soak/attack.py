"""``python -m tests.soak attack``: an operator on a real control plane, attacked by those who have little access.

A tenant may create and delete objects of one kind, and nothing else. A pod without credentials reaches the webhook port
of an operator that may open 1,024 files and has 512 MiB of addresses. The operator ends, and its webhook configuration
is tampered with, while the tenant goes on. A neighbour on the machine asks for the live view. All of it is on the
loopback interface.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.bench.servers import find_assets, free_ports
from tests.controlplane import EXAMPLES, ControlPlane
from tests.program import Program
from tests.soak.floods import FLOODS

_FILES: Final = 1024
_ADDRESSES: Final = 512 * 2**20
_MAX_MIB: Final = 200
_MAX_LINES: Final = 100
_HOOKS: Final = "validatingwebhookconfigurations/hooks.example.com"
_OPERATOR: Final = """
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.admission.server = trioperator.WebhookServer(addr="127.0.0.1", port={port}, ca_secret="default/ca")
    settings.admission.managed = "hooks.example.com"

@trioperator.on.validate("kopfexamples", persistent=True)
async def check(spec, **_):
    if spec.get("bad"):
        raise trioperator.AdmissionError("it is bad")

@trioperator.on.create("kopfexamples")
async def create(name, client, **_):
    child = {{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": name}}, "data": {{"by": "tenant"}}}}
    await client.apply(child, force=True)

@trioperator.on.reconcile("kopfexamples", owns=["secrets"])
async def reconcile(name, **_):
    return {{"apiVersion": "v1", "kind": "Secret", "metadata": {{"name": name}}, "stringData": {{"by": "tenant"}}}}
"""


@dataclasses.dataclass(slots=True, kw_only=True)
class Attack:
    """An operator, and what has become of it. A proper review or probe may take so many seconds of *patience*."""

    plane: ControlPlane
    patience: float
    port: int
    probes: int
    view: int
    problems: list[str] = dataclasses.field(default_factory=list)
    _lives: int = 0

    def expect(self, fact: bool, text: str) -> None:
        """Note a problem unless something holds."""
        if not fact:
            self.problems.append(text)

    @contextlib.contextmanager
    def operating(self) -> Iterator[Program]:
        """Run the operator within the limits of a small container."""
        self._lives += 1
        file, log = self.plane.folder / "app.py", self.plane.folder / f"operator-{self._lives}.log"
        file.write_text(_OPERATOR.format(port=self.port))
        view = (f"--live-view=http://127.0.0.1:{self.view}", f"--liveness=http://127.0.0.1:{self.probes}/healthz")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "trioperator", "run", "-A", "--standalone", *view, str(file)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "KUBECONFIG": str(self.plane.folder / "operator.kubeconfig"),
                    "TRIOPERATOR_RUN_LIVE_VIEW_TOKEN": "secret",
                },
                preexec_fn=_limit,
            )
        program = Program(process, log)
        try:
            program.wait_for("The operator is ready.")
            yield program
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    # The tenant.

    def as_tenant(self, *args: str, body: Any = None) -> tuple[bool, str]:
        """Run kubectl as the tenant. Returns whether it succeeded, and what it printed."""
        command = [str(self.plane.assets / "kubectl"), f"--kubeconfig={self.plane.kubeconfig}", "--as=tenant", *args]
        sent = None if body is None else json.dumps(body)
        done = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode == 0, done.stdout + done.stderr

    def create(self, name: str, **spec: Any) -> tuple[bool, str]:
        """Create an object as the tenant."""
        body = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": name}, "spec": spec}
        return self.as_tenant("create", "-f", "-", body=body)

    def attack_as_tenant(self, program: Program) -> None:
        """Name an object like those of others, which must stay as they are, also when it is deleted."""
        kubectl = self.plane.kubectl
        kubectl("create", "configmap", "payroll", "--from-literal=key=secret")
        kubectl("create", "secret", "generic", "payroll", "--from-literal=key=secret")
        before = [self.plane.get(kind, "payroll") for kind in ("configmap", "secret")]
        done, text = self.create("payroll")
        self.expect(done, f"the tenant cannot create an object: {text}")
        program.wait_for("it is left as it is", count=2)
        done, text = self.as_tenant("get", "secret", "payroll")
        self.expect(not done and "Forbidden" in text, f"the tenant reads a Secret: {text}")
        self.as_tenant("delete", "kex", "payroll", "--wait=false")
        time.sleep(3)  # for the garbage collector
        after = [self.plane.get(kind, "payroll") for kind in ("configmap", "secret")]
        self.expect(after == before, f"objects of others have changed: {after}")
        done, text = self.create("bad", bad=True)
        self.expect(not done and "it is bad" in text, f"a bad object was not denied: {text}")

    # The pod without credentials.

    def flood(self, name: str, program: Program, seconds: float) -> None:
        """Flood the webhook port, and ask for proper reviews and probes meanwhile."""
        flood = subprocess.Popen([sys.executable, "-m", "tests.soak.floods", name, str(self.port), str(seconds)])
        latencies: list[float] = []
        try:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                latencies += [self._measure(name, ask) for ask in (self.review, self.probe)]
                time.sleep(0.2)
        finally:
            flood.kill()
            flood.wait()
        memory = peak_mib(program.process.pid)
        self.expect(memory <= _MAX_MIB, f"{name}: {memory} MiB")
        print(f"{name}: {len(latencies)} requests, slowest {max(latencies):.2f} s; peak {memory} MiB", flush=True)

    def _measure(self, name: str, ask: Callable[[], bytes]) -> float:
        began = time.monotonic()
        try:
            answer = ask()
        except (OSError, http.client.HTTPException) as error:
            answer = repr(error).encode()
        latency = time.monotonic() - began
        is_good = b'"allowed":true' in answer or answer.startswith(b"{")
        text = f"{name}: {ask.__name__} was answered by {answer[:80]!r} after {latency:.2f} s"
        self.expect(is_good and latency <= self.patience, text)
        return latency

    def review(self) -> bytes:
        """Ask for a proper review."""
        request = {
            "uid": "u",
            "kind": {"group": "kopf.dev", "version": "v1", "kind": "KopfExample"},
            "resource": {"group": "kopf.dev", "version": "v1", "resource": "kopfexamples"},
            "name": "a",
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {},
            "object": {"metadata": {"name": "a"}, "spec": {}},
        }
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=context)
        with contextlib.closing(connection):
            connection.request("POST", "/check", json.dumps(body), {"Content-Type": "application/json"})
            return connection.getresponse().read()

    def probe(self) -> bytes:
        """Ask whether the operator is alive."""
        return self._get(self.probes, "/healthz")[1]

    def _get(self, port: int, path: str, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()

    # An operator that ends, somebody who tampers, and a neighbour.

    def restart(self, program: Program) -> None:
        """End the operator and start another one, while the tenant creates bad objects: none may be accepted."""
        accepted: list[str] = []
        is_over = threading.Event()

        def create() -> None:
            number = 0
            while not is_over.is_set():
                done, _ = self.create(f"bad-{number}", bad=True)
                accepted.extend([f"bad-{number}"] if done else [])
                number += 1

        tenant = threading.Thread(target=create)
        tenant.start()
        try:
            self.expect(program.stop(signal.SIGTERM) == 0, "the operator does not end in order")
            time.sleep(2)
            with self.operating():
                time.sleep(2)
                self._tamper()
        finally:
            is_over.set()
            tenant.join()
        self.expect(not accepted, f"accepted: {accepted}")

    def _tamper(self) -> None:
        """Change the failure policy of the stored webhooks, which has to be put right."""
        change = '[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]'
        self.plane.kubectl("patch", _HOOKS, "--type=json", "-p", change)
        deadline = time.monotonic() + 10
        while self.plane.get(_HOOKS)["webhooks"][0]["failurePolicy"] != "Fail":
            if time.monotonic() > deadline:
                self.problems.append("the webhook configuration is not repaired")
                return
            time.sleep(0.2)

    def look_as_neighbour(self) -> None:
        """Ask for the live view, without its token or as a website."""
        for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer wrong"}):
            status, _ = self._get(self.view, "/debug/snapshot", **headers)
            self.expect(status == 401, f"the live view answers {status} to {headers}")
        status, _ = self._get(self.view, "/debug/snapshot", Host="evil.example", Authorization="Bearer secret")
        self.expect(status == 403, f"the live view answers {status} to another host")


def _limit() -> None:
    """Limit the process as a small container does: in its files, and in its address space."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))


def peak_mib(pid: int) -> int:
    """Return the most memory that a process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) // 1024 if found else 0


def run(attack: Attack, seconds: float) -> None:
    """Run all attacks; the floods take so many seconds together."""
    plane = attack.plane
    plane.kubectl("apply", "-f", str(EXAMPLES / "crd.yaml"))
    plane.kubectl("wait", "--for=condition=Established", "crd/kopfexamples.kopf.dev", "--timeout=60s")
    plane.kubectl("create", "role", "tenant", "--verb=create,delete", "--resource=kopfexamples.kopf.dev")
    plane.kubectl("create", "rolebinding", "tenant", "--role=tenant", "--user=tenant")
    with attack.operating() as program:
        attack.attack_as_tenant(program)
        attack.look_as_neighbour()
        before = len(program.output)
        for name in FLOODS:
            attack.flood(name, program, seconds / len(FLOODS))
        lines = program.output.splitlines()
        attack.expect(len(lines) <= _MAX_LINES, f"the log has {len(lines)} lines")
        attack.expect("Traceback" not in program.output[before:], f"tracebacks:\n{program.output[before:]}")
        attack.restart(program)
        print(f"The log has {len(lines)} lines.", flush=True)


def main(arguments: list[str]) -> int:
    """Attack an operator. Returns 1 if anything gave way."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak attack", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of all floods together (default: %(default)g)")
    parser.add_argument("--patience", type=float, default=1, help="seconds of a review (default: %(default)g)")
    options = parser.parse_args(arguments)
    assets = find_assets()
    if assets is None:
        sys.exit("set KUBEBUILDER_ASSETS")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    port, probes, view = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        plane = ControlPlane(pathlib.Path(folder), assets)
        attack = Attack(plane=plane, patience=options.patience, port=port, probes=probes, view=view)
        try:
            plane.start()
            run(attack, options.seconds)
        finally:
            plane.stop()
    print(*attack.problems[:20], "FAILED" if attack.problems else "passed", sep="\n")
    return 1 if attack.problems else 0
