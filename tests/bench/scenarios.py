"""What is measured: each scenario runs one framework once, on an API server without objects, and returns figures."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping

from tests.bench.api import Connection, load_target
from tests.bench.load import LoadResult, run_load
from tests.bench.objects import clear_objects, count_objects
from tests.bench.processes import Framework, OperatorProcess, RunFailed, open_operator
from tests.bench.reviews import run_reviews, write_certificate
from tests.bench.servers import ApiServer, free_ports

Figures = dict[str, float]
"""The figures of one phase by name; seconds, MiB, milliseconds or numbers of requests, as the name says."""

_VERBS = ("get", "list", "watch", "create", "patch", "update", "delete", "rejected")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many objects each scenario takes."""

    objects: int = 1000
    restart_objects: int = 2000
    many_objects: int = 10_000
    events: int = 5000
    single_objects: int = 200
    indexed_objects: int = 10_000

    def scaled(self, objects: int) -> Sizes:
        """Scale all with the number of objects of the first scenario; nothing falls below 10."""
        factor = objects / self.objects
        changed = {field.name: max(10, round(getattr(self, field.name) * factor)) for field in dataclasses.fields(self)}
        return Sizes(**changed)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One framework in one scenario of one round."""

    framework: Framework
    server: ApiServer
    style: str
    sizes: Sizes
    folder: pathlib.Path

    @contextlib.contextmanager
    def operator(self, handlers: str, *, part: str = "operator", **variables: str) -> Iterator[OperatorProcess]:
        """Start the operator, and stop it in order at the end; an exit code other than 0 fails the run."""
        with open_operator(
            self.framework,
            kubeconfig=self.server.operator_kubeconfig,
            handlers=handlers,
            style=self.style,
            folder=self.folder / part,
            variables=variables,
        ) as operator:
            yield operator
            code, _ = operator.stop()
            if code != 0:
                raise RunFailed(f"{self.framework.name} was stopped and ended with code {code}:\n{operator.tail()}")

    def load(
        self, operation: str, count: int, *, concurrency: int = 20, repeats: int = 1, pause: float = 0.0
    ) -> LoadResult:
        """Send requests to the API server."""
        return run_load(self.server.kubeconfig, operation, count, concurrency=concurrency, repeats=repeats, pause=pause)

    def wait_until_gone(self, *, timeout: float = 120.0) -> None:
        """Wait until no object is left."""
        connection = Connection(load_target(self.server.kubeconfig))
        deadline = time.monotonic() + timeout
        while (left := count_objects(connection)) and time.monotonic() < deadline:
            time.sleep(0.1)
        connection.close()
        if left:
            raise RunFailed(f"{left} objects are not gone after {timeout:.0f} s")


class _Phase:
    """Readings at the beginning of a phase, and what they have become at its end."""

    def __init__(self, run: Run, operator: OperatorProcess, *, from_start: bool = False) -> None:
        self._run, self._operator = run, operator
        self._requests = self._count()
        self._cpu = 0.0 if from_start else operator.cpu()

    def _count(self) -> collections.Counter[str]:
        read = self._run.server.read_requests
        return collections.Counter() if read is None else read()

    def end(self, *, began: int, what: str) -> Figures:
        """Read CPU, memory and requests once the operator is idle; the wall time ends with the last call of *what*."""
        self._operator.wait_until_idle()
        cpu = self._operator.cpu() - self._cpu
        last = max(at for (kind, _), at in self._operator.journal.first.items() if kind == what)
        figures = {"cpu s": cpu, "wall s": (last - began) / 1e9, "memory MiB": self._operator.memory()}
        if self._run.server.read_requests is not None:
            requests = self._count() - self._requests
            figures |= {verb: requests[verb] for verb in _VERBS}
        return figures


def _delays(load: LoadResult, operator: OperatorProcess, what: str) -> Figures:
    """Sum up how long after the API server's response the handler was called, in milliseconds."""
    called = operator.journal.first
    delays = [(called[what, name] - at) / 1e6 for name, at in load.answered.items()]
    cuts = statistics.quantiles(delays, n=100, method="inclusive")
    return {"p50 ms": cuts[49], "p99 ms": cuts[98]}


