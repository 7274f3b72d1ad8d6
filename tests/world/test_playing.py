"""Playing operators: one of our own, under Kopf where it is installed, by the bridge, and natively."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import signal
import subprocess
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.world.operators import OPERATORS
from tests.world.playing import MODES, Play, find_descendants, has_garbage, make_native, play
from tests.world.states import compare
from trioperator.apiserver import Cluster

OPERATOR = """
import kopf


@kopf.on.create("kopfexamples")
@kopf.on.update("kopfexamples")
def fn(spec, patch, **_):
    patch.status["seen"] = spec["field"]
"""
PROGRAM = """
import asyncio, kopf, main
asyncio.run(kopf.operator(clusterwide=True, standalone=True))
"""
CRD = pathlib.Path(__file__).parents[2] / "examples" / "crd.yaml"
OBJECT = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": {"name": "one", "namespace": "default"}}


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "own"
    root.mkdir()
    (root / "main.py").write_text(OPERATOR)
    (root / "program.py").write_text(PROGRAM)
    return root


async def act(play: Play) -> None:
    await play.apply(CRD)
    async with play.running("--standalone", "--all-namespaces", "main.py"):
        await play.cluster.create({**OBJECT, "spec": {"field": "a"}})
        await play.record("created", quiet=1)
    await play.cluster.patch("kopfexamples", "one", {"spec": {"field": "b"}}, "default")
    if play.mode == "native":
        async with play.running("--standalone", "--all-namespaces", "main.py"):
            await play.record("changed while it was down", quiet=1)
    else:
        async with play.executing("program.py"):
            await play.record("changed while it was down", quiet=1)


async def test_a_patient_step_lasts_until_a_handler_is_called_again(
    checkout: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    failing = [
        "if not hasattr(fn, 'called'):",
        "        fn.called = True",
        "        raise kopf.TemporaryError(delay=6)",
    ]
    (checkout / "main.py").write_text(OPERATOR.replace("patch.status", "\n".join([*failing, "    patch.status"])))

    async def act(play: Play) -> None:
        play.patient = True
        await play.apply(CRD)
        async with play.running("--standalone", "--all-namespaces", "main.py"):
            await play.cluster.create({**OBJECT, "spec": {"field": "a"}})
            await play.record("created", quiet=1)

    (tmp_path / "bridge").mkdir()
    played = await play(act, "bridge", checkout, tmp_path / "bridge")
    assert '"seen": "a"' in played.states["created"][0]


async def test_a_patient_step_lasts_longer_than_the_minute_until_a_handler_is_called_again(
    tmp_path: pathlib.Path, autojump_clock: MockClock
) -> None:
    play = Play(Cluster(seed=0), "bridge", tmp_path, tmp_path)
    play.patient = True
    record = {"progress": '{"delayed":"2026-01-01T00:01:00"}'}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "annotations": record}}
    await play.cluster.create(config)

    async def call_again() -> None:
        await trio.sleep(60.5)
        await play.cluster.patch("configmaps", "one", {"metadata": {"annotations": {"progress": None}}})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call_again)
        await play.settle()
        found = await play.cluster.get("configmaps", "one")
        assert "progress" not in found["metadata"].get("annotations", {})


async def test_what_comes_late_is_waited_for_and_what_never_comes_is_not_an_error(
    tmp_path: pathlib.Path, autojump_clock: MockClock
) -> None:
    play = Play(Cluster(seed=0), "bridge", tmp_path, tmp_path)

    async def create() -> None:
        await trio.sleep(120)
        await play.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(create)
        await play.until("configmaps", "one", bool, namespace="default")
        assert trio.current_time() == pytest.approx(120, abs=1)
    await play.until("configmaps", "never", bool, namespace="default")


async def test_a_step_ends_when_an_operator_that_is_always_busy_has_written_nothing_for_a_minute(
    tmp_path: pathlib.Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Play, "_measure_busy", lambda self: trio.current_time())
    play = Play(Cluster(seed=0), "bridge", tmp_path, tmp_path)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}

    async def write() -> None:
        await trio.sleep(40)
        await play.cluster.create(config)

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await play.settle()
    assert trio.current_time() - start == pytest.approx(102, abs=1)


async def test_time_in_which_the_cluster_could_not_answer_is_not_quiet(
    tmp_path: pathlib.Path, autojump_clock: MockClock
) -> None:
    cluster = Cluster(seed=0)
    play = Play(cluster, "bridge", tmp_path, tmp_path)

    async def write() -> None:
        await trio.sleep(1)
        autojump_clock.jump(10)  # as where something else blocks the event loop
        await trio.sleep(1)
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await play.settle()
        assert await cluster.find("configmaps", "one")


async def test_an_operator_does_the_same_in_all_modes(checkout: pathlib.Path, tmp_path: pathlib.Path) -> None:
    modes = [mode for mode in MODES if mode != "kopf" or importlib.util.find_spec("kopf")]
    plays = {}
    for mode in modes:
        (tmp_path / mode).mkdir()
        plays[mode] = await play(act, mode, checkout, tmp_path / mode)
    first = plays[modes[0]]
    assert '"seen": "a"' in first.states["created"][0]
    assert '"seen": "b"' in first.states["changed while it was down"][0]
    for mode, found in plays.items():
        assert compare(first.states, found.states) == [], mode
        assert [cost.exit_code for cost in found.costs] == [0, 0] or mode == "kopf", found.log
        assert all(cost.cpu > 0 and cost.memory > 10 for cost in found.costs)


@pytest.mark.skipif(not pathlib.Path("/proc/self/stat").exists(), reason="needs /proc")
def test_the_programs_that_an_operator_runs_are_found() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo; wait"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = find_descendants(process.pid)
        for pid in found:
            os.kill(pid, signal.SIGKILL)
    assert process.pid in found
    assert len(found) == 2


def test_natively_only_the_import_differs(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "main.py"
    path.write_text(
        "import kopf, os\nimport kopf.cli\n\ndef fn():\n    from kopf import Body  # as kopf\n\nimport kopfs\n"
    )
    make_native([path])
    changed = "import trioperator as kopf, os\nimport trioperator.cli\n\n"
    changed += "def fn():\n    from trioperator import Body  # as kopf\n\nimport kopfs\n"
    assert path.read_text() == changed


def test_all_operators_say_where_they_are() -> None:
    assert len(OPERATORS) >= 10
    for operator in OPERATORS.values():
        assert operator.repository is None or operator.repository.count("/") == 1


def test_objects_whose_owners_are_all_gone_are_garbage() -> None:
    def describe(uid: str, *owners: str) -> dict[str, Any]:
        return {"metadata": {"uid": uid, "ownerReferences": [{"uid": owner} for owner in owners]}}

    assert not has_garbage([describe("a"), describe("b", "a"), describe("c", "a", "gone")])
    assert has_garbage([describe("a"), describe("b", "gone")])


async def test_sets_of_strings_are_in_the_same_order_in_each_play(
    checkout: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (checkout / "main.py").write_text(OPERATOR.replace('spec["field"]', 'list({"a", "b", "c", "d", "e"})'))

    async def act(play: Play) -> None:
        await play.apply(CRD)
        async with play.running("--standalone", "--all-namespaces", "main.py"):
            await play.cluster.create({**OBJECT, "spec": {}})
            await play.record("created", quiet=1)

    plays = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        plays.append(await play(act, "bridge", checkout, tmp_path / name))
    assert plays[0].states == plays[1].states
