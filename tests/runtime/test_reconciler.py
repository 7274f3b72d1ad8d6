"""What happens to an object: causes, handlers, retries, and what is stored."""

from __future__ import annotations

import collections.abc
import functools
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._runtime.cache import ObjectCache
from trioperator.errors import PausedError
from trioperator.testing import FaultPlan, FaultyTransport

on = trioperator.on
LAST = "trioperator.dev/last-handled-configuration"


async def test_a_created_object_reaches_its_handler(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(name: str, spec: trioperator.Spec, reason: str, retry: int, diff: Any, old: Any, **_: Any) -> None:
        seen.append((name, dict(spec), reason, retry, old, tuple(diff)))

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(1)
    assert seen == [("w", {"size": 1}, "create", 0, None, (("add", (), None, {"spec": {"size": 1}}),))]
    body = await bench.cluster.get("widgets", "w")
    assert json.loads(body["metadata"]["annotations"][LAST]) == {"spec": {"size": 1}}


async def test_sync_handlers_run_in_threads(bench: Bench) -> None:
    called = trio.Event()
    token = trio.lowlevel.current_trio_token()

    @on.create("widgets", id="create", registry=bench.registry)
    def create(name: str) -> int:
        trio.from_thread.run_sync(called.set, trio_token=token)
        return 5

    with trio.fail_after(60):
        async with bench.running():
            await bench.cluster.create(widget())
            await called.wait()
            while "status" not in await bench.cluster.get("widgets", "w"):  # noqa: ASYNC110 -- seen from outside
                await trio.sleep(0.01)
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"create": 5}


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


async def test_a_huge_object_is_handled_once_and_its_changes_are_seen(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="handle", registry=bench.registry)
    @on.update("widgets", id="handle", registry=bench.registry)
    async def handle(reason: str, diff: Any, **_: Any) -> None:
        calls.append((reason, [item.field for item in diff]))

    async with bench.running():
        await bench.cluster.create(widget(big="x" * 1_000_000, size=1))
        await settle(5)
        assert [reason for reason, _ in calls] == ["create"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(5)
        assert calls[1:] == [("update", [("spec", "size")])]
        await bench.cluster.patch("widgets", "w", {"spec": {"big": "y" * 1_000_000}})
        await settle(5)
        assert calls[2:] == [("update", [("spec", "big")])]
    assert "too big" in caplog.text


async def test_a_result_that_the_schema_prunes_is_warned_of_and_makes_no_loop(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    await bench.cluster.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "stricts.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "Strict", "plural": "stricts", "singular": "strict"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "schema": {
                            "openAPIV3Schema": {
                                "type": "object",
                                "properties": {
                                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                                    "status": {"type": "object", "properties": {}},
                                },
                            }
                        },
                    }
                ],
            },
        }
    )

    @on.create("stricts", id="create", registry=bench.registry)
    async def create(**_: Any) -> int:
        calls.append("create")
        return 1

    async with bench.running():
        await bench.cluster.create(widget(kind="Strict", size=1))
        await settle(60)
    assert calls == ["create"]
    assert "status.create" in caplog.text


