"""``python -m tests.bench instructions``: instructions per object, counted by callgrind.

Seconds differ by a third from run to run on a busy machine, instructions by less than a hundredth: a regression of five
per cent shows. The operator runs in memory, in virtual time, beside the embedded API server, whose work counts, too.
Each path is run with few and with more objects: the difference is what an object costs.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

import trio
import trio.testing

import trioperator
from trioperator.apiserver import Cluster

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
PATHS: Final = ("create", "update", "delete", "restart", "events", "daemons", "timers", "import")
_FEW, _MORE = 20, 60

_RESOURCE: Final = ("bench.trioperator.dev", "v1", "workloads")
_CRD: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "workloads.bench.trioperator.dev"},
    "spec": {
        "group": "bench.trioperator.dev",
        "scope": "Namespaced",
        "names": {"kind": "Workload", "plural": "workloads", "singular": "workload"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def _make_registry(path: str) -> trioperator.OperatorRegistry:
    """Return the handlers of a path; they do nothing."""
    registry = trioperator.OperatorRegistry()

    async def handle(**_: Any) -> None: ...

    async def accompany(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()

    if path == "events":
        trioperator.on.event(*_RESOURCE, registry=registry)(handle)
    elif path == "daemons":
        trioperator.daemon(*_RESOURCE, registry=registry)(accompany)
    elif path == "timers":
        trioperator.timer(*_RESOURCE, interval=1, registry=registry)(handle)
    else:
        for decorate in (trioperator.on.create, trioperator.on.update, trioperator.on.delete, trioperator.on.resume):
            decorate(*_RESOURCE, registry=registry)(handle)
    return registry


def _build_object(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "bench.trioperator.dev/v1",
        "kind": "Workload",
        "metadata": {"name": f"workload-{number}", "namespace": "default", "labels": {"app": f"workload-{number}"}},
        "spec": {"field": "value-0", "replicas": 3, "env": [{"name": f"V{n}", "value": f"v{n}"} for n in range(5)]},
    }


async def run_path(path: str, count: int, *, metrics: bool = False) -> None:
    """Let an operator handle so many objects on the given path, with or without metrics."""
    cluster = Cluster()
    await cluster.apply(_CRD)
    for number in range(count if path == "restart" else 0):
        await cluster.create(_build_object(number))
    for _ in range(2 if path == "restart" else 1):
        await _operate(path, cluster, count, metrics=metrics)


async def _operate(path: str, cluster: Cluster, count: int, *, metrics: bool) -> None:
    stop, settings = trio.Event(), trioperator.OperatorSettings()
    settings.posting.enabled = False

    async def operate(task_status: trio.TaskStatus[None]) -> None:
        await trioperator.operator(
            registry=_make_registry(path),
            settings=settings,
            connection=trioperator.ConnectionInfo(server="http://embedded"),
            transport=cluster.transport(),
            stop_flag=stop,
            metrics_endpoint="http://127.0.0.1:0" if metrics else None,
            task_status=task_status,
        )

    async with trio.open_nursery() as nursery:
        await nursery.start(operate)
        if path != "restart":
            await _send(path, cluster, count)
        await trio.sleep(10)
        stop.set()


async def _send(path: str, cluster: Cluster, count: int) -> None:
    """Send the requests of a path."""
    for number in range(count):
        await cluster.create(_build_object(number))
    if path in {"update", "events"}:
        await trio.sleep(5)
        for number in range(count):
            await cluster.patch("workloads", f"workload-{number}", {"spec": {"field": "value-1"}})
    if path in {"delete", "daemons"}:
        await trio.sleep(5)
        for number in range(count):
            await cluster.delete("workloads", f"workload-{number}")


def _count(path: str, count: int, *, metrics: bool = False) -> int:
    """Return the instructions of one run, in a process of its own."""
    options = ["--metrics"] if metrics else []
    run = f"from tests.bench.instructions import main; main({[f'{path}:{count}', *options]})"
    code = "import trioperator" if path == "import" else run
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or found is None:
        raise SystemExit(f"counting the instructions of '{path}' has failed:\n{done.stderr[-3000:]}")
    return int(found[1])


def count_all(paths: list[str], *, metrics: bool = False) -> dict[str, float]:
    """Return the thousands of instructions per object on each path; for the import, of the process."""
    counts: dict[str, float] = {}
    for path in paths:
        print(path, file=sys.stderr, flush=True)
        if path == "import":
            counts[path] = _count(path, 0) / 1000
        else:
            counts[path] = (_count(path, _MORE, metrics=metrics) - _count(path, _FEW, metrics=metrics)) / (_MORE - _FEW)
            counts[path] /= 1000
    return counts


def _render(counts: Mapping[str, float], before: Mapping[str, float]) -> str:
    lines = [f"{'thousands of instructions per object':<40}{'now':>12}{'before':>12}{'ratio':>8}"]
    for path, count in counts.items():
        known = before.get(path)
        compared = f"{known:>12.0f}{count / known:>8.3f}{'  SLOWER' if count > 1.05 * known else ''}" if known else ""
        lines.append(f"{path:<40}{count:>12.0f}{compared}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Count and print. Returns 1 if a path takes five per cent more than before, 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench instructions", description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="PATH", help=f"of {', '.join(PATHS)}; all without any")
    parser.add_argument("--against", type=pathlib.Path, metavar="FILE", help="compare with what --json has written")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the counts to it")
    parser.add_argument("--metrics", action="store_true", help="let the operators have metrics")
    options = parser.parse_args(arguments)
    if options.paths and ":" in options.paths[0]:  # one run, under callgrind
        path, _, count = options.paths[0].partition(":")
        run = functools.partial(run_path, path, int(count), metrics=options.metrics)
        trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
        return 0
    if unknown := set(options.paths) - set(PATHS):
        parser.error(f"no such path: {', '.join(sorted(unknown))}; there are {', '.join(PATHS)}")
    if shutil.which("valgrind") is None:
        parser.error("valgrind is needed, whose tool callgrind counts")
    counts = count_all(options.paths or list(PATHS), metrics=options.metrics)
    before = json.loads(options.against.read_text()) if options.against else {}
    print(_render(counts, before))
    if options.json:
        options.json.write_text(json.dumps(counts, indent=2) + "\n")
    return 1 if any(path in before and count > 1.05 * before[path] for path, count in counts.items()) else 0
