"""Handlers with on_change="cancel": a call in progress is cancelled when its object changes, and begins again."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on

CONFIG_MAP: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "w", "namespace": "default"},
    "data": {"size": "1"},
}


async def patch(bench: Bench, seconds: float = 1.0, **spec: Any) -> None:
    await bench.cluster.patch("widgets", "w", {"spec": spec})
    await settle(seconds)


async def test_a_change_cancels_the_call_in_progress_and_the_handler_begins_again(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    async def create(spec: Any, retry: int, patch: Any, **_: Any) -> str:
        calls.append(("begin", spec["size"], retry))
        patch.status[f"size{spec['size']}"] = "begun"
        try:
            await trio.sleep(10)
        except trio.Cancelled as cancelled:
            calls.append(str(cancelled))
            raise
        calls.append(("end", spec["size"]))
        return "created"

    caplog.set_level("INFO")
    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await patch(bench, 5, size=2)
        await settle(20)
    assert [call for call in calls if not isinstance(call, str)] == [("begin", 1, 0), ("begin", 2, 0), ("end", 2)]
    assert "the object has changed" in calls[1]
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"size2": "begun", "create": "created"}
    assert "Handler 'create' is interrupted: the object has changed." in caplog.text
    assert sorted(bench.writes()) == ["PATCH main", "PATCH status"]  # nothing for what was cancelled


async def test_by_default_a_call_may_finish(bench: Bench, autojump_clock: MockClock) -> None:
    ended: list[int] = []

    @on.create("widgets", id="create", on_change="finish", registry=bench.registry)
    @on.update("widgets", id="create", registry=bench.registry)
    async def create(spec: Any, **_: Any) -> None:
        await trio.sleep(10)
        ended.append(spec["size"])

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await patch(bench, 60, size=2)
    assert ended == [1, 2]


async def test_after_three_interruptions_in_a_row_a_call_may_finish(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    @on.update("widgets", id="create", on_change="cancel", registry=bench.registry)
    async def create(spec: Any, **_: Any) -> None:
        calls.append(spec["size"])
        await trio.sleep(10)
        calls.append("end")

    async with bench.running():
        await bench.cluster.create(widget(size=0))
        await settle(1)
        for size in range(1, 6):
            await patch(bench, size=size)
        assert calls == [0, 1, 2, 3]
        await settle(10)
        assert calls == [0, 1, 2, 3, "end", 5]
        for size in range(6, 9):  # the count begins anew with each call that was not interrupted
            await patch(bench, size=size)
        await settle(30)
    assert calls == [0, 1, 2, 3, "end", 5, 6, 7, 8, "end"]


async def test_after_three_interruptions_in_a_row_a_call_that_waits_is_interrupted_after_a_minute(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[tuple[int, float]] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    @on.update("widgets", id="create", on_change="cancel", registry=bench.registry)
    async def create(spec: Any, **_: Any) -> None:
        calls.append((spec["size"], trio.current_time()))
        if spec["size"] < 5:
            await trio.sleep_forever()

    async with bench.running():
        await bench.cluster.create(widget(size=0))
        await settle(1)
        for size in range(1, 4):
            await patch(bench, size=size)
        await patch(bench, 50, size=4)
        await patch(bench, 5, size=5)
        assert [size for size, _ in calls] == [0, 1, 2, 3]
        await settle(60)
    assert [size for size, _ in calls] == [0, 1, 2, 3, 5]
    assert calls[4][1] - calls[3][1] == pytest.approx(60, abs=0.1)


async def test_a_call_has_twice_as_long_after_each_further_interruption(
    bench: Bench, autojump_clock: MockClock
) -> None:
    began: list[float] = []
    ended: list[float] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    @on.update("widgets", id="create", on_change="cancel", registry=bench.registry)
    async def create(**_: Any) -> None:
        began.append(trio.current_time())
        await trio.sleep(200)
        ended.append(trio.current_time())

    async with bench.running():
        await bench.cluster.create(widget(size=0))
        for size in range(1, 80):
            await patch(bench, 5, size=size)
    assert [round(later - earlier, -1) for earlier, later in itertools.pairwise(began[3:6])] == [60, 120]
    assert ended[0] - began[5] == pytest.approx(200)  # of the 240 that it had


async def test_a_deletion_cancels_after_three_interruptions_in_a_row_too(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    @on.update("widgets", id="create", on_change="cancel", registry=bench.registry)
    async def create(spec: Any, **_: Any) -> None:
        calls.append(spec["size"])
        await trio.sleep_forever()

    async with bench.running():
        await bench.cluster.create(widget(size=0))
        await settle(1)
        for size in range(1, 5):
            await patch(bench, size=size)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        assert calls == [0, 1, 2, 3]
        stopped_at = trio.current_time()
    assert trio.current_time() == stopped_at  # nothing is waited for


async def test_a_deletion_cancels_too(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    async def create(**_: Any) -> None:
        calls.append("create")
        await trio.sleep_forever()

    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        calls.append("delete")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        assert await bench.cluster.list("widgets") == []
    assert calls == ["create", "delete"]


async def test_an_object_that_is_gone_needs_no_handler(bench: Bench, autojump_clock: MockClock) -> None:
    ended = trio.Event()

    @on.resume("widgets", on_change="cancel", registry=bench.registry)
    @on.create("widgets", on_change="cancel", registry=bench.registry)
    async def create(**_: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        await bench.cluster.delete("widgets", "w")  # no finalizer: it is gone at once
        await settle(1)
        assert ended.is_set()


@pytest.mark.parametrize("finalized", [False, True])
async def test_a_deletion_before_the_next_call_has_begun_cancels_it(
    finalized: bool, bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    async def create(spec: Any, **_: Any) -> None:
        calls.append(("begin", spec["size"]))
        try:
            await trio.sleep_forever()
        finally:
            calls.append("end")

    @on.delete("widgets", id="delete", optional=not finalized, registry=bench.registry)
    async def delete(**_: Any) -> None:
        calls.append("delete")

    plan = FaultPlan()
    plan.add(Fault.delay(after=2), verb="get", resource="widgets")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await patch(bench, size=2)  # the object is read again before the next call, which takes two seconds
        await bench.cluster.delete("widgets", "w")
        await settle(10)
        assert calls[0] == ("begin", 1)
        assert calls.count("end") == len([call for call in calls if call[0] == "begin"])
        assert calls[-1] == "delete"
        assert await bench.cluster.list("widgets") == []


async def test_a_change_before_the_next_call_has_begun_cancels_it(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    def create(spec: Any, client: Any, **_: Any) -> None:
        calls.append(spec["wait"])
        if spec["wait"]:
            client.wait_for("configmaps", spec["wait"], condition=lambda _: True)

    plan = FaultPlan()
    plan.add(Fault.delay(after=2), verb="get", resource="widgets")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget(wait="never"))
        await settle(5)
        await patch(bench, wait="nor-this")
        await patch(bench, 10, wait="")
        assert calls[-1] == ""


async def test_what_changes_no_generation_does_not_cancel(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.event("widgets", registry=bench.registry)
    async def event(**_: Any) -> None: ...

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    async def create(**_: Any) -> None:
        calls.append("create")
        await trio.sleep(10)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"some": "label"}}})
        await bench.cluster.patch("widgets", "w", {"status": {"some": "status"}}, subresource="status")
        await settle(30)
    assert calls == ["create"]


async def test_kinds_without_a_generation_are_compared_by_their_essence(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @on.create("configmaps", id="create", on_change="cancel", registry=bench.registry)
    async def create(body: Any, **_: Any) -> None:
        calls.append(body["data"]["size"])
        await trio.sleep(10)

    async with bench.running():
        await bench.cluster.create(CONFIG_MAP)
        await settle(1)
        theirs = {"trioperator.dev/kopf-managed": "yes", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
        await bench.cluster.patch("configmaps", "w", {"metadata": {"annotations": theirs}})
        await settle(1)
        await bench.cluster.patch("configmaps", "w", {"data": {"size": "2"}})
        await settle(30)
    assert calls == ["1", "2"]


async def test_what_earlier_handlers_want_stored_does_not_interrupt_later_ones(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="first", registry=bench.registry)
    async def first(patch: Any, **_: Any) -> None:
        patch.spec["colour"] = "red"

    @on.create("widgets", id="second", on_change="cancel", registry=bench.registry)
    async def second(spec: Any, **_: Any) -> None:
        calls.append(spec["colour"])
        await trio.sleep(10)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(30)
        assert (await bench.cluster.get("widgets", "w"))["spec"]["colour"] == "red"
    assert calls == ["red"]


async def test_changes_in_the_response_to_an_own_request_cancel_too(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="first", registry=bench.registry)
    async def first(spec: Any, **_: Any) -> None:
        calls.append(("first", spec["size"]))

    @on.create("widgets", id="second", on_change="cancel", registry=bench.registry)
    async def second(spec: Any, **_: Any) -> None:
        calls.append(("second", spec["size"]))
        if spec["size"] == 1:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 10)
                # Between the call and the storing of how the first one has ended.
                await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        assert calls == [("first", 1), ("second", 1), ("second", 2)]


async def test_the_progress_of_others_is_kept(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="a", registry=bench.registry)
    async def a(**_: Any) -> str:
        calls.append("a")
        return "a"

    @on.create("widgets", id="b", on_change="cancel", registry=bench.registry)
    async def b(spec: Any, **_: Any) -> None:
        @trioperator.subhandler()
        async def quick() -> None:
            calls.append("b/quick")

        @trioperator.subhandler()
        async def slow() -> None:
            calls.append(f"b/slow{spec['size']}")
            await trio.sleep(10)

        calls.append("b")

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await patch(bench, 30, size=2)
    assert calls == ["a", "b", "b/quick", "b/slow1", "b", "b/slow2"]


async def test_errors_while_it_is_cancelled_are_logged_and_do_not_count(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []

    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while cleaning up")

    @on.create("widgets", id="create", on_change="cancel", retries=1, registry=bench.registry)
    async def create(spec: Any, retry: int, **_: Any) -> None:
        calls.append((spec["size"], retry))
        if spec["size"] == 1:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail)
                await trio.sleep_forever()

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await patch(bench, size=2)
    assert calls == [(1, 0), (2, 0)]
    assert "Handler 'create' failed while it was cancelled" in caplog.text
    assert "while cleaning up" in caplog.text


async def test_a_call_that_ignores_the_cancellation_has_its_outcome(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    async def create(spec: Any, **_: Any) -> int:
        calls.append(spec["size"])
        with trio.CancelScope(shield=True):
            await trio.sleep(10)
        return int(spec["size"])

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await patch(bench, 30, size=2)
    assert calls == [1]
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"create": 1}


@pytest.mark.parametrize("checking", [True, False])
async def test_a_thread_is_signalled_and_waited_for(checking: bool, bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []
    signalled = threading.Event()
    at_work = [0]

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    def create(spec: Any, **_: Any) -> int:
        at_work[0] += 1
        calls.append((spec["size"], at_work[0]))
        try:
            while spec["size"] == 1:
                try:
                    trio.from_thread.run(trio.sleep, 0.1)
                    trio.from_thread.check_cancelled()
                except trio.Cancelled:
                    signalled.set()
                    if checking:
                        raise
                    break
        finally:
            at_work[0] -= 1
        return int(spec["size"])

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await patch(bench, size=2)
        await settle(30)
    assert signalled.is_set()
    assert calls == ([(1, 1), (2, 1)] if checking else [(1, 1)])  # never two at once
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"create": 2 if checking else 1}


async def test_an_error_of_a_thread_that_was_signalled_counts(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    def create(spec: Any, retry: int, **_: Any) -> None:
        calls.append((spec["size"], retry))
        while spec["size"] == 1:
            trio.from_thread.run(trio.sleep, 0.1)
            try:
                trio.from_thread.check_cancelled()
            except trio.Cancelled:
                raise trioperator.TemporaryError("of its own", delay=5) from None

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await patch(bench, size=2)
        await settle(30)
    assert calls == [(1, 0), (2, 1)]


@pytest.mark.parametrize("checking", [True, False])
async def test_a_sub_handler_in_a_thread_is_signalled_and_waited_for(
    checking: bool, bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []
    at_work = [0]

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    async def create(spec: Any) -> None:
        await trioperator.execute(fns={"item": item})

    def item(spec: Any) -> int:
        at_work[0] += 1
        calls.append((spec["size"], at_work[0]))
        try:
            while spec["size"] == 1:
                try:
                    trio.from_thread.run(trio.sleep, 0.1)
                    trio.from_thread.check_cancelled()
                except trio.Cancelled:
                    if checking:
                        raise
                    break
        finally:
            at_work[0] -= 1
        return int(spec["size"])

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await patch(bench, size=2)
        await settle(30)
    assert calls == ([(1, 1), (2, 1)] if checking else [(1, 1)])  # never two at once, and none that has ended
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"create/item": 2 if checking else 1}


async def test_a_stop_abandons_a_thread_that_ignores_everything(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()
    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()

    @on.create("widgets", on_change="cancel", registry=bench.registry)
    def create(**_: Any) -> None:
        token.run_sync_soon(begun.set)
        release.wait(30)

    bench.settings.process.grace = 0.5
    with trio.fail_after(60):
        async with bench.running():
            await bench.cluster.create(widget(size=1))
            await begun.wait()
            await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
    assert not release.is_set()
    assert "is still running in a thread, which is abandoned." in caplog.text
    release.set()


async def test_field_handlers_are_interrupted_by_any_newer_generation(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.field("widgets", field="spec.size", id="field", on_change="cancel", registry=bench.registry)
    async def field(new: Any, spec: Any, **_: Any) -> None:
        calls.append((new, spec.get("colour")))
        await trio.sleep(10)

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await patch(bench, 5, colour="red")
        await patch(bench, 30, size=2)
    assert calls == [(1, None), (1, "red"), (2, "red")]


@pytest.mark.parametrize("decorate", [on.create, on.update, on.resume])
def test_the_option_has_two_values(decorate: Any) -> None:
    with pytest.raises(ValueError, match="on_change='never': it must be 'finish' or 'cancel'"):
        decorate("widgets", on_change="never")


@pytest.mark.parametrize("decorate", [on.delete, on.event, on.daemon, on.timer, on.index])
def test_others_do_not_have_the_option(decorate: Any) -> None:
    with pytest.raises(TypeError, match="has no option on_change"):
        decorate("widgets", on_change="cancel")


WAITS: dict[str, Any] = {
    "a condition": lambda client, name: client.wait_for("configmaps", name, condition=lambda _: True),
    "a watch": lambda client, name: next_event(client, name),
    "a deletion": lambda client, name: client.wait_deleted("widgets", "w") if name == "typo" else None,
}


def next_event(client: trioperator.SyncClient, name: str) -> None:
    with client.watch("configmaps", name=name) as events:
        next(iter(events))


@pytest.mark.parametrize("wait", WAITS)
async def test_a_sync_handler_that_waits_by_its_client_is_cancelled_too(
    bench: Bench, autojump_clock: MockClock, wait: str
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    def create(spec: Any, client: trioperator.SyncClient, **_: Any) -> None:
        calls.append(spec["wait"])
        WAITS[wait](client, spec["wait"])
        calls.append("end")

    async with bench.running():
        await bench.cluster.create(CONFIG_MAP)
        await bench.cluster.create(widget(wait="typo"))
        await settle(5)
        assert calls == ["typo"]
        await patch(bench, 5, wait="w")
        assert calls == ["typo", "w", "end"]


async def test_a_sync_handler_that_waits_by_its_client_is_cancelled_at_the_end_of_the_grace_period(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled = threading.Event()
    bench.settings.process.grace = 5

    @on.create("widgets", id="create", registry=bench.registry)
    def create(client: trioperator.SyncClient, **_: Any) -> None:
        try:
            client.wait_for("configmaps", "never", condition="Ready")
        except trio.Cancelled:
            cancelled.set()
            raise

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
    assert await trio.to_thread.run_sync(cancelled.wait, 10)


async def test_a_deletion_that_only_the_response_to_saved_progress_shows_is_handled(
    bench: Bench, autojump_clock: MockClock
) -> None:
    deleted: list[str] = []

    @on.create("widgets", id="first", registry=bench.registry)
    async def first(**_: Any) -> None: ...

    @on.create("widgets", id="second", registry=bench.registry)
    async def second(patch: Any, **_: Any) -> None:
        await trio.sleep(bench.settings.persistence.write_delay)
        patch.status["phase"] = "Ready"

    @on.delete("widgets", registry=bench.registry)
    async def delete(name: str, **_: Any) -> None:
        deleted.append(name)

    async with bench.running():
        await bench.cluster.create(widget())
        await trio.sleep(bench.settings.persistence.write_delay / 2)
        await bench.cluster.delete("widgets", "w")
        await settle(100)
        assert await bench.cluster.find("widgets", "w") is None
    assert deleted == ["w"]
