"""Figures of the embedded API server: ``python -m tests.bench embedded``.

`trioperator cluster` runs in a process of its own; what is measured is its CPU time, its memory, and the wall time.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import trio

from tests.bench.api import MERGE_PATCH
from tests.bench.processes import cpu_seconds, resident_mib
from tests.bench.wire import Wire, open_wire, watch_stamps

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLLECTION = "/api/v1/namespaces/default/configmaps"
_CONNECTIONS = 20
_PAGE = 500


@dataclasses.dataclass(slots=True)
class Figures:
    """What was measured: lines of a table."""

    lines: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def add(self, what: str, value: str) -> None:
        """Add a line, and show it at once."""
        self.lines.append((what, value))
        print(f"| {what} | {value} |", flush=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server: its process, and its kubeconfig."""

    pid: int
    kubeconfig: pathlib.Path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Results of watchers: when the last of them had all events, and how late each event was, in nanoseconds."""

    ended: int
    delays: list[int]


@contextlib.contextmanager
def open_server(folder: pathlib.Path, *options: str) -> Iterator[Server]:
    """Run the command until it is not needed any more."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "trioperator", "cluster", "--kubeconfig", str(kubeconfig), *options]
    log = folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            if not any("Ctrl-C stops it." in line for line in process.stdout):
                sys.exit(f"the server has not started: {log.read_text()}")
            yield Server(pid=process.pid, kubeconfig=kubeconfig)
        finally:
            process.terminate()


def body_of(name: str, size: int) -> bytes:
    """Make an object whose JSON has about this size."""
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "bench"}}}
    filler = "x" * max(size - 330, 0)  # what the server adds is part of the size
    return json.dumps(obj | {"data": {"filler": filler, "stamp": "0"}}).encode()


