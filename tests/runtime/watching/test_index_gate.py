"""The index gate: who waits for indexed kinds that cannot be listed, and who does not."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from tests.runtime.watching.conftest import crd, thing
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
Index = trioperator.Index


def refuse(bench: Bench, *, status: int = 403, times: int | None = None) -> FaultyTransport:
    """Make the lists of widgets fail."""
    plan = FaultPlan()
    plan.add(Fault.status(status), path="/widgets", watch=False, times=times)
    return FaultyTransport(bench.cluster.transport(), plan)


def index_widgets(bench: Bench) -> None:
    @on.index("widgets", registry=bench.registry)
    async def sizes(spec: trioperator.Spec, name: str) -> Any:
        return {spec["size"]: name}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [message for message in messages if "the index 'sizes'" in message]


@pytest.mark.parametrize(("status", "seconds"), [(403, 10), (404, 10), (405, 10), (503, 300)])
async def test_a_kind_that_cannot_be_listed_does_not_hold_up_kinds_that_do_not_declare_its_index(
    status: int, seconds: float, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    index_widgets(bench)
    await bench.cluster.create(widget("g", kind="Gadget"))
    handled = trio.Event()

    @on.create("gadgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        handled.set()

    began = trio.current_time()
    async with bench.running(transport=refuse(bench, status=status)):
        await handled.wait()
        assert trio.current_time() - began < seconds
        await settle(1000)
    (warning,) = warnings(caplog)
    assert warning.startswith(
        "The objects at /apis/example.com/v1/widgets cannot be listed, so there is nothing of them"
    )
    assert "no handlers depend on that" in warning
    assert str(status) in warning


async def test_a_list_that_is_never_answered_does_not_hold_up_others_for_long(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    index_widgets(bench)
    await bench.cluster.create(widget("w"))
    await bench.cluster.create(widget("g", kind="Gadget"))
    handled = trio.Event()

    @on.create("gadgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        handled.set()

    plan = FaultPlan()
    plan.add(Fault.stall(), path="/widgets", watch=False)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        with trio.fail_after(130):
            await handled.wait()
    (warning,) = warnings(caplog)
    assert "There has been no response for 120 seconds." in warning


async def test_index_functions_that_take_long_are_no_trouble_of_the_list(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.index("widgets", registry=bench.registry)
    async def sizes(spec: trioperator.Spec, name: str) -> Any:
        await trio.sleep(1000)
        return {spec["size"]: name}

    seen: list[int] = []

    @on.create("gadgets", registry=bench.registry)
    async def create(sizes: Index[int, str]) -> None:
        seen.append(len(sizes))

    await bench.cluster.create(widget("w"))
    await bench.cluster.create(widget("g", kind="Gadget"))
    async with bench.running():
        await settle(2000)
    assert seen == [1]
    assert not warnings(caplog)


@pytest.mark.parametrize("usage", ["handler", "filter", "daemon"])
async def test_kinds_that_declare_an_index_wait_until_it_is_complete(
    usage: str, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    index_widgets(bench)
    for size in (1, 2):
        await bench.cluster.create(widget(f"w{size}", size=size))
    await bench.cluster.create(widget("g", kind="Gadget"))
    seen: list[int] = []

    def see(sizes: Index[int, str], **_: Any) -> bool:
        seen.append(len(sizes))
        return True

    if usage == "handler":
        on.create("gadgets", id="create", registry=bench.registry)(see)
    elif usage == "filter":

        @on.event("gadgets", when=see, registry=bench.registry)
        async def event(**_: Any) -> None:
            pass

    else:

        @trioperator.daemon("gadgets", registry=bench.registry)
        async def daemon(sizes: Index[int, str], **_: Any) -> None:
            seen.append(len(sizes))

    async with bench.running(transport=refuse(bench, times=8)):  # it is ready all the same
        await settle(5)
        assert seen == []
        await settle(130)  # eight backoffs, of 115 seconds at most
    assert seen[0] == 2
    (warning,) = warnings(caplog)
    assert "gadgets.v1.example.com will be handled when it can be" in warning


async def test_the_objects_of_the_kind_itself_are_handled_as_soon_as_it_is_listed(
    bench: Bench, autojump_clock: MockClock
) -> None:
    index_widgets(bench)
    for size in range(30):
        await bench.cluster.create(widget(f"w{size}", size=size))
    seen: set[int] = set()

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(sizes: Index[int, str]) -> None:
        seen.add(len(sizes))

    async with bench.running(transport=refuse(bench, times=8)):
        await settle(200)
    assert seen == {30}


async def test_kinds_that_appear_later_are_not_held_up_either(bench: Bench, autojump_clock: MockClock) -> None:
    index_widgets(bench)
    seen: list[str] = []

    @on.create("things", id="things", registry=bench.registry)
    async def things(name: str) -> None:
        seen.append(name)

    @on.create("toys", id="toys", registry=bench.registry)
    async def toys(name: str, sizes: Index[int, str]) -> None:
        seen.append(name)

    async with bench.running(transport=refuse(bench, times=15)):
        await settle(10)
        for plural, kind in (("things", "Thing"), ("toys", "Toy")):
            await bench.cluster.apply(crd(plural, kind))
        await settle(10)
        await bench.cluster.create(thing("Thing", name="thing"))
        await bench.cluster.create(thing("Toy", name="toy"))
        await settle(10)
        assert seen == ["thing"]
        await settle(1000)
    assert seen == ["thing", "toy"]


async def test_a_kind_that_is_gone_before_it_was_listed_holds_up_nobody(
    bench: Bench, autojump_clock: MockClock
) -> None:
    index_widgets(bench)
    await bench.cluster.create(widget("g", kind="Gadget"))
    seen: list[int] = []

    @on.create("gadgets", id="create", registry=bench.registry)
    async def create(sizes: Index[int, str]) -> None:
        seen.append(len(sizes))

    async with bench.running(transport=refuse(bench)):
        await settle(30)
        assert seen == []
        await bench.cluster.delete("customresourcedefinitions", "widgets.example.com")
        await settle(30)
    assert seen == [0]