def measure_start(run: Run) -> dict[str, Figures]:
    """Measure what it takes to import the framework, to print the help, and to run with nothing to do."""
    python, name = str(run.framework.python), run.framework.name
    environment = {**os.environ, **run.framework.environment}
    show_memory = "; import pathlib; print(pathlib.Path('/proc/self/status').read_text())"
    imported = _run_often([python, "-c", f"import {name}{show_memory}"], environment)
    helped = _run_often([*run.framework.command, "--help"], environment)
    helped.pop("memory MiB", None)
    with run.operator("lifecycle") as operator:
        operator.wait_until_idle(quiet=2.0)
        idle = {"cpu s": operator.cpu(), "memory MiB": operator.memory()}
        before, began = operator.cpu(), time.monotonic()
        time.sleep(5)
        idle["cpu ms per idle s"] = (operator.cpu() - before) * 1000 / (time.monotonic() - began)
    return {"import": imported, "--help": helped, "idle": idle}


def _run_often(command: list[str], environment: Mapping[str, str], *, times: int = 5) -> Figures:
    """Run a short command several times; the least CPU counts, since the rest is noise."""
    cpu, memory = [], []
    for _ in range(times):
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RunFailed(f"{' '.join(command)} ended with code {process.returncode}:\n{output[-2000:]}")
        cpu.append(usage.ru_utime + usage.ru_stime)
        memory += [int(line.split()[1]) / 1024 for line in output.splitlines() if line.startswith("VmRSS:")]
    figures = {"cpu s": min(cpu)}
    return figures | {"memory MiB": min(memory)} if memory else figures


def measure_lifecycle(run: Run) -> dict[str, Figures]:
    """Create, update and delete objects; each is handled, and each deletion waits for its handler."""
    phases: dict[str, Figures] = {}
    count = run.sizes.objects
    with run.operator("lifecycle") as operator:
        operator.wait_until_idle()
        at_start = operator.memory()
        for operation in ("create", "update", "delete"):
            phase = _Phase(run, operator)
            load = run.load(operation, count)
            operator.wait_for(operation, count)
            if operation == "delete":
                run.wait_until_gone()
            phases[operation] = phase.end(began=load.began, what=operation)
            phases[operation] |= {f"busy {name}": value for name, value in _delays(load, operator, operation).items()}
            if (calls := operator.journal.counts[operation]) != count:
                phases[operation]["calls beyond one each"] = calls - count
        at_end = operator.memory()
    phases["memory"] = {"start MiB": at_start, "growth MiB": at_end - at_start}
    return phases


def measure_restart(run: Run) -> dict[str, Figures]:
    """Start with objects that are all handled already; each is seen by the handler for resuming."""
    return {"restart": _restart(run, run.sizes.restart_objects)}


def measure_big_restart(run: Run) -> dict[str, Figures]:
    """Do the same with many objects."""
    return {"big restart": _restart(run, run.sizes.many_objects)}


def _restart(run: Run, count: int) -> Figures:
    with run.operator("lifecycle", part="before") as operator:
        operator.wait_until_idle()
        run.load("create", count)
        operator.wait_for("create", count)
        operator.wait_until_idle()
    with run.operator("resume") as operator:
        phase = _Phase(run, operator, from_start=True)
        operator.wait_for("resume", count)
        return phase.end(began=operator.started_at, what="resume")


