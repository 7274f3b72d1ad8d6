"""Very many objects, beside a peer: ``BENCH_PEER=… python -m tests.bench scale beside beside-new``.

The peer is a program as the README has it. For a restart, both have handled one object before, of which all others are
copies, and call a handler for each of them when they start. For a first list, each has a server of its own with new
objects, to which it adds a finalizer and what was handled. Without a peer, trioperator is measured alone. It posts no
Kubernetes Events about what it logs, as in the rest of the benchmark: the peer has none. Nor does that log a line for
each object, so restarts are also measured without that (``--quiet``).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Final

from tests.bench import scale
from tests.bench.figures import Figures
from tests.bench.objects import PEER
from tests.bench.processes import RunFailed, cpu_seconds, resident_mib

_PLURAL: Final = "kopfexamples"
_ROUNDS: Final = 2
_PATIENCE: Final = 600.0
_QUIET: Final = ("--quiet",)  # the peer logs nothing about single objects, trioperator a line for each
_EXAMPLE: Final = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample"}
_CHANGES: Final = """
import os
out = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND)

@on.startup()
def configure(settings, **_):
    settings.posting.enabled = False

def mark(what, name):
    os.write(out, f"{name} {time.time():.6f}\\n".encode())

@on.create("kopfexamples")
@on.update("kopfexamples")
async def change(name, **_):
    mark("change", name)

@on.delete("kopfexamples")
async def delete(name, **_):
    mark("delete", name)
"""
_RESUME: Final = """
@on.resume("kopfexamples")
async def resume(name, **_):
    mark("resume", name)
"""


def _make_definition() -> dict[str, Any]:
    """Make the definition of the peer's kind, with a status that can be created."""
    made = scale.make_definition(_PLURAL)
    made["metadata"]["name"] = f"{_PLURAL}.kopf.dev"
    made["spec"]["group"] = "kopf.dev"
    made["spec"]["names"] = {"kind": "KopfExample", "plural": _PLURAL}
    return made


class _Peer:
    """The process of the peer."""

    def __init__(self, program: str, server: scale.Server, folder: pathlib.Path, role: str) -> None:
        self.out = folder / "out"
        self.out.write_text("")
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "ROLE": role, "OUT": str(self.out)}
        self._server = server
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen([program], stdout=log, stderr=subprocess.STDOUT, env=environment)
        self.pid = self.process.pid

    def wait_idle(self) -> None:
        """Wait until it and the server have nothing to do."""
        scale.wait_idle(self.pid, self._server.pid)


@contextlib.contextmanager
def _running_peer(program: str | None, server: scale.Server, role: str = "resume") -> Iterator[_Peer]:
    assert program
    with tempfile.TemporaryDirectory(prefix="trioperator-scale-") as folder:
        peer = _Peer(program, server, pathlib.Path(folder), role)
        try:
            time.sleep(2)
            peer.wait_idle()
            yield peer
        finally:
            peer.process.kill()
            peer.process.wait()


def _wait_for_lines(path: pathlib.Path, count: int) -> None:
    """Wait until so many handlers were called: on a busy machine, a process may look idle that has to wait."""
    deadline = time.monotonic() + _PATIENCE
    while (lines := path.read_bytes().count(b"\n")) < count:
        if time.monotonic() > deadline:
            raise RunFailed(f"{lines} of {count} objects were handled")
        time.sleep(0.5)


def measure(figures: Figures, count: int) -> None:
    """Measure restarts of both, by turns."""
    with scale.open_server() as server:
        server.do("apply", manifests=[_make_definition()])
        server.do("apply", manifests=[{**scale.make_load(_PLURAL, "w0"), **_EXAMPLE}])
        if PEER:
            with _running_peer(PEER, server):
                pass
        with scale.running(server, _CHANGES) as operator:
            operator.wait_ready()
        definition = _make_definition()
        del definition["spec"]["versions"][0]["subresources"]  # so that objects are created with their status
        server.do("apply", manifests=[definition])
        server.do("create", _PLURAL, count=count)
        server.do("apply", manifests=[_make_definition()])
        for _ in range(_ROUNDS):
            _measure_ours(figures, server, "changes", _CHANGES, count)
            _measure_ours(figures, server, "resuming", _CHANGES + _RESUME, count)
            _measure_ours(figures, server, "resuming quietly", _CHANGES + _RESUME, count, *_QUIET)
            if PEER:
                _measure_peer(figures, server, "resumed", count)


def measure_new(figures: Figures, count: int) -> None:
    """Measure the first list of new objects, each of which is written to: by both, on a server each."""
    with _open_new(count) as server:
        _measure_ours(figures, server, "new", _CHANGES, count)
    if PEER:
        with _open_new(count) as server:
            _measure_peer(figures, server, "new", count, role="storm")


@contextlib.contextmanager
def _open_new(count: int) -> Iterator[scale.Server]:
    with scale.open_server() as server:
        server.do("apply", manifests=[_make_definition()])
        server.do("create", _PLURAL, count=count, like=_EXAMPLE)
        yield server


def _measure_peer(figures: Figures, server: scale.Server, what: str, count: int, *, role: str = "resume") -> None:
    with _running_peer(PEER, server, role) as peer:
        _wait_for_lines(peer.out, count)
        peer.wait_idle()
        marks = len(peer.out.read_text().splitlines())
        cpu, memory = cpu_seconds(peer.pid), resident_mib(peer.pid)
        figures.add(f"the peer, {marks} {what} of {count}", f"{cpu:.1f} s CPU, {memory:.0f} MiB")


def _measure_ours(figures: Figures, server: scale.Server, what: str, source: str, count: int, *options: str) -> None:
    with scale.running(server, source, *options) as operator:
        if not options:  # else it does not log that it is ready
            operator.wait_ready()
        if what != "changes":
            _wait_for_lines(operator.journal, count)
            operator.wait_idle()
        cpu, memory = cpu_seconds(operator.pid), resident_mib(operator.pid)
        called = len(operator.handled())
        figures.add(f"trioperator, {what}, {called} called of {count}", f"{cpu:.1f} s CPU, {memory:.0f} MiB")
