"""``python -m tests.soak kinds``: an operator that watches hundreds of kinds, on a real control plane.

Shown are its start, its memory for each watch, and its requests in each second while its credentials are rotated and
while the API server is restarted: there must be no storm, and no kind may be lost.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import datetime
import functools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import trio
import yaml

from tests.bench.processes import cpu_seconds, resident_mib
from tests.bench.servers import find_assets
from tests.controlplane import ControlPlane
from tests.e2e.test_logins import Account, replace
from tests.program import Program
from trioperator import OperatorSettings
from trioperator._kube.api_client import ApiClient, open_client
from trioperator._kube.connection import load_connection

_GROUP = "kinds.example.com"
_OPERATOR = f"""
import trioperator

@trioperator.on.create("{_GROUP}", "v1", trioperator.EVERYTHING)
@trioperator.on.update("{_GROUP}", "v1", trioperator.EVERYTHING)
async def handle(resource, spec, logger, **_):
    logger.info("handled %s %s", resource.plural, spec["number"])
"""
# For which the API server accepts a revoked token, in seconds.
_CACHED = 12.0
# Seconds until all kinds must be handled again after a restart. A watch is tried again after at most 37 s.
_PATIENCE = 90.0


def definition(number: int) -> dict[str, Any]:
    """Return the definition of a kind."""
    plural = f"kind{number}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": "Namespaced",
            "names": {"kind": f"Kind{number}", "plural": plural, "singular": plural[:-1]},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@dataclasses.dataclass(slots=True)
class Kinds:
    """The kinds, with an object of each."""

    client: ApiClient
    count: int
    version: int = 0

    async def define(self) -> None:
        """Define the kinds, wait until they are established, and create an object of each."""
        await self._for_each(self._define)
        established = set[str]()
        while len(established) < self.count:
            await trio.sleep(1)
            found = await self.client.list_page("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
            crds = [item.decode() for item in found.items]
            established = {
                crd["metadata"]["name"]
                for crd in crds
                for each in crd.get("status", {}).get("conditions") or []
                if (each["type"], each["status"]) == ("Established", "True") and crd["spec"]["group"] == _GROUP
            }
        await self._for_each(self._create)

    async def change(self) -> None:
        """Change the object of each kind."""
        self.version += 1
        await self._for_each(self._change)

    async def _for_each(self, fn: Any) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(self.count):
                nursery.start_soon(fn, number)

    async def _define(self, number: int) -> None:
        await self.client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(number))

    async def _create(self, number: int) -> None:
        body = {"apiVersion": f"{_GROUP}/v1", "kind": f"Kind{number}", "metadata": {"name": "one"}}
        await self.client.post(self._path(number), {**body, "spec": {"number": 0}})

    async def _change(self, number: int) -> None:
        await self.client.patch(f"{self._path(number)}/one", {"spec": {"number": self.version}})

    def _path(self, number: int) -> str:
        return f"/apis/{_GROUP}/v1/namespaces/default/kind{number}s"


class Traffic:
    """Requests of the operator, as the audit log has them."""

    def __init__(self, plane: ControlPlane, user: str) -> None:
        self._plane = plane
        self._user = user
        self._began = datetime.datetime.now(datetime.UTC)

    def show(self, phase: str) -> None:
        """Print the requests since the phase before, by verb, and the most in one second."""
        began, self._began = self._began, datetime.datetime.now(datetime.UTC)
        seen: set[str] = set()
        verbs: collections.Counter[str] = collections.Counter()
        seconds: collections.Counter[str] = collections.Counter()
        for request in self._plane.requests():
            moment = request["requestReceivedTimestamp"]
            at = datetime.datetime.fromisoformat(moment)
            if request["user"]["username"] == self._user and at >= began and request["auditID"] not in seen:
                seen.add(request["auditID"])
                code = (request.get("responseStatus") or {}).get("code", 200)
                verbs[request["verb"] if code < 400 else f"{request['verb']} ({code})"] += 1
                seconds[moment[:19]] += 1
        peak = max(seconds.values(), default=0)
        busiest = " ".join(str(number) for _, number in sorted(seconds.items()))
        print(f"{phase}: {dict(verbs)}, at most {peak} in a second; second by second: {busiest}", flush=True)


@contextlib.contextmanager
def running(plane: ControlPlane, kubeconfig: pathlib.Path) -> Iterator[Program]:
    """Run the operator."""
    file, log = plane.folder / "app.py", plane.folder / "operator.log"
    file.write_text(_OPERATOR)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "trioperator", "run", "-A", "--standalone", str(file)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        )
    try:
        yield Program(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def show_process(phase: str, program: Program, began: float, cpu: float) -> None:
    """Print the time, CPU and memory of the operator."""
    pid = program.process.pid
    used, memory = cpu_seconds(pid) - cpu, resident_mib(pid)
    print(f"{phase}: {time.monotonic() - began:.1f} s, {used:.2f} s of CPU, {memory:.1f} MiB", flush=True)


async def handled(program: Program, kinds: Kinds, patience: float = 60.0) -> None:
    """Wait until the newest change of each kind is handled."""
    await trio.to_thread.run_sync(functools.partial(_wait_handled, program, kinds, patience))


def _wait_handled(program: Program, kinds: Kinds, patience: float) -> None:
    deadline = time.monotonic() + patience
    wanted = {f"handled kind{number}s {kinds.version}" for number in range(kinds.count)}
    while True:
        text = program.output
        missing = [each for each in wanted if f"{each}\n" not in text]
        if not missing:
            return
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: {len(missing)} kinds are not handled, such as {sorted(missing)[:3]}")
        time.sleep(0.2)


async def measure(plane: ControlPlane, count: int) -> None:
    """Measure an operator with so many kinds."""
    load = functools.partial(load_connection, [plane.kubeconfig])
    async with open_client(load, settings=OperatorSettings()) as client:
        kinds = Kinds(client, count)
        began = time.monotonic()
        await kinds.define()
        print(f"{count} kinds are defined after {time.monotonic() - began:.0f} s.", flush=True)
        account, token = Account(plane), plane.folder / "token"
        token.write_text(account.issue())
        kubeconfig = plane.folder / "robot.kubeconfig"
        config = yaml.safe_load(plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"tokenFile": str(token)}
        kubeconfig.write_text(yaml.safe_dump(config))
        traffic = Traffic(plane, account.user)
        began = time.monotonic()
        with running(plane, kubeconfig) as program:
            await _live(plane, program, kinds, traffic, account=account, token=token, began=began)
        warnings = [line for line in program.output.splitlines() if "[WARNING" in line or "[ERROR" in line]
        print(f"{len(warnings)} warnings, such as:", *warnings[:10], sep="\n  ")


async def _live(
    plane: ControlPlane,
    program: Program,
    kinds: Kinds,
    traffic: Traffic,
    *,
    account: Account,
    token: pathlib.Path,
    began: float,
) -> None:
    in_thread = trio.to_thread.run_sync
    await in_thread(program.wait_for, "The operator is ready.")
    show_process("ready", program, began, 0)
    await handled(program, kinds)
    show_process("all objects handled", program, began, 0)
    await trio.sleep(5)
    traffic.show("start")
    began, cpu = time.monotonic(), cpu_seconds(program.process.pid)
    await trio.sleep(20)
    show_process("20 idle seconds", program, began, cpu)
    traffic.show("idle")
    replace(token, await in_thread(account.issue))
    await in_thread(account.revoke)
    await trio.sleep(_CACHED)
    await kinds.change()
    await handled(program, kinds)
    traffic.show("rotation, with a change of each kind")
    cpu = cpu_seconds(program.process.pid)
    await in_thread(plane.stop_apiserver)
    await trio.sleep(10)
    began = time.monotonic()
    await in_thread(plane.start_apiserver)
    print(f"The API server is back after 10 s and the {time.monotonic() - began:.1f} s of its start.", flush=True)
    began = time.monotonic()
    await kinds.change()
    await handled(program, kinds, _PATIENCE)
    show_process("all kinds handled after the restart", program, began, cpu)
    await trio.sleep(5)
    traffic.show("restart, with a change of each kind")


def main(arguments: list[str]) -> int:
    """Measure as the options say."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak kinds", description=__doc__)
    parser.add_argument("--kinds", type=int, default=300, help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    assets = find_assets()
    if assets is None:
        sys.exit("set KUBEBUILDER_ASSETS")
    with tempfile.TemporaryDirectory(prefix="kinds-") as folder:
        plane = ControlPlane(pathlib.Path(folder), assets)
        try:
            plane.start()
            trio.run(measure, plane, options.kinds)
        finally:
            plane.stop()
    return 0
