"""Tests for :mod:`trioperator._runtime.reconciler.change_reconciler`.

Changes, creations and deletions reach their handlers.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on
LAST = "trioperator.dev/last-handled-configuration"


async def test_a_change_is_handled_with_its_differences(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @on.update("widgets", id="update", registry=bench.registry)
    async def update(old: Any, new: Any, diff: Any, **_: Any) -> None:
        seen.append((old, new, tuple(diff)))

    @on.field("widgets", field="spec.size", id="resized", registry=bench.registry)
    async def resized(old: Any, new: Any, diff: Any, **_: Any) -> None:
        seen.append((old, new, tuple(diff)))

    async with bench.running():
        await bench.cluster.create(widget(size=1, color="red"))
        await settle(1)
        assert seen == [(None, 1, (("add", (), None, 1),))]
        seen.clear()
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
    assert seen == [
        (
            {"spec": {"size": 1, "color": "red"}},
            {"spec": {"size": 2, "color": "red"}},
            (("change", ("spec", "size"), 1, 2),),
        ),
        (1, 2, (("change", (), 1, 2),)),
    ]


async def test_objects_without_the_field_of_a_filtered_handler_are_not_written_to(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []

    @on.field("widgets", field="spec.size", labels={"app": "mine"}, registry=bench.registry)
    async def resized(old: Any, new: Any, **_: Any) -> None:
        seen.append((old, new))

    created = {**widget(color="red"), "metadata": {"name": "w", "labels": {"app": "mine"}}}
    async with bench.running():
        before = await bench.cluster.create(created)
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"color": "blue"}})
        await settle(1)
        after = await bench.cluster.get("widgets", "w")
        assert after["metadata"].get("annotations") == before["metadata"].get("annotations")
        for size in (1, 2, None):
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
            await settle(1)
    assert seen == [(None, 1), (1, 2), (2, None)]


async def test_changes_while_the_operator_is_down_are_handled_when_it_is_back(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []

    @on.update("widgets", id="update", registry=bench.registry)
    async def update(diff: Any, **_: Any) -> None:
        seen.append(tuple(diff))

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(1)
    await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    await bench.cluster.patch("widgets", "w", {"spec": {"size": 3}})
    async with bench.running():
        await settle(1)
    assert seen == [(("change", ("spec", "size"), 1, 3),)]


async def test_a_later_handler_sees_what_an_earlier_one_has_stored(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @on.create("widgets", id="first", registry=bench.registry)
    async def first(patch: trioperator.Patch, **_: Any) -> dict[str, int]:
        patch.status["phase"] = "made"
        patch.meta.labels["made"] = "yes"
        return {"port": 80}

    @on.create("widgets", id="second", registry=bench.registry)
    async def second(status: trioperator.Status, body: trioperator.Body, labels: Any, **_: Any) -> None:
        seen.append((dict(status), dict(labels), body.status["phase"]))

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
    assert seen == [({"first": {"port": 80}, "phase": "made"}, {"made": "yes"}, "made")]
    assert (await bench.cluster.get("widgets", "w"))["metadata"]["labels"] == {"made": "yes"}


async def test_a_temporary_error_is_retried_after_its_delay(bench: Bench, autojump_clock: MockClock) -> None:
    times: list[float] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(retry: int, **_: Any) -> str:
        times.append(trio.current_time())
        if retry < 2:
            raise trioperator.TemporaryError("not yet", delay=100)
        return "done"

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        annotations = (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"]
        record = json.loads(annotations["trioperator.dev/create"])
        assert {key: record[key] for key in ("purpose", "retries", "success", "failure", "message")} == {
            "purpose": "create",
            "retries": 1,
            "success": False,
            "failure": False,
            "message": "not yet",
        }
        await settle(300)
    assert [round(b - a) for a, b in itertools.pairwise(times)] == [100, 100]
    body = await bench.cluster.get("widgets", "w")
    assert body["status"] == {"create": "done"}
    assert set(body["metadata"]["annotations"]) - {"trioperator.dev/kopf-managed"} == {LAST}


async def test_a_permanent_error_ends_the_handler_and_the_others_go_on(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.create("widgets", id="bad", registry=bench.registry)
    async def bad(**_: Any) -> None:
        calls.append("bad")
        raise trioperator.PermanentError("never")

    @on.create("widgets", id="good", registry=bench.registry)
    async def good(**_: Any) -> None:
        calls.append("good")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1000)
    assert calls == ["bad", "good"]


async def test_an_async_attempt_that_outlives_its_timeout_is_interrupted(
    bench: Bench, autojump_clock: MockClock
) -> None:
    times: list[float] = []

    @on.create("widgets", timeout=30, id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        try:
            times.append(trio.current_time())
            await trio.sleep_forever()
        finally:
            times.append(trio.current_time())

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1000)
    assert [round(t - times[0]) for t in times] == [0, 30]


async def test_a_deletion_waits_for_its_handlers(bench: Bench, autojump_clock: MockClock) -> None:
    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(retry: int, **_: Any) -> None:
        if retry < 2:
            raise trioperator.TemporaryError("not yet", delay=60)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(100)
        assert len(await bench.cluster.list("widgets")) == 1
        await settle(30)
        assert await bench.cluster.list("widgets") == []


async def test_a_deletion_supersedes_an_unfinished_creation(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        calls.append("create")
        raise trioperator.TemporaryError("not yet", delay=1000)

    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        calls.append("delete")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(5)
        assert calls == ["create", "delete"]
        assert await bench.cluster.list("widgets") == []
        await settle(5000)
    assert calls == ["create", "delete"]


async def test_an_optional_delete_handler_is_called_when_the_object_is_gone(
    bench: Bench, autojump_clock: MockClock
) -> None:
    gone: list[Any] = []

    @on.delete("widgets", optional=True, id="delete", registry=bench.registry)
    async def delete(name: str, spec: trioperator.Spec, retry: int, **_: Any) -> None:
        gone.append((name, dict(spec), retry))
        if not retry:
            raise trioperator.TemporaryError("once more", delay=10)

    async with bench.running():
        await bench.cluster.create(widget(size=7))
        await settle(1)
        assert "finalizers" not in (await bench.cluster.get("widgets", "w"))["metadata"]
        await bench.cluster.delete("widgets", "w")
        await settle(60)
    assert gone == [("w", {"size": 7}, 0), ("w", {"size": 7}, 1)]


async def test_finalizers_of_others_are_left_alone(bench: Bench, autojump_clock: MockClock) -> None:
    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        pass

    async with bench.running():
        manifest = widget()
        manifest["metadata"]["finalizers"] = ["a.example.com/x", "b.example.com/y"]
        await bench.cluster.create(manifest)
        await settle(1)
        body = await bench.cluster.get("widgets", "w")
        assert sorted(body["metadata"]["finalizers"]) == [
            "a.example.com/x",
            "b.example.com/y",
            "trioperator.dev/finalizer",
        ]
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        body = await bench.cluster.get("widgets", "w")
        assert body["metadata"]["finalizers"] == ["a.example.com/x", "b.example.com/y"]


async def test_a_finalizer_goes_when_the_filters_do_not_match_any_more(bench: Bench, autojump_clock: MockClock) -> None:
    @on.delete("widgets", labels={"mine": "yes"}, id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        raise AssertionError

    async with bench.running():
        manifest = widget()
        manifest["metadata"]["labels"] = {"mine": "yes"}
        await bench.cluster.create(manifest)
        await settle(1)
        assert (await bench.cluster.get("widgets", "w"))["metadata"]["finalizers"] == ["trioperator.dev/finalizer"]
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"mine": None}}})
        await settle(1)
        assert not (await bench.cluster.get("widgets", "w"))["metadata"].get("finalizers")


def reconcile_children(registry: trioperator.OperatorRegistry) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=registry)
    async def reconcile(**_: Any) -> list[Any]:
        return []


def handle_events(registry: trioperator.OperatorRegistry) -> None:
    @on.event("widgets", when=lambda **_: False, registry=registry)  # no selector, which would hide the objects
    async def handle(**_: Any) -> None:
        raise AssertionError


@pytest.mark.parametrize("add_handlers", [reconcile_children, handle_events])
async def test_a_finalizer_that_only_an_earlier_version_of_the_operator_needed_blocks_no_deletion(
    bench: Bench, autojump_clock: MockClock, add_handlers: Callable[[trioperator.OperatorRegistry], None]
) -> None:
    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        raise AssertionError

    async with bench.running():
        for name in "ab":
            await bench.cluster.create(widget(name))
        await settle(1)
    assert (await bench.cluster.get("widgets", "a"))["metadata"]["finalizers"] == ["trioperator.dev/finalizer"]
    await bench.cluster.delete("widgets", "a")
    newer = trioperator.OperatorRegistry()
    add_handlers(newer)
    async with bench.running(registry=newer):
        await settle(1)
        assert await bench.cluster.find("widgets", "a") is None
        await bench.cluster.delete("widgets", "b")
        await settle(1)
        assert await bench.cluster.find("widgets", "b") is None


@pytest.mark.parametrize(("add_handlers", "finalizers"), [(reconcile_children, 0), (handle_events, 1)])
async def test_a_finalizer_on_objects_that_are_only_looked_at_may_be_that_of_others(
    bench: Bench,
    autojump_clock: MockClock,
    add_handlers: Callable[[trioperator.OperatorRegistry], None],
    finalizers: int,
) -> None:
    manifest = widget()
    manifest["metadata"]["finalizers"] = ["trioperator.dev/finalizer"]
    await bench.cluster.create(manifest)
    add_handlers(bench.registry)
    async with bench.running():
        await settle(1)
    assert len((await bench.cluster.get("widgets", "w"))["metadata"].get("finalizers", [])) == finalizers


async def test_an_object_that_comes_to_match_later_is_a_creation(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[str] = []

    @on.create("widgets", labels={"mine": "yes"}, id="handle", registry=bench.registry)
    @on.update("widgets", labels={"mine": "yes"}, id="handle", registry=bench.registry)
    async def handle(reason: str, **_: Any) -> None:
        seen.append(reason)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        assert seen == []
        assert "annotations" not in (await bench.cluster.get("widgets", "w"))["metadata"]
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"mine": "yes"}}})
        await settle(1)
    assert seen == ["create"]


async def test_resuming_happens_once_and_not_for_what_is_being_deleted(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.resume("widgets", id="resume", registry=bench.registry)
    async def resume(name: str, **_: Any) -> None:
        calls.append(f"resume {name}")

    @on.resume("widgets", deleted=True, id="even_deleted", registry=bench.registry)
    async def even_deleted(name: str, **_: Any) -> None:
        calls.append(f"even_deleted {name}")

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(name: str, **_: Any) -> None:
        calls.append(f"create {name}")

    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(name: str, **_: Any) -> None:
        calls.append(f"delete {name}")

    async with bench.running():
        await bench.cluster.create(widget("a"))
        await bench.cluster.create(widget("b"))
        await settle(1)
    assert sorted(calls) == ["create a", "create b"]
    calls.clear()
    await bench.cluster.delete("widgets", "b")
    async with bench.running():
        await settle(1)
        assert sorted(calls) == sorted(["resume a", "even_deleted a", "even_deleted b", "delete b"])
        calls.clear()
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 9}})
        await settle(1)
    assert calls == []


async def test_a_change_between_two_handlers_is_seen_by_both_in_the_end(
    bench: Bench, autojump_clock: MockClock
) -> None:
    last_seen: dict[str, int] = {}

    @on.create("widgets", id="first", registry=bench.registry)
    @on.update("widgets", id="first", registry=bench.registry)
    async def first(spec: trioperator.Spec, **_: Any) -> None:
        last_seen["first"] = spec["size"]

    @on.create("widgets", id="second", registry=bench.registry)
    @on.update("widgets", id="second", registry=bench.registry)
    async def second(spec: trioperator.Spec, **_: Any) -> None:
        await trio.sleep(5)
        last_seen["second"] = spec["size"]

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        for size in (2, 3, 4):
            await settle(2)
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
        await settle(60)
    assert last_seen == {"first": 4, "second": 4}


async def test_annotations_that_somebody_removes_make_no_loop(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.create("widgets", id="handle", registry=bench.registry)
    @on.update("widgets", id="handle", registry=bench.registry)
    async def handle(reason: str, spec: trioperator.Spec, diff: Any, **_: Any) -> None:
        calls.append(f"{reason} {spec['size']}")

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        for _ in range(5):
            await settle(1)
            await bench.cluster.patch("widgets", "w", {"metadata": {"annotations": {LAST: None}}})
        await settle(5)
        assert calls == ["create 1"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(5)
        assert calls == ["create 1", "update 2"]
