"""Operators at scale: ``python -m tests.bench scale [SCENARIO...]``.

An embedded API server and each operator run in processes of their own, so that what is measured is the operator's. Its
objects have 2 kB. Idle means that an operator and its server have used hardly any CPU time for three seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, Protocol

import trio
import trio.lowlevel

from tests.bench.figures import Figures
from tests.bench.processes import RunFailed, cpu_seconds, resident_mib
from trioperator.apiserver import Cluster, serve_cluster

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
_PADDING: Final = "x" * 1500
_CHANGES: Final = 1000
_BUSY: Final = 0.1  # seconds of CPU time
_LULL: Final = 3.0  # in this many seconds: on a busy machine, one of the two may have to wait for a while
_PATIENCE: Final = 900.0
KEPT: Final = {"annotations", "finalizers", "labels"}  # of the metadata of objects that are handled

HEAD: Final = """
import time, trioperator
on = trioperator.on
"""
CHANGES: Final = """
@on.create("loads")
@on.update("loads")
async def change(name, **_):
    with open(JOURNAL, "a") as file:
        file.write(f"{name} {time.time()}\\n")
"""
DAEMON: Final = """
@trioperator.daemon("loads", finalizer=False)
async def daemon(stopped, **_):
    await stopped.wait()
"""
KINDS: Final = """
for number in range(300):
    on.event(f"loads{number}", id=f"seen{number}")(lambda **_: None)
"""


# -- the server


def make_definition(plural: str) -> dict[str, Any]:
    """Make the definition of a kind."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    names = {"kind": plural.capitalize(), "plural": plural}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.scale.dev"},
        "spec": {"group": "scale.dev", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def make_load(plural: str, name: str, *, namespace: str = "default", padding: str = _PADDING) -> dict[str, Any]:
    """Make an object of 2 kB."""
    metadata = {"name": name, "namespace": namespace, "annotations": {"scale.dev/made-for": "the benchmark"}}
    spec = {"size": 1, "padding": padding}
    return {"apiVersion": "scale.dev/v1", "kind": plural.capitalize(), "metadata": metadata, "spec": spec}


async def _obey(cluster: Cluster, command: dict[str, Any]) -> object:
    """Do what the benchmark says: create objects that look as if handled, where others are, or change some."""
    plural, count = command["plural"], command.get("count", 0)
    if command["do"] == "define":
        await cluster.apply(make_definition(plural))
    elif command["do"] == "apply":
        await cluster.apply(command["manifests"])
    elif command["do"] == "create":
        await _create(cluster, plural, count, namespaces=command.get("namespaces", 0), like=command.get("like", {}))
    elif command["do"] == "change":
        changed = {}
        for number in range(count):
            changed[f"w{number}"] = time.time()
            await cluster.patch(plural, f"w{number}", {"spec": {"size": time.time_ns()}})
            await trio.sleep(0.005)
        return changed
    return None


async def _create(cluster: Cluster, plural: str, count: int, *, namespaces: int, like: dict[str, Any]) -> None:
    """Create objects, up to *count* of them. Where others are, they look like these, else they have what is *like*."""
    found = await cluster.list(plural)
    for number in range(len(found), count):
        namespace = f"n{number % namespaces}" if namespaces else "default"
        made = {**make_load(plural, f"w{number}", namespace=namespace), **like}
        if found:
            kept = {key: found[-1]["metadata"][key] for key in KEPT & found[-1]["metadata"].keys()}
            made = {**found[-1], "metadata": {**made["metadata"], **kept}}
        await cluster.create(made)
        if number % 100 == 0:
            await trio.lowlevel.checkpoint()


async def serve(kubeconfig: pathlib.Path) -> None:
    """Serve a cluster, and obey the commands of the standard input, a line each, until it ends."""
    # With the history of a real server, which is some minutes: watches and lists do not expire.
    cluster = Cluster(managed_fields=False, log_limit=0, history=1_000_000, history_age=600)
    async with trio.open_nursery() as nursery:
        url = await nursery.start(serve_cluster, cluster)
        await trio.Path(kubeconfig).write_text(json.dumps(cluster.kubeconfig(url)))
        print("null", flush=True)
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps(await _obey(cluster, json.loads(line))), flush=True)
        nursery.cancel_scope.cancel(reason="nothing more is to be done")


class AnyServer(Protocol):
    """A server, as operators use it."""

    @property
    def kubeconfig(self) -> pathlib.Path: ...
    @property
    def pid(self) -> int: ...


