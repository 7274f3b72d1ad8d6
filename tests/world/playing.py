"""One operator's life on a cluster of its own: its process, what happens to its objects, and what is stored then."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import trio
import yaml

from tests.world.servers import Plane, open_embedded, open_plane
from tests.world.states import normalize
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError

MODES: Final = ("kopf", "bridge", "native")
_MODULES: Final = {"kopf": "kopf", "bridge": "trioperator.kopf", "native": "trioperator"}
# Seconds until a step must have done what it does, without changes until it counts as done, and until a stop is one.
_PATIENCE, _QUIET, _STOP = 60.0, 3.0, 40.0
# Seconds until an operator must have started, and a step must have done what it does where the machine is busy.
_LONGEST: Final = 300.0
# Parts of the quiet time. The clusters are served by the same event loop, and answer nobody while it is busy: however
# long that takes, it counts as one part.
_PARTS: Final = 12
# The part of the quiet time for which a process that is done may run or wait for a CPU, as by its timers.
_IDLE: Final = 0.3
# Seconds until a handler that has failed is called again, and what it needs then; what is stored until then.
_RETRY: Final = 75.0
_RETRIES: Final = re.compile(r'delayed\\*": ?\\*"\d')
_ROOT: Final = pathlib.Path(__file__).parents[2]
RESULTS: Final = _ROOT / "build" / "world"
#: Folders with what single operators import in other versions than the rest, each with the name of its operator.
APART: Final = RESULTS / "apart"
# What the page about Kopf says of operators that take over: Kopf's names, natively.
_TAKEOVER: Final = """
import trioperator

@trioperator.on.startup(id="takeover")
def take_over(settings):
    settings.persistence.finalizer = "kopf.zalando.org/KopfFinalizerMarker"
    settings.persistence.progress_storage = trioperator.SmartProgressStorage(prefix="kopf.zalando.org", name="kopf")
    settings.persistence.diffbase_storage = trioperator.AnnotationsDiffBaseStorage(prefix="kopf.zalando.org")
