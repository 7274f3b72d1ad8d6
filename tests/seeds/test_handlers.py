"""Handlers of all reasons."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator as kopf
from tests.seeds.conftest import change, example, operating, rest
from trioperator.apiserver import Cluster


async def test_handlers_with_one_name_are_called_each_for_its_own_reason(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @kopf.on.create("kopfexamples")
    async def my_handler(spec: kopf.Spec, reason: str, **_: Any) -> None:
        calls.append(("created", reason, dict(spec)))

    @kopf.on.update("kopfexamples")  # type: ignore[no-redef]
    async def my_handler(spec: kopf.Spec, old: Any, new: Any, diff: Any, reason: str, **_: Any) -> None:  # noqa: F811
        calls.append(("updated", reason, old["spec"], new["spec"], tuple(diff)))

    @kopf.on.delete("kopfexamples")  # type: ignore[no-redef]
    async def my_handler(spec: kopf.Spec, reason: str, **_: Any) -> None:  # noqa: F811
        calls.append(("deleted", reason, dict(spec)))

    async with operating(kex):
        await kex.create(example(field="a"))
        await rest()
        await change(kex, field="b")
        await rest()
        await kex.delete("kopfexamples", "kex-1")
        await rest()
        assert await kex.list("kopfexamples") == []
    assert calls == [
        ("created", "create", {"field": "a"}),
        ("updated", "update", {"field": "a"}, {"field": "b"}, (("change", ("spec", "field"), "a", "b"),)),
        ("deleted", "delete", {"field": "b"}),
    ]


async def test_sync_handlers_are_called_with_the_same_arguments(kex: Cluster) -> None:
    calls: list[Any] = []

    @kopf.on.create("kopfexamples")
    @kopf.on.delete("kopfexamples")
    def my_handler(spec: kopf.Spec, name: str, reason: str, **_: Any) -> int:
        calls.append((reason, name, dict(spec)))
        return 100

    with trio.fail_after(60):
        async with operating(kex):
            await kex.create(example(field="a"))
            while not (await kex.get("kopfexamples", "kex-1")).get("status"):  # noqa: ASYNC110
                await trio.sleep(0.01)
            await kex.delete("kopfexamples", "kex-1")
            while await kex.list("kopfexamples"):  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert calls == [("create", "kex-1", {"field": "a"}), ("delete", "kex-1", {"field": "a"})]


async def test_bound_methods_get_their_instance(kex: Cluster, autojump_clock: MockClock) -> None:
    class MyCls:
        def __init__(self) -> None:
            self.names: list[str] = []

        async def my_handler(self, name: str, **_: Any) -> None:
            self.names.append(name)

    one, other = MyCls(), MyCls()
    kopf.on.create("kopfexamples")(one.my_handler)
    kopf.on.create("kopfexamples")(one.my_handler)
    kopf.on.create("kopfexamples", id="other")(other.my_handler)
    async with operating(kex):
        await kex.create(example())
        await rest()
    assert (one.names, other.names) == (["kex-1"], ["kex-1"])


async def test_event_handlers_get_every_event_as_received(kex: Cluster, autojump_clock: MockClock) -> None:
    events: list[Any] = []

    @kopf.on.event("kopfexamples")
    async def my_handler(event: kopf.RawEvent, type: str | None, name: str, **_: Any) -> None:
        assert event["object"]["kind"] == "KopfExample"
        events.append((event["type"], type, name, event["object"]["spec"]))

    await kex.create(example("old", field="x"))
    async with operating(kex):
        await rest()
        await kex.create(example(field="a"))
        await rest()
        await change(kex, field="b")
        await rest()
        await kex.delete("kopfexamples", "kex-1")
        await rest()
        assert all(request.method == "GET" for request in kex.requests if request.user_agent.startswith("trioperator"))
    assert events == [
        (None, None, "old", {"field": "x"}),
        ("ADDED", "ADDED", "kex-1", {"field": "a"}),
        ("MODIFIED", "MODIFIED", "kex-1", {"field": "b"}),
        ("DELETED", "DELETED", "kex-1", {"field": "b"}),
    ]


async def test_errors_of_event_handlers_are_logged_and_ignored(
    kex: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @kopf.on.event("kopfexamples")
    async def failing(type: str | None, **_: Any) -> None:
        calls.append(f"failing {type}")
        raise ValueError("oops")

    @kopf.on.event("kopfexamples")
    async def working(type: str | None, **_: Any) -> None:
        calls.append(f"working {type}")

    async with operating(kex):
        await kex.create(example())
        await rest(1000)
    assert calls == ["failing ADDED", "working ADDED"]
    assert any("oops" in record.getMessage() for record in caplog.records)


async def test_each_decorator_of_an_event_handler_has_its_own_filters(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @kopf.on.event("kopfexamples", labels={"b": kopf.PRESENT}, param="b")
    @kopf.on.event("kopfexamples", labels={"a": kopf.PRESENT}, param="a")
    async def my_handler(name: str, param: str, **_: Any) -> None:
        calls.append((name, param))

    async with operating(kex):
        await kex.create(example("one", meta={"labels": {"a": ""}}))
        await kex.create(example("two", meta={"labels": {"b": ""}}))
        await kex.create(example("both", meta={"labels": {"a": "", "b": ""}}))
        await kex.create(example("none"))
        await rest()
    assert sorted(calls) == [("both", "a"), ("one", "a"), ("two", "b")]


async def test_a_filter_that_raises_does_not_affect_other_event_handlers(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @kopf.on.event("kopfexamples", when=lambda spec, **_: spec["nonexistent"])
    async def never(**_: Any) -> None:
        raise AssertionError

    @kopf.on.create("kopfexamples")
    @kopf.on.event("kopfexamples")
    async def my_handler(**kwargs: Any) -> None:
        calls.append("create" if "reason" in kwargs else "event")

    async with operating(kex):
        await kex.create(example())
        await rest()
    assert calls[:2] == ["event", "create"]


async def test_a_handler_that_modifies_its_arguments_changes_nothing(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @kopf.on.create("kopfexamples")
    async def created(spec: kopf.Spec, **_: Any) -> None:
        spec["items"].append("meddled")

    @kopf.on.update("kopfexamples")
    async def updated(diff: Any, **_: Any) -> None:
        calls.append(diff)

    async with operating(kex):
        await kex.create(example(items=[1]))
        await rest()
    assert calls == []


async def test_status_changes_are_detected_with_a_status_field(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @kopf.on.update("kopfexamples", field="status")
    async def status_changes(old: Any, new: Any, **_: Any) -> None:
        calls.append((old, new))

    async with operating(kex):
        await kex.create(example())
        await rest()
        await kex.patch("kopfexamples", "kex-1", {"status": {"done": True}}, subresource="status")
        await rest()
        await kex.patch("kopfexamples", "kex-1", {"status": {"done": False}}, subresource="status")
        await rest()
    assert calls == [(None, {"done": True}), ({"done": True}, {"done": False})]


async def test_status_changes_are_ignored_without_a_status_field(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @kopf.on.update("kopfexamples")
    async def changed(diff: Any, **_: Any) -> None:
        calls.append(tuple(diff))

    async with operating(kex):
        await kex.create(example())
        await rest()
        await kex.patch("kopfexamples", "kex-1", {"status": {"done": True}}, subresource="status")
        await kex.patch("kopfexamples", "kex-1", {"metadata": {"finalizers": ["example.com/other"]}})
        await rest()
        assert calls == []
        await kex.patch("kopfexamples", "kex-1", {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})
        await rest()
    assert calls == [(("add", ("metadata",), None, {"labels": {"a": "b"}, "annotations": {"c": "d"}}),)]


async def test_a_function_for_creating_and_resuming_is_called_once_each_time(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @kopf.on.resume("kopfexamples")
    @kopf.on.create("kopfexamples")
    async def my_handler(name: str, reason: str, **_: Any) -> None:
        calls.append((name, reason))

    await kex.create(example("before"))
    async with operating(kex):
        await kex.create(example("while"))
        await rest()
    assert sorted(calls) == [("before", "create"), ("while", "create")]
    calls.clear()
    async with operating(kex):
        await rest()
        await kex.patch("kopfexamples", "while", {"spec": {"field": "x"}})
        await rest()
    assert sorted(calls) == [("before", "resume"), ("while", "resume")]


async def test_resuming_is_mixed_into_an_update_in_the_order_of_declaration(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @kopf.on.update("kopfexamples")
    async def update(reason: str, **_: Any) -> None:
        calls.append(("update", reason))

    @kopf.on.resume("kopfexamples")
    async def resume(reason: str, **_: Any) -> None:
        calls.append(("resume", reason))

    await kex.create(example(field="a"))
    async with operating(kex):
        await rest()
    calls.clear()
    await change(kex, field="b")
    async with operating(kex):
        await rest()
        await change(kex, field="c")
        await rest()
    assert calls == [("update", "update"), ("resume", "update"), ("update", "update")]


async def test_objects_being_deleted_are_resumed_only_with_deleted(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @kopf.on.delete("kopfexamples")
    async def deleted(**_: Any) -> None:
        calls.append("deleted")

    @kopf.on.resume("kopfexamples")
    async def resumed(**_: Any) -> None:
        calls.append("resumed")

    @kopf.on.resume("kopfexamples", deleted=True)
    async def always(**_: Any) -> None:
        calls.append("always")

    async with operating(kex):
        await kex.create(example())
        await rest()
    assert calls == []
    await kex.delete("kopfexamples", "kex-1")
    async with operating(kex):
        await rest()
    assert calls == ["deleted", "always"]
    assert await kex.list("kopfexamples") == []


async def test_a_field_handler_gets_the_change_of_its_field(kex: Cluster, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @kopf.on.field("kopfexamples", field="spec.somefield")
    async def somefield_changed(old: Any, new: Any, diff: Any, **_: Any) -> None:
        calls.append((old, new, tuple(diff)))

    async with operating(kex):
        await kex.create(example(other=1))
        for value in ("a", "b", None):
            await rest()
            await change(kex, somefield=value, other=value)
        await rest()
    assert calls == [
        (None, "a", (("add", (), None, "a"),)),
        ("a", "b", (("change", (), "a", "b"),)),
        ("b", None, (("remove", (), "b", None),)),
    ]


async def test_a_field_handler_that_fails_is_called_for_the_deletion_and_blocks_it(
    kex: Cluster, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @kopf.on.field("kopfexamples", field="spec.field", backoff=10, retries=3)
    async def changed(old: Any, new: Any, reason: str, retry: int, **_: Any) -> None:
        calls.append((old, new, reason, retry))
        if new == "bad":
            raise OSError("unreachable")

    @kopf.on.delete("kopfexamples")
    async def deleted(**_: Any) -> None:
        calls.append("deleted")

    async with operating(kex):
        await kex.create(example(field="good"))
        await rest()
        await change(kex, field="bad")
        await rest()
        assert calls == [(None, "good", "create", 0), ("good", "bad", "update", 0)]
        await kex.delete("kopfexamples", "kex-1")
        await rest()
        assert calls[2:] == [("good", "bad", "delete", 1), "deleted"]
        assert await kex.find("kopfexamples", "kex-1")
        await kex.wait_deleted("kopfexamples", "kex-1")
    assert calls[4:] == [("good", "bad", "delete", 2)]