class Server:
    """The server's process."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        command = [sys.executable, "-m", "tests.bench.scale", str(self.kubeconfig)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._answer()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def _answer(self) -> Any:
        output: IO[str] | None = self._process.stdout
        assert output is not None
        return json.loads(output.readline())

    def do(self, what: str, plural: str = "loads", **options: Any) -> Any:
        """Send a command, and return what has come of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, "plural": plural, **options}) + "\n")
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


# -- operators


class Operator:
    """The process of an operator, from its start on."""

    def __init__(self, server: AnyServer, folder: pathlib.Path, source: str, *options: str) -> None:
        self.journal, self._log = folder / "journal", folder / "log"
        self.journal.write_text("")
        app = folder / "app.py"
        app.write_text(f"JOURNAL = {str(self.journal)!r}\n{HEAD}{source}")
        scope = () if "-n" in options else ("-A",)
        command = [sys.executable, "-m", "trioperator", "run", *scope, "--standalone", *options, str(app)]
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each start compiles what has no bytecode yet
        self._server = server
        self._began = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=environment)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def wait_ready(self) -> float:
        """Wait until it is ready, and idle after that. Returns the seconds since its start until it was idle."""
        deadline = time.monotonic() + _PATIENCE
        while "The operator is ready." not in self._log.read_text():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RunFailed(f"not ready: {self._log.read_text()[-500:]}")
            time.sleep(0.05)
        return self.wait_idle()

    def wait_idle(self) -> float:
        """Wait until it is idle. Returns the seconds since its start."""
        return wait_idle(self.pid, self._server.pid) - self._began

    @property
    def peak_mib(self) -> float:
        """The largest resident memory so far."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))

    def handled(self) -> dict[str, float]:
        """Return when objects were handled last, by their names."""
        lines = (line.split() for line in self.journal.read_text().splitlines())
        return {name: float(at) for name, at in lines}


def wait_idle(*pids: int) -> float:
    """Wait until processes are idle. Returns since when, on the monotonic clock."""
    before, since = sum(map(cpu_seconds, pids)), time.monotonic()
    while True:
        time.sleep(_LULL)
        now = sum(map(cpu_seconds, pids))
        used, before = now - before, now
        if used < _BUSY:
            return since
        since = time.monotonic()


@contextlib.contextmanager
def running(server: AnyServer, source: str, *options: str) -> Iterator[Operator]:
    """Run an operator in the block."""
    with tempfile.TemporaryDirectory(prefix="trioperator-scale-") as folder:
        operator = Operator(server, pathlib.Path(folder), source, *options)
        try:
            yield operator
        finally:
            operator._process.kill()
            operator._process.wait()


@contextlib.contextmanager
def open_server(*plurals: str) -> Iterator[Server]:
    """Run a server with some kinds in the block."""
    with tempfile.TemporaryDirectory(prefix="trioperator-scale-") as folder:
        server = Server(pathlib.Path(folder))
        try:
            for plural in plurals:
                server.do("define", plural)
            yield server
        finally:
            server.close()


# -- scenarios


def measure_idle(server: AnyServer, source: str, *options: str) -> float:
    """Return the memory of an operator without anything to do, in MiB."""
    with running(server, source, *options) as operator:
        operator.wait_ready()
        return resident_mib(operator.pid)


def _measure_changes(server: Server, operator: Operator, what: str, figures: Figures) -> None:
    """Change objects one after the other."""
    operator.journal.write_text("")
    before = cpu_seconds(operator.pid)
    changed = server.do("change", count=_CHANGES)
    operator.wait_idle()
    handled, cpu = operator.handled(), cpu_seconds(operator.pid) - before
    if missing := changed.keys() - handled.keys():
        raise RunFailed(f"{len(missing)} changes were not handled")
    delays = sorted((handled[name] - at) * 1000 for name, at in changed.items())
    p50, p99 = statistics.median(delays), delays[len(delays) * 99 // 100]
    figures.add(f"{what}: a change in each of {_CHANGES}", f"{cpu:.2f} s CPU, {p50:.1f} ms p50, {p99:.1f} ms p99")


def measure_objects(figures: Figures, count: int) -> None:
    """Measure many objects of one kind, with handlers of changes only: a restart, memory, and changes."""
    with open_server("loads") as server:
        idle = measure_idle(server, CHANGES)
        figures.add("an idle operator", f"{idle:.1f} MiB")
        server.do("create", count=1)
        with running(server, CHANGES) as operator:
            operator.wait_ready()
        for number in (_CHANGES, count // 10, count):
            server.do("create", count=number)
            with running(server, CHANGES) as operator:
                wall = operator.wait_ready()
                cpu, memory = cpu_seconds(operator.pid), resident_mib(operator.pid) - idle
                what = f"restart with {number} handled objects"
                peak = operator.peak_mib - idle
                figures.add(what, f"{cpu:.1f} s CPU, {wall:.1f} s, {memory:.1f} MiB above idle, {peak:.1f} at most")
                _measure_changes(server, operator, f"among {number} objects", figures)


def measure_first(figures: Figures, count: int) -> None:
    """Measure the first list, after which each object is handled."""
    with open_server("loads") as server:
        for number in (count // 10, count):
            server.do("create", count=number)
            with running(server, CHANGES) as operator:
                wall = operator.wait_ready()
                new = len(operator.handled())
                cpu = cpu_seconds(operator.pid)
                figures.add(f"first list, {new} new of {number} objects", f"{cpu:.1f} s CPU, {wall:.1f} s")


def measure_kinds(figures: Figures, count: int) -> None:
    """Measure 300 kinds with objects."""
    plurals = [f"loads{number}" for number in range(300)]
    with open_server(*plurals) as server:
        for number in (0, count):
            for plural in plurals:
                server.do("create", plural, count=number)
            with running(server, KINDS) as operator:
                wall = operator.wait_ready()
                cpu, memory = cpu_seconds(operator.pid), resident_mib(operator.pid)
                figures.add(f"300 kinds with {number} objects each", f"{cpu:.1f} s CPU, {wall:.1f} s, {memory:.1f} MiB")


def measure_daemons(figures: Figures, count: int) -> None:
    """Measure daemons on many objects."""
    with open_server("loads") as server:
        idle = measure_idle(server, DAEMON)
        for number in (count // 10, count):
            server.do("create", count=number)
            with running(server, DAEMON) as operator:
                wall = operator.wait_ready()
                cpu, memory = cpu_seconds(operator.pid), resident_mib(operator.pid) - idle
                figures.add(f"{number} daemons", f"{cpu:.1f} s CPU, {wall:.1f} s, {memory:.1f} MiB above idle")


def measure_namespaces(figures: Figures, count: int) -> None:
    """Measure many namespaces with ten objects each: one watch of all, and a watch in each."""
    with open_server("loads") as server:
        ways = {"-A": ("-A",), "a watch in each": ("-n", "n*")}
        idle = measure_idle(server, CHANGES)
        for number in (count // 10, count):
            names = ({"name": f"n{each}"} for each in range(number))
            server.do(
                "apply", manifests=[{"apiVersion": "v1", "kind": "Namespace", "metadata": meta} for meta in names]
            )
            server.do("create", count=1, namespaces=number)
            with running(server, CHANGES) as operator:
                operator.wait_ready()
            server.do("create", count=10 * number, namespaces=number)
            for way, options in ways.items():
                with running(server, CHANGES, *options) as operator:
                    wall = operator.wait_ready()
                    cpu, memory = cpu_seconds(operator.pid), resident_mib(operator.pid) - idle
                    what = f"{number} namespaces with 10 objects each, {way}"
                    figures.add(what, f"{cpu:.1f} s CPU, {wall:.1f} s, {memory:.1f} MiB above idle")


def _measure_in(module: str, name: str = "measure") -> Callable[[Figures, int], None]:
    """Return what measures a scenario that has a module of its own, which uses this one."""

    def measure(figures: Figures, count: int) -> None:
        getattr(importlib.import_module(f"tests.bench.{module}"), name)(figures, count)

    return measure


_SCENARIOS: Final[dict[str, tuple[Callable[[Figures, int], None], int]]] = {
    "objects": (measure_objects, 100_000),
    "first": (measure_first, 10_000),
    "kinds": (measure_kinds, 100),
    "shards": (_measure_in("replicas"), 40_000),
    "daemons": (measure_daemons, 10_000),
    "namespaces": (measure_namespaces, 1000),
    "beside": (_measure_in("beside"), 100_000),
    "beside-new": (_measure_in("beside", "measure_new"), 100_000),
    "foreign": (_measure_in("foreign"), 10_000),
    "streaming": (_measure_in("streaming"), 10_000),
}


def main(arguments: list[str]) -> int:
    """Measure and print. Returns 1 if anything has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench scale", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(_SCENARIOS)}; all by default")
    parser.add_argument("--share", type=float, default=1.0, help="of the objects (default: all, 1.0)")
    options = parser.parse_args(arguments)
    if unknown := set(options.scenarios) - set(_SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    figures, failed = Figures(), False
    for name in options.scenarios or _SCENARIOS:
        measure, count = _SCENARIOS[name]
        try:
            measure(figures, max(1, round(count * options.share)))
        except RunFailed as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    trio.run(serve, pathlib.Path(sys.argv[1]))
