"""Kopf's own examples, on an API server in this process: which of them run, and how.

::

    git clone https://github.com/nolar/kopf
    python -m tests.kopf.examples kopf            # unchanged, by `python -m trioperator.kopf run`
    python -m tests.kopf.examples kopf --native   # with asyncio replaced by Trio, by `python -m trioperator run`
    python -m tests.kopf.examples kopf --kopf     # by `kopf run`, for comparison

Each example gets the CRD, the object and a pod, is changed and deleted, and stopped in order. The log is judged as by
Kopf's own test of them, by the marks in their files (``E2E_…``): all handlers have succeeded, as often as they should,
and nothing has failed that should not. Nothing of Kopf's is in this repository.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

import trio
import yaml

from trioperator.apiserver import Cluster, serve_cluster, write_kubeconfig

ROOT: Final = pathlib.Path(__file__).parents[2]
MODES: Final = ("unchanged", "native", "kopf")
POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "pod", "namespace": "default"},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}
# Seconds until an example must have done what it does.
PATIENCE: Final = 75.0
SCRIPT: Final = "import runpy, sys, {0} as m; {1}; runpy.run_path(sys.argv[1], run_name='__main__')"

# asyncio made Trio, by rules on the text: what a user would do by hand.
NATIVE: Final = (
    (r"\bimport asyncio\n", "import functools\nimport trio\n"),
    (r"\bimport kopf\b", "import trioperator as kopf"),
    (r"asyncio\.create_task\((\w+)\((.*)\)\)", r"Task(functools.partial(\1, \2))"),
    (r"asyncio\.Task\[None\]", "object"),
    (r"asyncio\.CancelledError", "trio.Cancelled"),
    (r"loop = asyncio\.new_event_loop\(\)", "pass"),
    (r"asyncio\.set_event_loop\(loop\)", "pass"),
    (r"contextlib\.closing\(loop\)", "contextlib.nullcontext()"),
    (r"loop\.run_until_complete\(kopf\.operator\(", "trio.run(functools.partial(kopf.operator, "),
    (r"\basyncio\.", "trio."),
)
TASK: Final = """
import trio

class Task:
    def __init__(self, fn):
        self.scope = trio.CancelScope()
        trio.lowlevel.spawn_system_task(self.run, fn)

    async def run(self, fn):
        with self.scope:
            await fn()

    def cancel(self):
        self.scope.cancel()

"""


class Example:
    """One example: its file, and what its text says about it."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.name = path.parent.name
        self.text = path.read_text()
        tree = ast.parse(self.text)
        self.marks = {name: value for name, value in _find_constants(tree) if name.startswith("E2E_")}
        decorators = [node.decorator_list for node in ast.walk(tree) if hasattr(node, "decorator_list")]
        self.handlers = {ast.unparse(d.func).removeprefix("kopf.") for ds in decorators for d in ds if _is_call(d)}
        self.is_script = "\nif __name__ == '__main__':" in self.text

    def wants(self, *handlers: str) -> bool:
        return not self.handlers.isdisjoint(handlers)

    @property
    def about_pods(self) -> bool:
        return ("('pods'" in self.text and not self.wants("on.create")) or "on.create('pods'" in self.text


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call)


def _find_constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id.startswith("E2E_"):
                yield target.id, ast.literal_eval(node.value)


def find_examples(repository: pathlib.Path) -> list[Example]:
    """Return the examples of a checkout of Kopf's repository."""
    return [Example(path) for path in sorted(repository.glob("examples/*/example.py"))]


class Log:
    """The log of a running example."""

    def __init__(self) -> None:
        self.text = ""
        self._grown = trio.Event()

    async def collect(self, stream: trio.abc.ReceiveStream) -> None:
        async for data in stream:
            self.text += data.decode(errors="replace")
            self._grown.set()
            self._grown = trio.Event()

    async def wait_for(self, *patterns: str, seconds: float = PATIENCE) -> bool:
        """Wait until one of the patterns is logged, and return whether it is in time."""
        with trio.move_on_after(seconds) as scope:
            while not any(re.search(pattern, self.text) for pattern in patterns):
                await self._grown.wait()
        return not scope.cancelled_caught