"""
_SCRIPT: Final = "import runpy, sys, {0} as m; {1}; sys.argv.pop(0); runpy.{2}(sys.argv[0], run_name='__main__'{3})"


@dataclasses.dataclass
class Cost:
    """What a process has cost."""

    cpu: float = 0.0
    memory: float = 0.0
    stopped_in: float = 0.0
    exit_code: int | None = None
    ended_itself: bool = False


class Play:
    """An operator on a cluster, in one of the modes. *root* is its checkout, and *home* a folder of its own."""

    def __init__(self, cluster: Cluster | Plane, mode: str, root: pathlib.Path, home: pathlib.Path) -> None:
        self.cluster, self.mode, self.root, self.home = cluster, mode, root, home
        self.environment = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONFAULTHANDLER": "1"}
        self.environment["PYTHONHASHSEED"] = "0"  # some write sets of strings as lists
        self.masks: list[str] = []
        #: Whether each step lasts until no handler is about to be called again, and what is deleted has gone: for
        #: operators whose handlers fail at times, as their writes race with others, also under Kopf, and for daemons,
        #: whose end Kopf sees up to a minute later.
        self.patient = False
        #: Whether Kopf's names of annotations and finalizer are configured natively: not if an operator has its own.
        self.takes_over = True
        #: Whether the operator watches anything, as those with nothing but webhooks need not.
        self.watches = True
        self.states: dict[str, list[str]] = {}
        self.costs: list[Cost] = []
        self.process: trio.Process | None = None
        #: Whether the cluster is a real control plane.
        self.is_real = isinstance(cluster, Plane)
        self._skipped: set[str] = set()
        self._before = [obj["metadata"]["uid"] for obj in cluster.objects()]

    def skip(self, *kinds: str) -> None:
        """Leave objects of these kinds out of the states, as no two runs have the same."""
        self._skipped |= {*kinds}

    @property
    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace") if (self.home / "log").exists() else ""

    def put(self, name: str, text: str) -> pathlib.Path:
        """Write a program into the folder that is first in the PATH of the operator."""
        path = self.home / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def add_certificate(self) -> None:
        """Write a client certificate into the kubeconfig, beside the token."""
        path = self.home / "kubeconfig"
        config = yaml.safe_load(path.read_text())
        more = self.cluster.kubeconfig(config["clusters"][0]["cluster"]["server"], certificate=True)
        config["users"][0]["user"] |= more["users"][0]["user"]
        path.write_text(yaml.safe_dump(config))

    async def apply(self, *manifests: str | pathlib.Path | Mapping[str, Any]) -> None:
        """Apply files of the checkout, YAML texts, or objects."""
        for manifest in manifests:
            if isinstance(manifest, str) and "\n" not in manifest:
                manifest = self.root / manifest
            if isinstance(manifest, pathlib.Path):
                manifest = manifest.read_text()
            if isinstance(manifest, str):
                await self.cluster.apply([obj for obj in yaml.safe_load_all(manifest) if obj])
            else:
                await self.cluster.apply(manifest)

    async def refusal(self, manifest: Mapping[str, Any] | None, *deleted: str) -> str:
        """Return why the API server refuses to apply an object, or to delete one."""
        try:
            await (self.cluster.delete(*deleted) if manifest is None else self.cluster.apply(manifest))
        except ApiError as error:
            return str(error)
        return "not refused"

    async def add_namespaces(self, *names: str) -> None:
        await self.apply(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names))

    @contextlib.asynccontextmanager
    async def running(self, *args: str, cwd: str = ".") -> AsyncIterator[None]:
        """Run ``kopf run ARGS``, or the command that takes its place, in the block. Its files are in the checkout."""
        more = [str(self._write_takeover())] if self.mode == "native" and self.takes_over else []
        async with self._process([sys.executable, "-m", _MODULES[self.mode], "run", *args, *more], cwd):
            yield

    def _write_takeover(self) -> pathlib.Path:
        path = self.home / "takeover.py"
        path.write_text(_TAKEOVER)
        return path

    @contextlib.asynccontextmanager
    async def executing(self, *args: str, cwd: str = ".", is_module: bool = False) -> AsyncIterator[None]:
        """Run a Python program that runs its operator itself in the block, where ``import kopf`` is by the mode.

        Natively, one with options of the command ``run`` gets a file more.
        """
        if self.mode == "native" and "run" in args:
            end = args.index("--") if "--" in args else len(args)
            args = (*args[:end], str(self._write_takeover()), *args[end:])
        prepare = "m.install()" if self.mode == "bridge" else "m"
        call = ("run_module", ", alter_sys=True") if is_module else ("run_path", "")
        script = _SCRIPT.format(_MODULES[self.mode], prepare, *call)
        async with self._process([sys.executable, "-c", script, *args], cwd):
            yield

    @contextlib.asynccontextmanager
    async def _process(self, command: Sequence[str], cwd: str) -> AsyncIterator[None]:
        folder = self.root / cwd
        env = {**os.environ, **self.environment, "KUBECONFIG": str(self.home / "kubeconfig"), "HOME": str(self.home)}
        paths = [*filter(None, [self.environment.get("PYTHONPATH")])]
        if "PYTHONSAFEPATH" not in self.environment:
            paths.insert(0, str(folder))
        paths += [str(APART / self.home.name.rpartition(".")[0]), str(_ROOT)]
        env |= {"PATH": f"{self.home / 'bin'}:{env['PATH']}", "PYTHONPATH": os.pathsep.join(paths)}
        with (self.home / "log").open("ab") as log:
            process = await trio.lowlevel.open_process(
                list(command), env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            self.process = process
            try:
                await self._wait_ready(process)
                yield
                await self._stop(process)
            finally:
                if process.returncode is None:
                    process.kill()

    async def _wait_ready(self, process: trio.Process) -> None:
        """Wait until the operator watches something, and has handled what there was, or has ended."""
        watches = self.cluster.requests.count(verb="watch")
        with trio.move_on_after(_LONGEST if self.watches else 0):
            while self.cluster.requests.count(verb="watch") == watches and process.poll() is None:  # noqa: ASYNC110
                await trio.sleep(0.1)  # neither the log of requests nor the end of processes are events
        await self.settle()

    async def _stop(self, process: trio.Process) -> None:
        self.costs.append(cost := measure(process))
        began = trio.current_time()
        cost.ended_itself = process.poll() is not None
        if not cost.ended_itself:
            process.send_signal(signal.SIGTERM)
        with trio.move_on_after(_STOP):
            await process.wait()
        cost.stopped_in, cost.exit_code = trio.current_time() - began, process.returncode

    async def settle(self, quiet: float = _QUIET) -> None:
        """Wait until nothing has been written for *quiet* seconds, by an operator that has nothing to do.

        Wait also for what is to be collected as garbage: real control planes learn of new kinds every 30 seconds. If
        *patient*, also for what is put off. An operator that is busy and writes nothing for a minute asks in a loop.
        """
        start = written = trio.current_time()
        with trio.move_on_after(_PATIENCE + _RETRY if self.patient or self.is_real else _PATIENCE) as scope:
            while True:
                revision, busy = self.cluster.revision, self._measure_busy()
                for _ in range(_PARTS):
                    await trio.sleep(quiet / _PARTS)
                changed = self.cluster.revision != revision
                written = trio.current_time() if changed else written
                if abs(self._measure_busy() - busy) >= quiet * _IDLE:  # less, if a program has ended meanwhile
                    scope.deadline = min(scope.deadline + quiet, start + _LONGEST, written + _PATIENCE)
                elif not changed:
                    objects = self.cluster.objects()
                    if not (self.patient and is_put_off(objects)) and not has_garbage(objects):
                        return
                    scope.deadline = min(scope.deadline, trio.current_time() + _RETRY)

    def _measure_busy(self) -> float:
        """Return for how many seconds the operator, and programs that it runs, have run, or waited for a CPU."""
        total = 0
        for pid in () if self.process is None else find_descendants(self.process.pid):
            for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
                with contextlib.suppress(OSError):  # the thread has ended
                    total += sum(map(int, pathlib.Path(path).read_text().split()[:2]))
        return total / 1e9

    async def until(self, kind: str, name: str, check: Callable[[Any], Any], *, namespace: str | None = None) -> None:
        """Wait for an object of which *check* is true; what never comes shows in the state."""
        with contextlib.suppress(TimeoutError):
            await self.cluster.wait_for(kind, name, lambda obj: bool(check(obj)), namespace, timeout=_LONGEST)

    async def record(self, step: str, *, quiet: float = _QUIET) -> None:
        """Record what is stored when the operator has done what it does."""
        await self.settle(quiet)
        found = [obj for obj in self.cluster.objects() if obj["kind"] not in self._skipped]
        self.states[step] = normalize(found, self._before, self.masks)


def is_put_off(objects: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a handler is about to be called again, or an object is to go."""
    return any("deletionTimestamp" in obj["metadata"] or _RETRIES.search(json.dumps(obj)) for obj in objects)