class Benchmark:
    """One server under load."""

    def __init__(self, server: Server, figures: Figures, options: argparse.Namespace) -> None:
        self._server = server
        self._figures = figures
        self._objects: int = options.objects
        self._size: int = options.size
        self._watchers: int = options.watchers

    async def run(self) -> None:
        """Measure everything that needs no restart."""
        self.note_memory("memory at the start")
        await self.measure("create", self._objects, self._create)
        self.note_memory(f"memory with {self._objects:,} objects")
        await self.measure("get", self._objects, self._get)
        await self.measure("patch (merge)", self._objects, self._patch)
        await self.measure_list("list, in pages of 500", 10, partial(self._list, limit=_PAGE))
        await self.measure_list("list, at once", 10, partial(self._list, limit=0))
        await self.measure_initial()
        await self.measure_fan_out(changes=1000, pause=0)
        await self.measure_fan_out(changes=100, pause=0.05)
        self.note_memory(f"memory after all that, {self._watchers} watchers included")

    def note_memory(self, what: str) -> None:
        """Note the memory of the server."""
        self._figures.add(what, f"{resident_mib(self._server.pid):.0f} MiB")

    @contextlib.asynccontextmanager
    async def wires(self, count: int) -> AsyncIterator[list[Wire]]:
        """Open connections."""
        yield [await open_wire(self._server.kubeconfig) for _ in range(count)]

    async def measure(self, what: str, count: int, act: Callable[[Wire, int], Awaitable[object]]) -> None:
        """Send so many requests over several connections, and note how many there are in a second."""
        numbers = iter(range(count))

        async def work(wire: Wire) -> None:
            for number in numbers:
                await act(wire, number)

        async with self.wires(_CONNECTIONS) as wires:
            cpu, wall = cpu_seconds(self._server.pid), time.monotonic()
            async with trio.open_nursery() as nursery:
                for wire in wires:
                    nursery.start_soon(work, wire)
            cpu, wall = cpu_seconds(self._server.pid) - cpu, time.monotonic() - wall
        self._figures.add(what, f"{count / wall:,.0f} per second, {cpu / count * 1e6:.0f} µs of CPU time each")

    async def measure_list(self, what: str, count: int, act: Callable[[Wire], Awaitable[object]]) -> None:
        """List all objects so many times."""
        async with self.wires(1) as [wire]:
            cpu, wall = cpu_seconds(self._server.pid), time.monotonic()
            for _ in range(count):
                await act(wire)
            cpu, wall = cpu_seconds(self._server.pid) - cpu, time.monotonic() - wall
        rate = self._objects * count / wall
        text = f"{wall / count * 1e3:.0f} ms, {rate:,.0f} objects per second, {cpu / count * 1e3:.0f} ms of CPU time"
        self._figures.add(what, text)

    async def measure_initial(self) -> None:
        """Begin watches that send the initial list first."""
        path = f"{COLLECTION}?watch=1"
        async with self.watching(path, events=self._objects) as result:
            cpu, wall = cpu_seconds(self._server.pid), time.monotonic_ns()
            found = await result()
        seconds = (found.ended - wall) / 1e9
        cpu = cpu_seconds(self._server.pid) - cpu
        events = self._objects * self._watchers
        text = (
            f"{seconds:.1f} s, {events / seconds:,.0f} events per second, {cpu / events * 1e6:.1f} µs of CPU time each"
        )
        self._figures.add(f"{self._watchers} watchers get all objects", text)

    async def measure_fan_out(self, *, changes: int, pause: float) -> None:
        """Change objects while all watch, and note how many events there are and how late they come."""
        async with self.wires(1 if pause else 4) as wires:
            answer = await wires[0].request("GET", f"{COLLECTION}?limit=1")
            version = json.loads(answer)["metadata"]["resourceVersion"]
            async with self.watching(f"{COLLECTION}?watch=1&resourceVersion={version}", events=changes) as result:
                cpu, began = cpu_seconds(self._server.pid), time.monotonic_ns()
                numbers = iter(range(changes))
                async with trio.open_nursery() as nursery:
                    for wire in wires:
                        nursery.start_soon(self._change, wire, numbers, pause)
                found = await result()
                cpu = cpu_seconds(self._server.pid) - cpu
        events = changes * self._watchers
        seconds = (found.ended - began) / 1e9
        delays = sorted(found.delays)
        p50, p99 = (delays[len(delays) * percent // 100] / 1e6 for percent in (50, 99))
        late = f"{p50:.1f} ms late in the median, {p99:.1f} ms at p99"
        if pause:
            self._figures.add(f"{1 / pause:.0f} changes per second, {self._watchers} watchers", late)
        else:
            text = f"{events / seconds:,.0f} events per second, {cpu / events * 1e6:.1f} µs of CPU time each, {late}"
            self._figures.add(f"{changes:,} changes at once, {self._watchers} watchers", text)

    @contextlib.asynccontextmanager
    async def watching(self, path: str, *, events: int) -> AsyncIterator[Callable[[], Awaitable[Delays]]]:
        """Watch in a process of its own; the function that is given waits for its end."""
        command = [sys.executable, "-m", "tests.bench.figures", "--watch", str(self._server.kubeconfig), path]
        command += [str(self._watchers), str(events)]
        process = await trio.lowlevel.open_process(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        output = b""
        while b"ready\n" not in output:
            output += bytes(await process.stdout.receive_some())

        async def result() -> Delays:
            nonlocal output
            assert process.stdout is not None
            async for data in process.stdout:
                output += bytes(data)
            return Delays(**json.loads(output.partition(b"ready\n")[2]))

        try:
            yield result
        finally:
            process.kill()

    # -- single requests ------------------------------------------------------------------------------------------

    async def _create(self, wire: Wire, number: int) -> None:
        await wire.request("POST", COLLECTION, body_of(f"n{number:05}", self._size))

    async def _get(self, wire: Wire, number: int) -> None:
        await wire.request("GET", f"{COLLECTION}/n{number:05}")

    async def _patch(self, wire: Wire, number: int) -> None:
        body = b'{"data":{"stamp":"%d"}}' % time.monotonic_ns()
        await wire.request("PATCH", f"{COLLECTION}/n{number:05}", body, content_type=MERGE_PATCH)

    async def _change(self, wire: Wire, numbers: Iterator[int], pause: float) -> None:
        for number in numbers:
            await self._patch(wire, number % self._objects)
            if pause:
                await trio.sleep(pause)

    async def _list(self, wire: Wire, *, limit: int) -> None:
        token, found = "", 0
        while True:
            query = f"?limit={limit}&continue={token}" if limit else ""
            page = await wire.request("GET", f"{COLLECTION}{query}")
            meta = json.loads(page[page.index(b'"metadata":') + 11 : page.index(b',"items"')])
            found += page.count(b'"filler"')
            token = meta.get("continue", "")
            if not token:
                break
        assert found == self._objects, found


def measure_start(figures: Figures) -> None:
    """Note how long a cluster takes to be there: in a program, and as a process."""
    code = (
        "import time; began = time.process_time()\n"
        "import trio; from trioperator.apiserver import Cluster, serve_cluster; imported = time.process_time()\n"
        "async def main():\n"
        "    begun = time.perf_counter()\n"
        "    async with trio.open_nursery() as nursery:\n"
        "        await nursery.start(serve_cluster, Cluster())\n"
        "        print(imported - began, time.perf_counter() - begun)\n"
        "        nursery.cancel_scope.cancel()\n"
        "trio.run(main)"
    )
    times = []
    for _ in range(7):
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        times.append([float(text) * 1e3 for text in done.stdout.split()])
    imported, started = (min(column) for column in zip(*times, strict=True))
    figures.add("start in a program", f"{started:.0f} ms, and {imported:.0f} ms of CPU time for the imports")
    for name, options in (("by TLS", ()), ("without TLS", ("--no-tls",))):
        figures.add(f"start of the command, {name}", min(_measure_command(*options) for _ in range(5)).text)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class _Start:
    cpu: float
    wall: float

    @property
    def text(self) -> str:
        return f"{self.wall * 1e3:.0f} ms, {self.cpu * 1e3:.0f} ms of CPU time"


def _measure_command(*options: str) -> _Start:
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with open_server(pathlib.Path(folder), *options) as server:
            return _Start(cpu_seconds(server.pid), time.monotonic() - began)


async def measure_data_file(folder: pathlib.Path, figures: Figures, options: argparse.Namespace) -> None:
    """Note what a data file costs, and how long it takes to be read."""
    data = folder / "data"
    arguments = ("--no-tls", "--data", str(data))
    with open_server(folder, *arguments) as server:
        bench = Benchmark(server, figures, options)
        await bench.measure("create, with a data file", options.objects, bench._create)
        await bench.measure("patch, with a data file", options.objects, bench._patch)
    size = data.stat().st_size / 2**20
    figures.add(
        f"start with this data file of {size:.0f} MiB", min(_measure_command(*arguments) for _ in range(3)).text
    )


def main(arguments: list[str]) -> int:
    """Measure and print a table in Markdown."""
    if arguments[:1] == ["--watch"]:
        kubeconfig, path, watchers, events = arguments[1:]
        trio.run(partial(watch_stamps, pathlib.Path(kubeconfig), path, watchers=int(watchers), events=int(events)))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.bench embedded", description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=2048, help="bytes of each object (default: %(default)s)")
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--tls", action="store_true", help="serve by TLS")
    options = parser.parse_args(arguments)
    figures = Figures()
    print(f"Python {platform.python_version()}, {options.objects:,} objects of {options.size:,} bytes\n")
    print("| what | |\n|---|---|")
    with tempfile.TemporaryDirectory(prefix="trioperator-bench-") as name:
        folder = pathlib.Path(name)
        measure_start(figures)
        with open_server(folder, *(() if options.tls else ("--no-tls",))) as server:
            trio.run(Benchmark(server, figures, options).run)
        trio.run(measure_data_file, folder, figures, options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