async def test_a_patch_that_the_server_rejects_is_reported_and_makes_no_loop(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        calls.append("create")
        patch.meta.labels["not a label!"] = "x"

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(600)
        assert LAST in (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"]
    assert calls == ["create"]
    assert "rejected" in caplog.text


async def test_functions_of_a_patch_are_applied_to_the_newest_object(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        patch.fns.append(lambda body: body["spec"].setdefault("items", []).append("more"))
        patch.fns.append(lambda body: body.setdefault("status", {}).update(done=True))

    async with bench.running():
        await bench.cluster.create(widget(items=["one"]))
        await settle(5)
        body = await bench.cluster.get("widgets", "w")
    assert body["spec"]["items"] == ["one", "more"]
    assert body["status"] == {"done": True}


async def test_a_rejected_patch_of_a_delete_handler_does_not_keep_the_object(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(patch: trioperator.Patch, **_: Any) -> None:
        patch.meta.labels["not a label!"] = "x"

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(5)
        assert await bench.cluster.list("widgets") == []
    assert "rejected" in caplog.text


async def test_a_function_of_a_patch_that_fails_is_reported_and_dropped(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        calls.append("create")
        patch.fns.append(lambda body: body["no such key"])

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(600)
    assert calls == ["create"]
    assert "no such key" in caplog.text


async def test_each_event_reaches_event_handlers_in_order(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    await bench.cluster.create(widget(size=0))

    @on.event("widgets", id="event", registry=bench.registry)
    async def event(type: Any, event: Any, spec: trioperator.Spec, **_: Any) -> None:
        assert event["type"] == type
        seen.append((type, spec["size"]))
        raise ValueError("this is ignored")

    async with bench.running():
        await settle(1)
        for size in (1, 2, 3):
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
    assert seen == [(None, 0), ("MODIFIED", 1), ("MODIFIED", 2), ("MODIFIED", 3), ("DELETED", 3)]
    assert bench.writes() == []


async def test_functions_that_share_an_id_are_warned_of(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.create("widgets", id="same", registry=bench.registry)
    async def one(**_: Any) -> None: ...

    @on.create("widgets", id="same", registry=bench.registry)
    async def other(**_: Any) -> None: ...

    @on.update("widgets", id="same", registry=bench.registry)
    @on.field("widgets", id="same", field="spec.size", registry=bench.registry)
    async def alone(**_: Any) -> None: ...

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        [warning] = [record.message for record in caplog.records if record.levelname == "WARNING"]
        assert warning.startswith("2 functions are handlers with the id 'same'")
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [warning]


async def test_a_memo_that_cannot_be_copied_is_an_error_at_once(bench: Bench) -> None:
    with pytest.raises(trioperator.ConfigError, match=r"The memo is copied for each object.*lock.*__copy__"):
        await trioperator.operator(registry=bench.registry, memo=threading.Lock())


async def test_memos_are_shared_by_the_handlers_of_an_object(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @on.event("widgets", id="count", registry=bench.registry)
    async def count(memo: trioperator.Memo, **_: Any) -> None:
        memo.count = memo.get("count", 0) + 1

    @on.update("widgets", id="update", registry=bench.registry)
    async def update(memo: trioperator.Memo, name: str, **_: Any) -> None:
        seen.append((name, memo.base, memo.count > 0))

    async with bench.running(memo=trioperator.Memo(base="b")):
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 5}})
        await settle(1)
    assert seen == [("w", "b", True)]


async def test_one_worker_is_enough_and_does_not_wait_for_what_is_due_later(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.queueing.worker_limit = 1
    seen: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(name: str, retry: int, **_: Any) -> None:
        seen.append(name)
        if name == "a" and not retry:
            raise trioperator.TemporaryError("later", delay=100)

    async with bench.running():
        for name in "abc":
            await bench.cluster.create(widget(name))
        await settle(10)
        assert seen == ["a", "b", "c"]
        await settle(100)
    assert seen == ["a", "b", "c", "a"]


async def test_fresh_events_are_not_stuck_behind_an_initial_list(bench: Bench, autojump_clock: MockClock) -> None:
    bench.settings.queueing.worker_limit = 1
    seen: list[str] = []
    for number in range(50):
        await bench.cluster.create(widget(f"old{number}"))

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(name: str, **_: Any) -> None:
        seen.append(name)
        await trio.sleep(1)

    async with bench.running():
        await settle(3)
        await bench.cluster.create(widget("fresh"))
        await settle(5)
        assert "fresh" in seen
        await settle(100)
    assert len(seen) == 51


async def test_what_has_ended_is_on_record_when_the_next_handler_is_cancelled(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.create("widgets", id="quick", registry=bench.registry)
    async def quick(**_: Any) -> None:
        pass

    @on.create("widgets", id="endless", registry=bench.registry)
    async def endless(**_: Any) -> None:
        await trio.sleep_forever()

    with trio.CancelScope() as operating:
        async with bench.running():
            await bench.cluster.create(widget())
            await settle(0.01)  # less than the delay of writing
            operating.cancel()
    annotations = (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"]
    assert '"success":true' in annotations["trioperator.dev/quick"]


async def test_an_object_whose_finalizer_is_taken_off_again_and_again_rests_in_between(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Stripping(FaultyTransport):
        async def handle_async_request(self, request: Any) -> Any:
            response = await super().handle_async_request(request)
            if request.method == "PATCH":
                await bench.cluster.patch("widgets", "w", {"metadata": {"finalizers": None}})
                body = json.dumps(await bench.cluster.get("widgets", "w")).encode()
                return httpx.Response(200, content=body)
            return response

    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        pass

    async with bench.running(transport=Stripping(bench.cluster.transport(), FaultPlan())):
        await bench.cluster.create(widget())
        await settle(10)
    assert len(bench.writes()) < 200
    assert "Possible reconcile loop" in caplog.text


async def test_updates_of_an_object_at_work_are_not_heaped_up(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        state = next(iter(caches[0]))
        for size in range(50):
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
            await trio.testing.wait_all_tasks_blocked()
        heaps.append(len(state.events or ()))

    heaps: list[int] = []
    caches: list[ObjectCache] = []
    init = ObjectCache.__init__

    def noting(self: ObjectCache, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        caches.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectCache, "__init__", noting)
        async with bench.running():
            await bench.cluster.create(widget())
            await settle(5)
    assert heaps == [1]


async def test_a_wrong_setting_in_a_startup_handler_keeps_the_operator_from_starting(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.startup(registry=bench.registry)
    async def configure(settings: trioperator.OperatorSettings, **_: Any) -> None:
        settings.persistence.write_delay = -1

    with pytest.raises(trioperator.ActivityError, match="write_delay"):
        await trioperator.operator(registry=bench.registry, transport=bench.cluster.transport())


async def test_a_storage_of_ones_own_is_flushed_after_each_batch(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    class Outside(trioperator.ProgressStorage):
        """Keep records beside the objects."""

        def __init__(self) -> None:
            self.records: dict[tuple[str, str], trioperator.ProgressRecord] = {}

        def fetch(self, *, key: str, body: trioperator.Body) -> trioperator.ProgressRecord | None:
            return self.records.get((body.meta.uid or "", key))

        def store(
            self, *, key: str, record: trioperator.ProgressRecord, body: trioperator.Body, patch: dict[str, Any]
        ) -> None:
            self.records[body.meta.uid or "", key] = record
            calls.append(f"store {key}")

        def purge(self, *, key: str, body: trioperator.Body, patch: dict[str, Any]) -> None:
            self.records.pop((body.meta.uid or "", key), None)
            calls.append(f"purge {key}")

        def flush(self) -> None:
            calls.append("flush")

    @on.create("widgets", id="one", registry=bench.registry)
    async def one(retry: int) -> None:
        if not retry:
            raise trioperator.TemporaryError("later", delay=5)

    @on.create("widgets", id="two", registry=bench.registry)
    async def two() -> None: ...

    bench.settings.persistence.progress_storage = Outside()
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert calls == ["store one", "store two", "flush", "purge one", "purge two", "flush"]


async def test_later_handlers_see_what_the_functions_of_earlier_patches_do(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []

    @on.create("widgets", id="first", registry=bench.registry)
    async def first(patch: trioperator.Patch, **_: Any) -> None:
        patch.fns.append(lambda body: body["spec"].update(size=body["spec"]["size"] + 1))
        patch.fns.append(lambda body: body["spec"].pop("nothing"))  # an error, reported when it is stored

    @on.create("widgets", id="second", registry=bench.registry)
    async def second(spec: Any, patch: trioperator.Patch, **_: Any) -> None:
        seen.append(spec["size"])
        patch.fns.append(lambda body: body["spec"].update(size=body["spec"]["size"] * 10))

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(10)
    assert seen == [2]
    assert (await bench.cluster.get("widgets", "w"))["spec"] == {"size": 20}


async def test_what_admission_control_forbids_is_dropped_and_not_tried_for_ever(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Admission(httpx.AsyncBaseTransport):
        inner = bench.cluster.transport()

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.method == "PATCH" and b"evil" in await request.aread():
                status = {"kind": "Status", "code": 403, "message": "admission webhook denied the request: no evil"}
                return httpx.Response(403, json=status)
            return await self.inner.handle_async_request(request)

    calls: list[str] = []

    @on.create("widgets", id="bad", registry=bench.registry)
    async def bad(patch: trioperator.Patch, **_: Any) -> None:
        calls.append("bad")
        patch.spec["evil"] = True

    @on.create("widgets", id="good", registry=bench.registry)
    async def good(patch: trioperator.Patch, **_: Any) -> None:
        calls.append("good")
        patch.spec["kind"] = True

    async with bench.running(transport=Admission()):
        await bench.cluster.create(widget(size=1))
        await settle(100)
        bench.cluster.requests.clear()
        await settle(1000)
    assert calls == ["bad", "good"]
    assert (await bench.cluster.get("widgets", "w"))["spec"] == {"size": 1, "kind": True}
    assert "the changes by Handler 'bad' are dropped: HTTP 403: admission webhook denied" in caplog.text
    assert bench.writes() == []


class Unreadable(collections.abc.Mapping[str, int]):
    """A mapping that fails when it is read."""

    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        raise OSError

    def __len__(self) -> int:
        return 1


async def test_a_handler_whose_result_cannot_be_read_has_failed(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(retry: int) -> Any:
        calls.append(retry)
        return Unreadable()

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(100)
    assert calls == [0]
    assert "Handler 'create' failed permanently: The result cannot be read: OSError()." in caplog.text


async def test_an_error_whose_text_cannot_be_sent_is_counted(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[int] = []

    @on.create("widgets", id="create", registry=bench.registry, backoff=1)
    async def create(retry: int) -> None:
        calls.append(retry)
        raise ValueError("a lone surrogate: \udcff")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(2.5)
    assert calls == [0, 1, 2]
    annotations = (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"]
    assert json.loads(annotations["trioperator.dev/create"])["message"] == "a lone surrogate: \\udcff"


@pytest.mark.parametrize("optional", [None, True])
async def test_a_handler_that_is_refused_a_write_is_called_again_a_second_later(
    optional: bool | None, bench: Bench, autojump_clock: MockClock
) -> None:
    called: list[tuple[float, int]] = []
    on_event = on.create if optional is None else functools.partial(on.delete, optional=True)

    @on_event("widgets", registry=bench.registry)
    async def handle(retry: int, **_: Any) -> None:
        called.append((trio.current_time() - began, retry))
        if len(called) <= 3:
            raise PausedError("the operator is paused")

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        if optional:
            await settle(1)
            began = trio.current_time()
            await bench.cluster.delete("widgets", "w")
        await settle(10)
    assert called == [(0, 0), (1, 0), (2, 0), (3, 0)]