def measure_events(run: Run) -> dict[str, Figures]:
    """Change objects that only a handler of raw watch events looks at, each change long enough after the one before."""
    objects = max(10, run.sizes.events // 5)
    with run.operator("events") as operator:
        operator.wait_until_idle()
        run.load("create", objects)
        operator.wait_for("event", objects)
        operator.wait_until_idle()
        operator.journal.forget()
        phase = _Phase(run, operator)
        load = run.load("update", objects, repeats=5)
        operator.wait_for("event", objects)
        figures = phase.end(began=load.began, what="event")
        figures["handled events"] = operator.journal.counts["event"]
        figures["cpu ms per event"] = figures["cpu s"] * 1000 / (objects * 5)
    return {"events": figures}


def measure_latency(run: Run) -> dict[str, Figures]:
    """Create objects one by one, and compare the time of each response with the time of the handler's call."""
    count = run.sizes.single_objects
    phases: dict[str, Figures] = {}
    with run.operator("lifecycle") as operator:
        operator.wait_until_idle()
        for operation in ("create", "update"):
            load = run.load(operation, count, concurrency=1, pause=0.05)
            operator.wait_for(operation, count)
            phases[f"{operation} one by one"] = _delays(load, operator, operation)
            operator.wait_until_idle()
    return phases


def measure_indexing(run: Run) -> dict[str, Figures]:
    """Start with objects that are all to be indexed before the first of them is handled; with growing numbers."""
    phases: dict[str, Figures] = {}
    for part in (10, 2, 1):
        count = run.sizes.indexed_objects // part
        clear_objects(run.server.kubeconfig)
        run.load("create", count)
        with run.operator("indexing", part=f"{count}") as operator:
            phase = _Phase(run, operator, from_start=True)
            operator.wait_for("ready", 1)
            phases[f"index {count}"] = phase.end(began=operator.started_at, what="ready")
    return phases


def measure_daemons(run: Run) -> dict[str, Figures]:
    """Measure a daemon for each object, from its spawning to the deletion of the object."""
    phases: dict[str, Figures] = {}
    count = run.sizes.objects
    with run.operator("daemons") as operator:
        operator.wait_until_idle()
        at_start = operator.memory()
        phase = _Phase(run, operator)
        load = run.load("create", count)
        operator.wait_for("spawn", count)
        phases["spawn daemons"] = phase.end(began=load.began, what="spawn")
        phases["spawn daemons"]["growth MiB"] = operator.memory() - at_start
        phase = _Phase(run, operator)
        load = run.load("delete", count)
        operator.wait_for("stop", count)
        run.wait_until_gone()
        phases["stop daemons"] = phase.end(began=load.began, what="stop")
    return phases


def measure_timers(run: Run) -> dict[str, Figures]:
    """Measure a timer for each object that is called each second, for some seconds."""
    count, seconds = run.sizes.objects, 10
    with run.operator("timers") as operator:
        operator.wait_until_idle()
        run.load("create", count)
        operator.wait_for("tick", count)
        time.sleep(3)  # until what came with the creation is over
        operator.journal.forget()
        cpu, began = operator.cpu(), time.monotonic()
        time.sleep(seconds)
        cpu, passed = operator.cpu() - cpu, time.monotonic() - began
        operator.journal.read()
        ticks = operator.journal.counts["tick"]
        figures = {"cpu s per s": cpu / passed, "ticks per s": ticks / passed, "cpu ms per tick": cpu * 1000 / ticks}
        figures["memory MiB"] = operator.memory()
        run.load("delete", count)  # an operator with as many timers may not stop in time
        run.wait_until_gone()
    return {"timers": figures}


def measure_admission(run: Run) -> dict[str, Figures]:
    """Measure reviews by one validating handler: over some connections at once, then one after another."""
    count, files, port = run.sizes.objects, write_certificate(run.folder), free_ports(1)[0]
    phases: dict[str, Figures] = {}
    with run.operator("admission", BENCH_PORT=str(port), BENCH_CERT=files["cert"], BENCH_KEY=files["key"]) as operator:
        run_reviews(port, files["ca"], 100, connections=10, wait=30.0)
        operator.wait_until_idle()
        for name, connections in (("reviews", 10), ("reviews one by one", 1)):
            operator.journal.forget()
            phase = _Phase(run, operator)
            reviews = run_reviews(port, files["ca"], count, connections=connections)
            operator.wait_for("validate", count)
            phases[name] = phase.end(began=reviews.began, what="validate") | reviews.figures
    return phases


SCENARIOS: Mapping[str, Callable[[Run], dict[str, Figures]]] = {
    "start": measure_start,
    "lifecycle": measure_lifecycle,
    "restart": measure_restart,
    "big-restart": measure_big_restart,
    "events": measure_events,
    "latency": measure_latency,
    "indexing": measure_indexing,
    "daemons": measure_daemons,
    "timers": measure_timers,
    "admission": measure_admission,
}

FOR_PROGRAMS = frozenset({"lifecycle", "restart", "big-restart", "events", "latency"})
"""The scenarios that a peer's program knows."""

ONE_STYLE = frozenset({"start", "daemons"})
"""The scenarios that are the same in both styles: daemons are always async, since each sync one takes a thread."""
