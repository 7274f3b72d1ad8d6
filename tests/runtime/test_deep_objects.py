"""Objects that are nested too deeply to be read: they concern nobody else, and still exist."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.levels import TOO_MANY
from tests.rewriting import Rewriting
from tests.runtime.conftest import Bench, settle, widget
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on

# More levels than any decoder has: Python's limit depends on its version.
DEPTH = TOO_MANY
MARK, DEEP = b'"DEEP"', b"[" * DEPTH + b"]" * DEPTH


async def test_one_deep_object_does_not_keep_the_others_from_being_handled(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[str | None] = []

    @on.create("widgets", registry=bench.registry)
    async def create(name: str | None, **_: object) -> None:
        handled.append(name)

    for name, value in {"a": "x", "bad": "DEEP", "z": "x"}.items():
        await bench.cluster.create(widget(name, value=value))
    async with bench.running(transport=Rewriting(bench.cluster.transport(), (MARK, DEEP))):
        await settle(1)
        assert sorted(map(str, handled)) == ["a", "z"]
        await bench.cluster.patch("widgets", "bad", {"spec": {"size": 1}})  # deep in a watch event, too
        await bench.cluster.create(widget("worse", value="DEEP"))
        await settle(1)
        assert len(handled) == 2
        await bench.cluster.patch("widgets", "bad", {"spec": {"value": "x"}})
        await settle(1)
        assert handled[2:] == ["bad"]
    assert caplog.text.count("Widget default/bad cannot be read, and is passed over until it can") == 1
    assert caplog.text.count("Widget default/worse cannot be read, and is passed over until it can") == 1


async def test_an_object_that_has_become_deep_does_not_count_as_deleted(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str | None, str | None]] = []

    @on.event("widgets", registry=bench.registry)
    async def event(type: str | None, name: str | None, **_: object) -> None:
        seen.append((type, name))

    plan = FaultPlan()
    plan.add(Fault.error_event(410, lines=1), watch=True, path="widgets", times=1)  # then it is listed again
    await bench.cluster.create(widget("bad"))
    await bench.cluster.create(widget("gone"))
    transport = FaultyTransport(Rewriting(bench.cluster.transport(), (MARK, DEEP)), plan)
    async with bench.running(transport=transport):
        await settle(1)
        del seen[:]
        await bench.cluster.patch("widgets", "bad", {"spec": {"value": "DEEP"}})
        await bench.cluster.delete("widgets", "gone")
        await settle(60)
        assert ("DELETED", "bad") not in seen
        assert seen == [("DELETED", "gone")]
        await bench.cluster.patch("widgets", "bad", {"spec": {"value": "x"}})
        await settle(1)
        assert seen[1:] == [("MODIFIED", "bad")]
    assert caplog.text.count("Widget default/bad cannot be read") == 1


async def test_the_deletion_of_a_deep_object_is_an_event(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[tuple[str | None, str | None]] = []
    stopped = trio.Event()

    @on.event("widgets", registry=bench.registry)
    async def event(type: str | None, name: str | None, **_: object) -> None:
        seen.append((type, name))

    @trioperator.daemon("widgets", finalizer=False, cancellation_timeout=1, registry=bench.registry)
    async def daemon(stopped_: object = None, **_: object) -> None:
        try:
            await trio.sleep_forever()
        finally:
            stopped.set()

    await bench.cluster.create(widget("bad"))
    async with bench.running(transport=Rewriting(bench.cluster.transport(), (MARK, DEEP))):
        await settle(1)
        await bench.cluster.patch("widgets", "bad", {"spec": {"value": "DEEP"}})
        await settle(1)
        assert seen == [(None, "bad")]
        await bench.cluster.delete("widgets", "bad")
        await settle(5)
        assert seen[1:] == [("DELETED", "bad")]
        assert stopped.is_set()


async def test_a_response_that_is_nested_too_deeply_fails_one_reconcile_only(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[str | None] = []

    @on.create("widgets", registry=bench.registry)
    async def create(name: str | None, patch: trioperator.Patch, **_: object) -> None:
        handled.append(name)
        if name == "bad":
            patch.spec["value"] = "DEEP"

    async with bench.running(transport=Rewriting(bench.cluster.transport(), (MARK, DEEP))):
        await bench.cluster.create(widget("bad"))
        await settle(1)
        await bench.cluster.create(widget("z"))
        await settle(1)
    assert handled[0] == "bad"
    assert handled[-1] == "z"
    assert "The response about bad cannot be read" in caplog.text


async def test_deep_annotations_of_the_operator_count_as_absent(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: object) -> None:
        calls.append("create")

    manifest = widget()
    deep = "[" * 60_000 + "]" * 60_000
    names = ("create", "last-handled-configuration")
    manifest["metadata"]["annotations"] = {f"trioperator.dev/{name}": deep for name in names}
    await bench.cluster.create(manifest)
    async with bench.running():
        await settle(1)
    assert calls == ["create"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