async def run_example(example: Example, mode: str) -> list[str]:
    """Run an example in a process of its own, and return what is wrong with it."""
    cluster, log = Cluster(), Log()
    with tempfile.TemporaryDirectory() as directory:
        home = pathlib.Path(directory)
        async with trio.open_nursery() as nursery:
            url = str(await nursery.start(serve_cluster, cluster))
            write_kubeconfig(str(home / "kubeconfig"), cluster.kubeconfig(url))
            await cluster.apply(yaml.safe_load((example.path.parents[1] / "crd.yaml").read_text()))
            command, file = _make_command(example, mode), home / "example.py"
            file.write_text(_make_native(example.text) if mode == "native" else example.text)
            async with _running([*command, str(file)], home, log) as process:
                if not example.is_script:
                    await _exercise(example, cluster, log)
                    process.terminate()
                with trio.move_on_after(PATIENCE):
                    await process.wait()
                problems = [] if process.returncode == 0 else [f"It has ended with {process.returncode}."]
            nursery.cancel_scope.cancel()
    problems += judge(example, log.text)
    return [*problems, log.text] if problems else []


def _make_command(example: Example, mode: str) -> list[str]:
    module = {"unchanged": "trioperator.kopf", "native": "trioperator", "kopf": "kopf"}[mode]
    if example.is_script:
        return [sys.executable, "-c", SCRIPT.format(module, "m.install()" if mode == "unchanged" else "m.on")]
    return [sys.executable, "-m", module, "run", "--all-namespaces", "--standalone", "--verbose"]


def _make_native(text: str) -> str:
    for pattern, replacement in NATIVE:
        text = re.sub(pattern, replacement, text)
    return TASK + text