def has_garbage(objects: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an object has owners, and none of them exists."""
    known = {obj["metadata"]["uid"] for obj in objects}
    owners = ({ref["uid"] for ref in obj["metadata"].get("ownerReferences", ())} for obj in objects)
    return any(uids and known.isdisjoint(uids) for uids in owners)


def find_descendants(pid: int) -> set[int]:
    """Return the ids of a process, of those that it has started, and so on; on Linux only."""
    found = {pid}
    for path in sorted(pathlib.Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):  # it has ended
            if int((path / "stat").read_text().rpartition(")")[2].split()[1]) in found:
                found.add(int(path.name))
    return found


def measure(process: trio.Process) -> Cost:
    """Return what a process has cost so far: CPU seconds, also of children that have ended, and MiB of memory."""
    with contextlib.suppress(OSError):  # it has ended, or there is no /proc
        folder = pathlib.Path(f"/proc/{process.pid}")
        times = (folder / "stat").read_text().rpartition(")")[2].split()[11:15]
        found = re.search(r"VmRSS:\s+(\d+) kB", (folder / "status").read_text())
        return Cost(sum(map(int, times)) / os.sysconf("SC_CLK_TCK"), int(found[1]) / 1024 if found else 0.0)
    return Cost()


async def play(
    act: Callable[[Play], Any], mode: str, checkout: pathlib.Path, home: pathlib.Path, *, real: bool = False
) -> Play:
    """Play a scenario in a mode, in the folder *home*, with a copy of the checkout.

    Natively, only ``import kopf`` is replaced, and a file with Kopf's names of annotations and finalizer is added. On a
    *real* control plane, nothing runs in pods.
    """
    root = home / "checkout"
    ignored = shutil.ignore_patterns(".git")
    copy = functools.partial(shutil.copytree, checkout, root, ignore=ignored, symlinks=True)
    await trio.to_thread.run_sync(copy)  # others are played meanwhile
    if mode == "native":
        await trio.to_thread.run_sync(make_native, root.rglob("*.py"))
    async with (open_plane if real else open_embedded)(home) as cluster:
        playing = Play(cluster, mode, root, home)
        await act(playing)
    return playing


def make_native(paths: Iterable[pathlib.Path]) -> None:
    """Replace ``import kopf`` and ``import kopf.cli``, and nothing else."""
    for path in paths:
        text = path.read_text(errors="replace")
        changed = re.sub(r"^(\s*)import kopf(?=$|,)", r"\1import trioperator as kopf", text, flags=re.MULTILINE)
        changed = re.sub(r"^(\s*)import kopf\.cli$", r"\1import trioperator.cli", changed, flags=re.MULTILINE)
        changed = re.sub(r"^(\s*)from kopf import", r"\1from trioperator import", changed, flags=re.MULTILINE)
        if changed != text:
            path.write_text(changed)
