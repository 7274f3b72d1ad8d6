"""``python -m tests.world.costs [ROUNDS]``: CPU and memory of two public operators, under Kopf and by the bridge.

Each handles 30 objects, which are created, changed and deleted at once, and is idle in between, but for what it asks
itself. Both run on asyncio: the operators do not require uvloop, which Kopf would take if another one has brought it.
The API server is in another process, the same for both, which take turns. Run it where nothing else runs: an operator
that has to wait for a CPU finds more to do when it gets one, and needs less time in all.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

from tests.world.operators import prepare_poolboy
from tests.world.playing import Play, measure, play
from tests.world.sources import find_checkout
from trioperator import configure

OBJECTS, IDLE = 30, 60.0
Object = dict[str, Any]
Prepare = Callable[[Play], Awaitable[list[Object]]]


async def prepare_clustersecret(play: Play) -> list[Object]:
    await play.add_namespaces("aa", "ab", "ac", "ad", "ae")
    await play.apply("yaml/01_crd.yaml")
    kind = {"apiVersion": "clustersecret.io/v1", "kind": "ClusterSecret", "matchNamespace": ["a.*"]}
    return [{**kind, "metadata": {"name": f"s{number}"}, "data": {"key": "MQ=="}} for number in range(OBJECTS)]


async def prepare_claims(play: Play) -> list[Object]:
    play.environment |= {"OPERATOR_NAMESPACE": "poolboy"}
    version, provider = await prepare_poolboy(play)
    await play.apply(provider)
    claims: list[Object] = []
    for number in range(OBJECTS):
        used = {"provider": {"name": "test"}, "template": {"metadata": {"name": f"made-{number}"}}}
        meta = {"name": f"claim-{number}", "namespace": "users"}
        claims.append({"apiVersion": version, "kind": "ResourceClaim", "metadata": meta, "spec": {"resources": [used]}})
    return claims


def change_clustersecret(secret: Object) -> Object:
    return {"data": {"key": "Mg=="}}


def change_claim(claim: Object) -> Object:
    (used,) = claim["spec"]["resources"]
    return {"spec": {"resources": [{**used, "template": {**used["template"], "spec": {"size": 2}}}]}}


@dataclasses.dataclass(frozen=True)
class Subject:
    """An operator: its file, its kind, and its objects with their changes."""

    file: str
    kind: str
    prepare: Prepare
    change: Callable[[Object], Object]


Handle = Callable[[Play, Subject, Object], Awaitable[None]]

SUBJECTS: Final = {
    "zakkg3/ClusterSecret": Subject("src/handlers.py", "clustersecrets", prepare_clustersecret, change_clustersecret),
    "redhat-cop/poolboy": Subject(
        "operator/operator.py", "resourceclaims.v1.poolboy.gpte.redhat.com", prepare_claims, change_claim
    ),
}


def make_act(subject: Subject) -> Callable[[Play], Awaitable[None]]:
    """Return the scenario that prints what the operator costs."""

    async def act(play: Play) -> None:
        objects = await subject.prepare(play)
        run = ("--all-namespaces", "--standalone", subject.file)
        del play.environment["PYTHONDONTWRITEBYTECODE"]
        (play.home / "lib").mkdir()
        (play.home / "lib" / "uvloop.py").write_text("raise ImportError('it is not required')\n")
        play.environment["PYTHONPATH"] = str(play.home / "lib")
        async with play.running(*run):
            pass  # leaves bytecode, as in an image: what is compiled takes 20 MiB more until the process ends
        async with play.running(*run):
            assert play.process is not None
            assert play.process.poll() is None, play.log
            start = measure_exactly(play.process)
            created = await measure_all_objects(play, subject, create, objects)
            before = measure_exactly(play.process)
            await trio.sleep(IDLE)
            idle, memory = measure_exactly(play.process) - before, measure(play.process).memory
            changed = await measure_all_objects(play, subject, change, objects)
            deleted = await measure_all_objects(play, subject, delete, objects)
        words = f"start {start:5.2f} s, {OBJECTS} objects {created:5.2f} + {changed:5.2f} + {deleted:5.2f} s"
        print(f"{play.mode:7} {words}, idle {idle / IDLE * 100:5.3f} %, memory {memory:4.0f} MiB", flush=True)

    return act


async def measure_all_objects(play: Play, subject: Subject, handle: Handle, objects: list[Object]) -> float:
    """Return the CPU seconds that the operator takes when the same happens to all objects at once."""
    assert play.process is not None
    before = measure_exactly(play.process)
    for obj in objects:
        await handle(play, subject, obj)
    await play.settle()
    return measure_exactly(play.process) - before


async def create(play: Play, subject: Subject, obj: Object) -> None:
    await play.cluster.create(obj)


async def change(play: Play, subject: Subject, obj: Object) -> None:
    meta = obj["metadata"]
    await play.cluster.patch(subject.kind, meta["name"], subject.change(obj), meta.get("namespace"))


async def delete(play: Play, subject: Subject, obj: Object) -> None:
    meta = obj["metadata"]
    await play.cluster.delete(subject.kind, meta["name"], meta.get("namespace"))


def measure_exactly(process: trio.Process) -> float:
    """Return the CPU seconds of a process, more exactly than ticks, by its clock on Linux: idle operators use few."""
    return time.clock_gettime((~process.pid << 3) | 2)


async def measure_all(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for repository, subject in SUBJECTS.items():
            checkout = await trio.to_thread.run_sync(find_checkout, repository, pathlib.Path(scratch))
            print(f"{repository}: CPU and memory")
            for number, mode in itertools.product(range(rounds), ("kopf", "bridge")):
                home = pathlib.Path(scratch, f"{repository.rpartition('/')[2]}.{mode}-{number}")
                home.mkdir()  # noqa: ASYNC240 -- nothing else runs
                await play(make_act(subject), mode, checkout, home)


def main() -> None:
    configure(quiet=True)
    trio.run(measure_all, int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