@contextlib.asynccontextmanager
async def _running(command: Sequence[str], home: pathlib.Path, log: Log) -> AsyncIterator[trio.Process]:
    env = {**os.environ, "KUBECONFIG": str(home / "kubeconfig"), "HOME": str(home), "PYTHONUNBUFFERED": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    async with trio.open_nursery() as nursery:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        run = functools.partial(trio.run_process, list(command), env=env, cwd=home, check=False, **pipes)
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        nursery.start_soon(log.collect, process.stdout)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


async def _exercise(example: Example, cluster: Cluster, log: Log) -> None:
    """Let an example see an object and a pod created, changed and deleted."""
    marks = example.marks
    await log.wait_for("The operator is ready", "Initial authentication has finished", r"Client is configured")
    await log.wait_for("The operator is ready", seconds=1)  # Kopf does not say so
    manifest = yaml.safe_load((example.path.parents[1] / "obj.yaml").read_text())
    await cluster.create(POD)
    await cluster.create(manifest)
    if "E2E_CREATION_STOP_WORDS" in marks or example.wants("on.create"):
        await log.wait_for(*marks.get("E2E_CREATION_STOP_WORDS", ["Creation is processed"]))
    for text in ("daemon", "timer"):
        if example.wants(text) and f" {text}: field=" in example.text:
            await log.wait_for(f"Ping from an async {text}", seconds=20)
    await trio.sleep(2)  # for what goes on in the background
    if example.wants("on.update", "on.field"):
        await cluster.patch("kopfexamples", "kopf-example-1", {"spec": {"field": "changed"}})
        await trio.sleep(1)
    for kind, name in (("kopfexamples", "kopf-example-1"), ("pods", "pod")):
        await cluster.delete(kind, name)
    for kind, name in (("kopfexamples", "kopf-example-1"), ("pods", "pod")):
        with trio.move_on_after(20):
            await cluster.wait_deleted(kind, name)
    await log.wait_for("Deleted, really deleted", seconds=2)
    await trio.sleep(0.5)


def judge(example: Example, log: str) -> list[str]:
    """Return what is wrong with a log, by the rules of Kopf's own test of its examples."""
    marks, problems = example.marks, []
    prefix = r"\[default/pod\] " if example.about_pods else r"\[default/kopf-example-.*\] "
    prefix = "" if example.is_script else prefix  # it configures the logs itself
    expected = {
        rf"{prefix}Creation is in progress:": example.wants("on.create"),
        rf"{prefix}Deletion is in progress:": example.wants("on.delete"),
        rf"{prefix}Adding the finalizer": example.wants("on.delete"),
        rf"{prefix}Deleted, really deleted": example.wants("on.create", "on.delete"),
        r"Ping from a sync (timer|daemon)": "Ping from a sync" in example.text,
        r"Ping from an async (timer|daemon)": "Ping from an async" in example.text,
        rf"{prefix}Updating is in progress": example.wants("on.update") and "spec.lst" not in example.text,
        r"Hello, kopf-example-2!": example.is_script,
        r"Good bye, kopf-example-2!": example.is_script,
        r"succeeded": True,
    }
    problems += [
        f"It has not logged {text!r}." for text, wanted in expected.items() if wanted and not re.search(text, log)
    ]
    log = re.sub(r"The event loop is blocked.*?is blocked here", "", log, flags=re.DOTALL)  # the machine is slow
    if "Traceback" in log and not marks.get("E2E_ALLOW_TRACEBACKS"):
        problems.append("It has logged a traceback.")
    if "It uses asyncio" in log or "Unexpected error" in log:
        problems.append("Something is wrong in principle.")
    succeeded = re.findall(r"'(.+?)' succeeded", log)
    failed = re.findall(r"'(.+?)' failed (?:permanently|with an exception and will stop)", log)
    problems += _compare("succeeded", succeeded, marks.get("E2E_SUCCESS_COUNTS"))
    problems += _compare("failed", failed, marks.get("E2E_FAILURE_COUNTS", {} if not failed else None))
    return problems


def _compare(what: str, names: Sequence[str], expected: Mapping[str, int] | None) -> Iterator[str]:
    if expected is not None:
        counts = collections.Counter(name for name in names if name in expected)
        if counts != expected:
            yield f"{what}: {dict(counts)}, not {dict(expected)}."
    elif what == "failed" and names:
        yield f"Handlers have failed: {names}."


async def run_examples(examples: Sequence[Example], mode: str, *, at_once: int = 2) -> dict[str, list[str]]:
    """Run examples, and return what is wrong with each."""
    results: dict[str, list[str]] = {}
    limiter = trio.CapacityLimiter(at_once)

    async def run(example: Example) -> None:
        async with limiter:
            try:
                results[example.name] = await run_example(example, mode)
            except Exception as error:  # noqa: BLE001 -- one of many
                results[example.name] = ["It cannot be used:", "".join(traceback.format_exception(error))]
            print(f"{example.name:24} {' '.join(results[example.name][:-1]) or 'ok'}", flush=True)

    async with trio.open_nursery() as nursery:
        for example in examples:
            nursery.start_soon(run, example)
    return {name: results[name] for name in sorted(results)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kopf.examples", description="Run Kopf's own examples.")
    parser.add_argument("repository", type=pathlib.Path, help="a checkout of Kopf's repository")
    parser.add_argument("names", nargs="*", help="only the examples whose names contain one of these")
    group = parser.add_mutually_exclusive_group()
    for mode in MODES[1:]:
        group.add_argument(f"--{mode}", action="store_const", dest="mode", const=mode, default=MODES[0])
    options = parser.parse_args()
    found = [e for e in find_examples(options.repository) if any(n in e.name for n in options.names or [""])]
    results = trio.run(run_examples, found, options.mode)
    for name, problems in results.items():
        if problems and options.names:
            print(f"\n{name}:\n{problems[-1]}")
    passed = sum(not problems for problems in results.values())
    print(f"{options.mode}: {passed} of {len(results)} examples run.")
    sys.exit(passed < len(results))


if __name__ == "__main__":
    main()
