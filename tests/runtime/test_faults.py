"""What breaks between the operator and the API server, and that nothing is lost by it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
LAST = "trioperator.dev/last-handled-configuration"

WATCH_FAULTS = {
    "refused": Fault.refuse(),
    "reset": Fault.reset(),
    "closed at once": Fault.close(),
    "broken off": Fault.break_off(),
    "half a line": Fault.half_line(),
    "garbage": Fault.garbage(),
    "silent": Fault.silence(),
    "answers nothing": Fault.stall(),
    **{f"ERROR {code}": Fault.error_event(code) for code in (410, 429, 500, 504)},
    **{f"HTTP {code}": Fault.status(code) for code in (400, 403, 404, 410, 429, 500, 503, 504)},
}


def count_creations(bench: Bench) -> list[str]:
    created: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(name: str, **_: Any) -> None:
        created.append(name)

    return created


@pytest.mark.parametrize("fault", WATCH_FAULTS.values(), ids=WATCH_FAULTS.keys())
async def test_a_watch_goes_on_after(fault: Fault, bench: Bench, autojump_clock: MockClock) -> None:
    created = count_creations(bench)
    plan = FaultPlan()
    plan.add(fault, watch=True, path="/widgets", until=300)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("before"))
        await trio.sleep(301)
        await bench.cluster.create(widget("after"))
        # A stream that has begun to be silent just before is ended 30 s after the 600 s that it may last at most.
        await settle(635 if fault.kind in ("silence", "stall") else 40)
        assert sorted(created) == ["after", "before"]


@pytest.mark.parametrize("code", [400, 403, 404, 410, 429, 500, 503])
async def test_a_list_that_fails_is_retried_and_holds_up_no_other_kind(
    code: int, bench: Bench, autojump_clock: MockClock
) -> None:
    created = count_creations(bench)

    @on.create("gadgets", id="gadget", registry=bench.registry)
    async def gadget(name: str, **_: Any) -> None:
        created.append(f"gadget {name}")

    plan = FaultPlan()
    plan.add(Fault.status(code), path="/widgets", until=300)
    await bench.cluster.create(widget("w"))
    await bench.cluster.create(widget("g", kind="Gadget"))
    async with trio.open_nursery() as nursery:
        async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
            await settle(1)
            assert created == ["gadget g"]
            await settle(400)
            assert created == ["gadget g", "w"]
        nursery.cancel_scope.cancel()


async def test_a_watcher_that_gets_410_lists_again_and_finds_what_has_vanished(
    bench: Bench, autojump_clock: MockClock
) -> None:
    events: list[Any] = []

    @on.event("widgets", id="event", registry=bench.registry)
    async def event(type: Any, name: str, **_: Any) -> None:
        events.append((type, name))

    bench.settings.watching.client_timeout = 5  # so that streams end
    plan = FaultPlan()
    await bench.cluster.create(widget("stays"))
    await bench.cluster.create(widget("goes"))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(1)
        events.clear()
        rule = plan.add(Fault.refuse(), watch=True, path="/widgets")
        await settle(10)
        await bench.cluster.delete("widgets", "goes")
        await bench.cluster.create(widget("comes"))
        bench.cluster.compact()
        plan.remove(rule)
        plan.clear()
        await settle(60)
    assert sorted(events, key=str) == [("DELETED", "goes"), (None, "comes")]


async def test_a_vanished_object_is_handled_as_gone_once(bench: Bench, autojump_clock: MockClock) -> None:
    gone: list[Any] = []

    @on.delete("widgets", id="delete", optional=True, registry=bench.registry)
    async def delete(name: str, uid: str, spec: trioperator.Spec, **_: Any) -> None:
        gone.append((name, dict(spec)))

    bench.settings.watching.client_timeout = 5  # so that streams end
    plan = FaultPlan()
    await bench.cluster.create(widget("w", size=7))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(1)
        rule = plan.add(Fault.refuse(), watch=True, path="/widgets")
        await settle(10)
        await bench.cluster.delete("widgets", "w")
        await bench.cluster.create(widget("w", size=8))
        bench.cluster.compact()
        plan.remove(rule)
        await settle(600)
    assert gone == [("w", {"size": 7})]


async def test_a_stream_that_repeats_itself_repeats_nothing(bench: Bench, autojump_clock: MockClock) -> None:
    created = count_creations(bench)
    plan = FaultPlan()
    plan.add(Fault.duplicate(), watch=True, path="/widgets")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w"))
        await settle(10)
    assert created == ["w"]


@pytest.mark.parametrize("code", [500, 503, 429])
async def test_a_patch_that_fails_for_a_while_is_sent_again_and_no_handler_is_called_twice(
    code: int, bench: Bench, autojump_clock: MockClock
) -> None:
    created = count_creations(bench)
    plan = FaultPlan()
    plan.add(Fault.status(code), method="PATCH", until=300)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w"))
        await settle(1000)
    assert created == ["w"]
    assert LAST in (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"]


async def test_a_patch_whose_response_is_lost_is_sent_again(bench: Bench, autojump_clock: MockClock) -> None:
    created = count_creations(bench)

    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        pass

    plan = FaultPlan()
    plan.add(Fault.lose_answer(), method="PATCH", times=3)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w"))
        await settle(60)
        body = await bench.cluster.get("widgets", "w")
        assert body["metadata"]["finalizers"] == ["trioperator.dev/finalizer"]
        assert LAST in body["metadata"]["annotations"]
        plan.add(Fault.lose_answer(), method="PATCH", times=1)
        await bench.cluster.delete("widgets", "w")
        await settle(60)
        assert await bench.cluster.list("widgets") == []
    assert created == ["w"]


@pytest.mark.parametrize("answer", [b"", b"<html>", b"{}", Fault.status(500).body], ids=repr)
async def test_a_successful_response_without_the_object_is_none(
    answer: bytes, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    created = count_creations(bench)
    plan = FaultPlan()
    plan.add(Fault.answer(200, answer), method="PATCH", until=20)
    plan.add(Fault.answer(200, answer), path="/widgets", until=10)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w"))
        await settle(100)
        assert LAST in (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"]
    assert created == ["w"]
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize(
    "fault",
    [Fault.lose_answer(), Fault.status(409), Fault.answer(200, b"{")],
    ids=lambda fault: f"{fault.kind}{fault.code or ''}",
)
@pytest.mark.parametrize("times", [1, 10])
async def test_whichever_patch_fails_everything_is_stored_and_nothing_left_behind(
    times: int, fault: Fault, number: int, bench: Bench, autojump_clock: MockClock
) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> int:
        async def part(patch: trioperator.Patch, **_: Any) -> None:
            await trio.sleep(1)
            patch.fns.append(lambda body: body.setdefault("status", {}).setdefault("calls", []).append("part"))

        trioperator.register(part, id="part")
        patch.fns.append(lambda body: body["spec"].setdefault("calls", []).append("create"))
        return 80

    plan = FaultPlan()
    plan.add(fault, method="PATCH", skip=number, times=times)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w"))
        await settle(1000)
    body = await bench.cluster.get("widgets", "w")
    assert body["spec"]["calls"] == ["create"]
    assert body["status"] == {"create": 80, "calls": ["part"]}
    assert {key for key in body["metadata"]["annotations"] if "create" in key} == set()


async def test_a_patch_that_is_forbidden_for_one_object_delays_only_this_one(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    created = count_creations(bench)
    plan = FaultPlan()
    plan.add(Fault.status(403, message="not this one"), method="PATCH", path="/widgets/bad", until=100)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("bad"))
        await bench.cluster.create(widget("good"))
        await settle(5)
        assert LAST in (await bench.cluster.get("widgets", "good"))["metadata"]["annotations"]
        assert LAST not in (await bench.cluster.get("widgets", "bad"))["metadata"].get("annotations", {})
        await settle(200)
        assert LAST in (await bench.cluster.get("widgets", "bad"))["metadata"]["annotations"]
    assert sorted(created) == ["bad", "good"]
    assert "not this one" in caplog.text


async def test_results_are_not_lost_while_patches_fail(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> dict[str, int]:
        patch.spec["more"] = True
        return {"port": 80}

    plan = FaultPlan()
    plan.add(Fault.status(403), method="PATCH", until=100)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w"))
        await settle(500)
    body = await bench.cluster.get("widgets", "w")
    assert body["status"] == {"create": {"port": 80}}
    assert body["spec"]["more"] is True


@pytest.mark.parametrize("merged", [{}, {"merged": 1}])
@pytest.mark.parametrize("seconds", [0, 100])
async def test_what_functions_change_in_a_status_is_not_lost_while_only_that_is_forbidden(
    seconds: float, merged: dict[str, int], bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.create("widgets", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        def change(body: dict[str, Any]) -> None:
            body["spec"].setdefault("calls", []).append("create")
            body.setdefault("status", {}).setdefault("calls", []).append("create")

        patch.fns.append(change)
        if merged:
            patch.status.update(merged)

    plan = FaultPlan()
    rule = plan.add(Fault.status(403), verb="patch", subresource="status", times=None if seconds else 1)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w"))
        await settle(seconds)
        plan.remove(rule)
        await settle(500)
    body = await bench.cluster.get("widgets", "w")
    assert body["spec"]["calls"] == ["create"]
    assert body["status"] == {"calls": ["create"], **merged}
    assert "dropped" not in caplog.text


async def test_an_object_that_is_gone_when_it_is_patched_is_no_error(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(name: str, **_: Any) -> int:
        await bench.cluster.delete("widgets", name)
        return 1

    async with bench.running():
        await bench.cluster.create(widget("w"))
        await settle(100)
    assert "ERROR" not in caplog.text


async def test_a_foreign_change_in_the_window_of_an_own_patch_is_not_lost(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []

    @on.create("widgets", id="create", registry=bench.registry)
    @on.update("widgets", id="update", registry=bench.registry)
    async def handle(reason: str, spec: trioperator.Spec, **_: Any) -> None:
        seen.append((reason, spec["size"]))

    class Interfering(FaultyTransport):
        async def handle_async_request(self, request: Any) -> Any:
            if request.method == "PATCH" and seen == [("create", 1)]:
                seen.append("interference")
                await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
            return await super().handle_async_request(request)

    async with bench.running(transport=Interfering(bench.cluster.transport(), FaultPlan())):
        await bench.cluster.create(widget("w", size=1))
        await settle(60)
    assert seen == [("create", 1), "interference", ("update", 2)]


async def test_a_conflict_over_the_finalizer_is_resolved_on_the_newest_object(
    bench: Bench, autojump_clock: MockClock
) -> None:
    created = count_creations(bench)
    interfered: list[int] = []

    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        pass

    class Interfering(FaultyTransport):
        async def handle_async_request(self, request: Any) -> Any:
            if request.method == "PATCH" and len(interfered) < 3:
                interfered.append(1)
                await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"n": str(len(interfered))}}})
            return await super().handle_async_request(request)

    async with bench.running(transport=Interfering(bench.cluster.transport(), FaultPlan())):
        await bench.cluster.create(widget("w"))
        await settle(60)
        body = await bench.cluster.get("widgets", "w")
        assert body["metadata"]["finalizers"] == ["trioperator.dev/finalizer"]
        assert body["metadata"]["labels"] == {"n": "3"}
    assert created == ["w"]


async def test_seconds_of_401_do_not_end_the_operator(bench: Bench, autojump_clock: MockClock) -> None:
    created = count_creations(bench)
    bench.settings.watching.client_timeout = 5  # so that streams end
    plan = FaultPlan()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(1)
        plan.add(Fault.status(401), until=trio.current_time() + 20)
        await bench.cluster.create(widget("w"))
        await settle(120)
    assert created == ["w"]


async def test_an_object_that_seems_to_be_gone_is_retried_until_the_watch_confirms_it(
    bench: Bench, autojump_clock: MockClock
) -> None:
    created = count_creations(bench)
    plan = FaultPlan()
    plan.add(Fault.status(404), method="PATCH", until=trio.current_time() + 60)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget())
        await settle(200)
        body = await bench.cluster.get("widgets", "w")
    assert LAST in body["metadata"]["annotations"]
    assert created == ["w"]


async def test_a_new_object_has_nothing_of_the_one_that_had_its_name_before(
    bench: Bench, autojump_clock: MockClock
) -> None:
    created: list[int] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(spec: Any, patch: Any, **_: Any) -> None:
        created.append(spec["size"])
        await trio.sleep(10)
        patch.status["size"] = spec["size"]

    bench.settings.queueing.worker_limit = 1
    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await bench.cluster.delete("widgets", "w")
        await bench.cluster.create(widget(size=2))
        await settle(10)
        assert "status" not in await bench.cluster.get("widgets", "w")
        await settle(10)
        body = await bench.cluster.get("widgets", "w")
    assert body["status"] == {"size": 2}
    assert created == [1, 2]
