"""A handler sees everything that the handlers before it have written, by whatever client, however late the watch is."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
Write = Callable[[Bench, Any, dict[str, Any]], Any]


async def by_its_client(bench: Bench, client: Any, status: dict[str, Any]) -> None:
    await client.patch("widgets", "w", merge={"status": status}, namespace="default", subresource="status")


async def by_another_client(bench: Bench, client: Any, status: dict[str, Any]) -> None:
    await bench.cluster.patch("widgets", "w", {"status": status}, subresource="status")
    await trio.lowlevel.checkpoint()


def lagging(bench: Bench, seconds: float = 5, *, plan: FaultPlan | None = None) -> FaultyTransport:
    """Return a transport whose watch events come late."""
    plan = FaultPlan() if plan is None else plan
    plan.add(Fault.lag(seconds), watch=True, path="/widgets")
    return FaultyTransport(bench.cluster.transport(), plan)


def reads(bench: Bench) -> int:
    """Return how often the operator has read the object."""
    return sum(request.verb == "get" and request.name == "w" for request in bench.cluster.requests)


@pytest.mark.parametrize("write", [by_its_client, by_another_client])
async def test_the_next_handler_sees_what_an_async_one_has_written(
    bench: Bench, autojump_clock: MockClock, write: Write
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="one", registry=bench.registry)
    async def one(client: Any, **_: Any) -> None:
        calls.append("one")
        await write(bench, client, {"first": "done"})

    @on.create("widgets", id="two", registry=bench.registry)
    async def two(status: Any, **_: Any) -> None:
        calls.append(dict(status))

    async with bench.running(transport=lagging(bench)):
        await bench.cluster.create(widget())
        await settle(30)
    assert calls == ["one", {"first": "done"}]
    assert reads(bench) == 1


async def test_the_next_handler_sees_what_a_sync_one_has_written(bench: Bench) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="one", registry=bench.registry)
    def one(client: Any, **_: Any) -> None:
        calls.append("one")
        client.patch("widgets", "w", merge={"status": {"first": "done"}}, namespace="default", subresource="status")

    done = trio.Event()

    @on.create("widgets", id="two", registry=bench.registry)
    async def two(status: Any, **_: Any) -> None:
        calls.append(dict(status))
        done.set()

    async with bench.running(transport=lagging(bench, 0.5)):
        await bench.cluster.create(widget())
        with trio.fail_after(10):
            await done.wait()
    assert calls == ["one", {"first": "done"}]


async def test_handlers_that_only_compute_cost_no_requests(bench: Bench, autojump_clock: MockClock) -> None:
    for number in range(3):

        @on.create("widgets", id=f"create{number}", registry=bench.registry)
        async def create(patch: trioperator.Patch, **_: Any) -> None:
            patch.status["x"] = 1

            @trioperator.subhandler()
            async def child(**_: Any) -> None: ...

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert reads(bench) == 0
    assert bench.writes() == ["PATCH status", "PATCH main"]


async def test_an_async_handler_that_blocks_the_event_loop_may_have_done_anything(
    bench: Bench, autojump_clock: MockClock
) -> None:
    """As one that uses a library for sync functions does."""
    for number in range(2):

        @on.create("widgets", id=f"create{number}", registry=bench.registry)
        async def create(**_: Any) -> None:
            time.sleep(0.003)  # noqa: ASYNC251 -- on purpose

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert reads(bench) == 1


@pytest.mark.parametrize("count", [1, 2, 4])
async def test_handlers_that_wait_cost_one_request_between_them(
    bench: Bench, autojump_clock: MockClock, count: int
) -> None:
    for number in range(count):

        @on.create("widgets", id=f"create{number}", registry=bench.registry)
        async def create(**_: Any) -> None:
            await trio.sleep(0.01)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert reads(bench) == count - 1
    assert bench.writes() == ["PATCH main"]


async def test_each_handler_is_called_once_however_often_the_object_changes(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """More handlers than reconciles that may change an object in a row."""
    calls: list[Any] = []
    for number in range(15):

        @on.create("widgets", id=f"create{number}", registry=bench.registry)
        @on.update("widgets", id=f"update{number}", registry=bench.registry)
        async def create(status: Any, client: Any, retry: int, number: int = number, **_: Any) -> None:
            calls.append((number, len(status), retry))
            await by_its_client(bench, client, {f"field{number}": "x"})

    began = trio.current_time()
    async with bench.running(transport=lagging(bench)):
        await bench.cluster.create(widget())
        await settle(5.5)
        assert calls == [(number, number, 0) for number in range(15)]
        await settle(30)
    assert len(calls) == 15
    assert trio.current_time() - began < 37
    assert "loop" not in caplog.text


async def test_a_change_of_the_spec_by_a_handler_is_seen_by_the_next_one_and_handled_as_an_update(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="one", registry=bench.registry)
    async def one(client: Any, **_: Any) -> None:
        await client.patch("widgets", "w", merge={"spec": {"size": 2}}, namespace="default")

    @on.create("widgets", id="two", registry=bench.registry)
    async def two(spec: Any, new: Any, **_: Any) -> None:
        calls.append((spec["size"], new["spec"]["size"]))

    @on.update("widgets", id="update", registry=bench.registry)
    async def update(diff: Any, **_: Any) -> None:
        calls.append([tuple(item) for item in diff])

    async with bench.running(transport=lagging(bench)):
        await bench.cluster.create(widget(size=1))
        await settle(30)
    assert calls == [(2, 2), [("change", ("spec", "size"), 1, 2)]]


async def test_the_filters_of_the_next_handler_see_what_was_written(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.create("widgets", id="one", registry=bench.registry)
    async def one(client: Any, **_: Any) -> None:
        await by_its_client(bench, client, {"skip": True})

    @on.create("widgets", id="two", when=lambda status, **_: not status.get("skip"), registry=bench.registry)
    async def two(**_: Any) -> None:
        calls.append("two")

    @on.create("widgets", id="three", when=lambda status, **_: status.get("skip"), registry=bench.registry)
    async def three(**_: Any) -> None:
        calls.append("three")

    async with bench.running(transport=lagging(bench)):
        await bench.cluster.create(widget())
        await settle(30)
    assert calls == ["three"]


async def test_what_handlers_want_stored_is_shown_on_top_of_what_they_have_written(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []

    @on.create("widgets", id="one", registry=bench.registry)
    async def one(client: Any, patch: trioperator.Patch, **_: Any) -> int:
        patch.status["patched"] = 1
        await by_its_client(bench, client, {"written": 1})
        return 1

    @on.create("widgets", id="two", registry=bench.registry)
    async def two(status: Any, **_: Any) -> None:
        seen.append(dict(status))

    async with bench.running(transport=lagging(bench)):
        await bench.cluster.create(widget())
        await settle(30)
    assert seen == [{"patched": 1, "written": 1, "one": 1}]
    assert (await bench.cluster.get("widgets", "w"))["status"] == seen[0]


async def test_a_failed_handler_may_have_written_too(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="one", registry=bench.registry)
    async def one(client: Any, retry: int, **_: Any) -> None:
        calls.append("one")
        await by_its_client(bench, client, {"tries": retry})
        if not retry:
            raise trioperator.TemporaryError("again", delay=60)

    @on.create("widgets", id="two", registry=bench.registry)
    async def two(status: Any, **_: Any) -> None:
        calls.append(dict(status))

    async with bench.running(transport=lagging(bench)):
        await bench.cluster.create(widget())
        await settle(100)
    assert calls == ["one", {"tries": 0}, "one"]


async def test_sub_handlers_see_what_their_parent_and_those_before_them_have_written(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="parent", registry=bench.registry)
    async def parent(client: Any, **_: Any) -> None:
        calls.append("parent")
        await by_its_client(bench, client, {"parent": 1})

        async def child(status: Any, name: str, **_: Any) -> None:
            calls.append(dict(status))
            await by_its_client(bench, client, {f"child{len(calls)}": 1})

        await trioperator.execute(fns={str(number): functools.partial(child) for number in range(2)})

    @on.create("widgets", id="next", registry=bench.registry)
    async def after(status: Any, **_: Any) -> None:
        calls.append(dict(status))

    async with bench.running(transport=lagging(bench)):
        await bench.cluster.create(widget())
        await settle(30)
    assert calls == [
        "parent",
        {"parent": 1},
        {"parent": 1, "child2": 1},
        {"parent": 1, "child2": 1, "child3": 1},
    ]
    assert reads(bench) == 3


async def test_a_parent_is_called_again_if_a_sub_handler_changes_the_spec(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="parent", registry=bench.registry)
    async def parent(spec: Any, **_: Any) -> None:
        calls.append(("parent", spec["size"]))

        async def one(client: Any, **_: Any) -> None:
            calls.append("one")
            await client.patch("widgets", "w", merge={"spec": {"size": 2}}, namespace="default")

        async def two(spec: Any, **_: Any) -> None:
            calls.append(("two", spec["size"]))

        fns: dict[str, Any] = {"one": one, "two": two}
        await trioperator.execute(fns=fns)

    async with bench.running(transport=lagging(bench)):
        await bench.cluster.create(widget(size=1))
        await settle(30)
    assert calls == [("parent", 1), "one", ("parent", 2), ("two", 2)]


async def test_reconcile_handlers_see_what_handlers_of_changes_and_each_other_have_written(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @on.resume("widgets", id="resume", registry=bench.registry)
    async def resume(client: Any, **_: Any) -> None:
        calls.append("resume")
        await by_its_client(bench, client, {"resumed": 1})

    @on.reconcile("widgets", id="one", registry=bench.registry)
    async def one(client: Any, status: Any, **_: Any) -> list[Any]:
        calls.append(("one", dict(status)))
        await by_its_client(bench, client, {"one": 1})
        return []

    @on.reconcile("widgets", id="two", registry=bench.registry)
    async def two(status: Any, **_: Any) -> list[Any]:
        calls.append(("two", dict(status)))
        return []

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(10)
    calls.clear()
    await bench.cluster.patch("widgets", "w", {"status": None}, subresource="status")
    async with bench.running(transport=lagging(bench)):
        await settle(30)
    assert calls == ["resume", ("one", {"resumed": 1}), ("two", {"resumed": 1, "one": 1})]


async def test_an_object_that_a_handler_has_deleted_is_not_passed_to_the_next_one(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    calls: list[Any] = []

    @on.create("widgets", id="one", registry=bench.registry)
    async def one(client: Any, name: str, **_: Any) -> None:
        calls.append("one")
        await client.delete("widgets", name, namespace="default")

    @on.create("widgets", id="two", registry=bench.registry)
    async def two(**_: Any) -> None:
        calls.append("two")

    async with bench.running(transport=lagging(bench, 0.5)):
        await bench.cluster.create(widget())
        await settle(30)
        await bench.cluster.create(widget())
        await settle(30)
    assert calls == ["one", "one"]
    assert caplog.messages == []


async def test_without_the_right_to_read_objects_they_are_read_by_empty_patches(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []

    @on.create("widgets", id="one", registry=bench.registry)
    async def one(client: Any, **_: Any) -> None:
        await by_its_client(bench, client, {"first": 1})

    @on.create("widgets", id="two", registry=bench.registry)
    async def two(status: Any, client: Any, **_: Any) -> None:
        seen.append(dict(status))
        await by_its_client(bench, client, {"second": 1})

    @on.create("widgets", id="three", registry=bench.registry)
    async def three(status: Any, **_: Any) -> None:
        seen.append(dict(status))

    plan = FaultPlan()
    rule = plan.add(Fault.status(403), method="GET", verb="get", path="/widgets/w")
    async with bench.running(transport=lagging(bench, plan=plan)):
        await bench.cluster.create(widget())
        await settle(30)
    assert seen == [{"first": 1}, {"first": 1, "second": 1}]
    assert rule.hits == 1


async def test_the_next_handler_waits_until_the_object_can_be_read(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="one", registry=bench.registry)
    async def one(client: Any, **_: Any) -> None:
        calls.append("one")
        await by_its_client(bench, client, {"first": 1})

    @on.create("widgets", id="two", registry=bench.registry)
    async def two(status: Any, **_: Any) -> None:
        calls.append(dict(status))

    plan = FaultPlan()
    plan.add(Fault.status(500), method="GET", path="/widgets/w", until=trio.current_time() + 120)
    async with bench.running(transport=lagging(bench, plan=plan)):
        await bench.cluster.create(widget())
        await settle(20)
        assert calls == ["one"]
        await settle(1000)
    assert calls == ["one", {"first": 1}]


def fail_to_log_in() -> None:
    raise trioperator.LoginError("The credentials have expired, and there are no others yet.")


@pytest.mark.parametrize("fault", [Fault.status(500), Fault.status(409), Fault.half_body(), Fault.call(fail_to_log_in)])
async def test_a_parent_does_not_fail_because_its_object_cannot_be_read_between_sub_handlers(
    bench: Bench, autojump_clock: MockClock, fault: Fault
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="parent", errors=trioperator.ErrorsMode.PERMANENT, retries=2, registry=bench.registry)
    async def parent(**_: Any) -> None:
        calls.append("parent")

        async def one(client: Any, **_: Any) -> None:
            calls.append("one")
            await by_its_client(bench, client, {"first": 1})

        async def two(status: Any, **_: Any) -> None:
            calls.append(dict(status))

        fns: dict[str, Any] = {"one": one, "two": two}
        await trioperator.execute(fns=fns)

    plan = FaultPlan()
    plan.add(fault, method="GET", path="/widgets/w", until=trio.current_time() + 120)
    async with bench.running(transport=lagging(bench, plan=plan)):
        await bench.cluster.create(widget())
        await settle(1000)
    assert calls == ["parent", "one", "parent", {"first": 1}]
