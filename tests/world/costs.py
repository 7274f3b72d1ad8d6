"""``python -m tests.world.costs``: CPU and memory of two public operators, under Kopf and by the bridge, side by side.

Each handles 30 objects that are created at once, and is idle afterwards. The API server is in another process, the same
for both. Run it where nothing else runs.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from tests.world.operators import prepare_poolboy
from tests.world.playing import Play, measure, play
from tests.world.sources import find_checkout
from trioperator import configure

OBJECTS, IDLE = 30, 60.0
Prepare = Callable[[Play], Awaitable[list[dict[str, object]]]]


async def prepare_clustersecret(play: Play) -> list[dict[str, object]]:
    await play.add_namespaces("aa", "ab", "ac", "ad", "ae")
    await play.apply("yaml/01_crd.yaml")
    kind = {"apiVersion": "clustersecret.io/v1", "kind": "ClusterSecret", "matchNamespace": ["a.*"]}
    return [{**kind, "metadata": {"name": f"s{number}"}, "data": {"key": "MQ=="}} for number in range(OBJECTS)]


async def prepare_claims(play: Play) -> list[dict[str, object]]:
    play.environment |= {"OPERATOR_NAMESPACE": "poolboy"}
    version, provider = await prepare_poolboy(play)
    await play.apply(provider)
    claims: list[dict[str, object]] = []
    for number in range(OBJECTS):
        used = {"provider": {"name": "test"}, "template": {"metadata": {"name": f"made-{number}"}}}
        meta = {"name": f"claim-{number}", "namespace": "users"}
        claims.append({"apiVersion": version, "kind": "ResourceClaim", "metadata": meta, "spec": {"resources": [used]}})
    return claims


SUBJECTS: Final[dict[str, tuple[Prepare, str]]] = {
    "zakkg3/ClusterSecret": (prepare_clustersecret, "src/handlers.py"),
    "redhat-cop/poolboy": (prepare_claims, "operator/operator.py"),
}


def make_act(prepare: Prepare, file: str) -> Callable[[Play], Awaitable[None]]:
    """Return the scenario that prints what the operator costs."""

    async def act(play: Play) -> None:
        objects = await prepare(play)
        async with play.running("--all-namespaces", "--standalone", file):
            assert play.process is not None
            assert play.process.poll() is None, play.log
            start = measure(play.process)
            for obj in objects:
                await play.cluster.create(obj)
            await play.settle()
            busy, before = measure(play.process), measure_exactly(play.process)
            await trio.sleep(IDLE)
            idle, used = measure(play.process), measure_exactly(play.process) - before
        words = f"start {start.cpu:5.2f} s, {OBJECTS} objects {busy.cpu - start.cpu:5.2f} s"
        print(f"{play.mode:7} {words}, idle {used / IDLE * 100:5.3f} %, memory {idle.memory:4.0f} MiB", flush=True)

    return act


def measure_exactly(process: trio.Process) -> float:
    """Return the CPU seconds of a process, more exactly than ticks, by its clock on Linux: idle operators use few."""
    return time.clock_gettime((~process.pid << 3) | 2)


async def measure_all() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for repository, (prepare, file) in SUBJECTS.items():
            checkout = await trio.to_thread.run_sync(find_checkout, repository, pathlib.Path(scratch))
            print(f"{repository}: CPU and memory")
            for mode in ("kopf", "bridge"):
                home = pathlib.Path(scratch, f"{repository.rpartition('/')[2]}.{mode}")
                home.mkdir()  # noqa: ASYNC240 -- nothing else runs
                await play(make_act(prepare, file), mode, checkout, home)


def main() -> None:
    configure(quiet=True)
    trio.run(measure_all)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
