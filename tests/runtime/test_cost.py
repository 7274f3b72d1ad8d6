"""What one object costs, in requests: each line of the contract in the architecture."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on


async def test_an_object_that_no_handler_matches_costs_nothing(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", labels={"mine": trioperator.PRESENT}, id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        raise AssertionError

    async with bench.running():
        bench.cluster.requests.clear()
        await bench.cluster.create(widget(size=1))
        await settle(10)
        operators = [r for r in bench.cluster.requests if r.user_agent.startswith("trioperator")]
        assert operators == []


async def test_a_creation_costs_one_patch(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        pass

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert bench.writes() == ["PATCH main"]


async def test_a_creation_with_a_result_costs_two_patches(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> int:
        return 1

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert sorted(bench.writes()) == ["PATCH main", "PATCH status"]
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"create": 1}


async def test_a_result_without_a_status_subresource_costs_no_patch_of_its_own(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.create("gadgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> int:
        return 1

    async with bench.running():
        await bench.cluster.create(widget(kind="Gadget"))
        await settle(10)
    assert bench.writes() == ["PATCH main"]
    assert (await bench.cluster.get("gadgets", "w"))["status"] == {"create": 1}


async def test_a_mandatory_delete_handler_costs_one_patch_more_before_the_first_handler(
    bench: Bench, autojump_clock: MockClock
) -> None:
    finalizers: list[Any] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(meta: trioperator.Meta, **_: Any) -> None:
        finalizers.append(meta.get("finalizers"))

    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        pass

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert finalizers == [["trioperator.dev/finalizer"]]
    assert bench.writes() == ["PATCH main", "PATCH main"]


async def test_several_quick_handlers_cost_the_same_as_one(bench: Bench, autojump_clock: MockClock) -> None:
    for number in range(5):

        @on.create("widgets", id=f"create{number}", registry=bench.registry)
        async def create(**_: Any) -> None:
            await trio.sleep(0.02)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert bench.writes() == ["PATCH main"]


async def test_sub_handlers_that_succeed_cost_the_same_as_one_handler(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        @trioperator.subhandler()
        async def first() -> None:
            @trioperator.subhandler()
            async def inner() -> None: ...

        await trioperator.execute(fns=[second])

    async def second() -> None: ...

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert bench.writes() == ["PATCH main"]


async def test_each_retry_of_sub_handlers_costs_one_patch(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        @trioperator.subhandler()
        async def child(retry: int) -> None:
            if retry < 3:
                raise trioperator.TemporaryError("not yet", delay=30)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(200)
    assert bench.writes() == ["PATCH main"] * 4


async def test_the_progress_before_a_slow_handler_is_stored_when_due(bench: Bench, autojump_clock: MockClock) -> None:
    written: list[float] = []

    @on.create("widgets", id="quick", registry=bench.registry)
    async def quick(**_: Any) -> None:
        pass

    @on.create("widgets", id="slow", registry=bench.registry)
    async def slow(**_: Any) -> None:
        began = trio.current_time()
        while not bench.writes():  # noqa: ASYNC110 -- the log of requests has no event
            await trio.sleep(0.01)
        written.append(trio.current_time() - began)
        await trio.sleep(10)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(20)
    assert 0.09 <= written[0] <= 0.13
    assert bench.writes() == ["PATCH main", "PATCH main"]


async def test_each_retry_costs_one_patch(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(retry: int, **_: Any) -> None:
        if retry < 3:
            raise trioperator.TemporaryError("not yet", delay=30)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(200)
    assert bench.writes() == ["PATCH main"] * 4


async def test_resuming_costs_nothing(bench: Bench, autojump_clock: MockClock) -> None:
    resumed: list[str | None] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        pass

    @on.resume("widgets", id="resume", registry=bench.registry)
    async def resume(name: str | None, **_: Any) -> None:
        resumed.append(name)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert resumed == []
    bench.cluster.requests.clear()
    async with bench.running():
        await settle(10)
    assert resumed == ["w"]
    assert bench.writes() == []


async def test_a_deletion_costs_one_patch(bench: Bench, autojump_clock: MockClock) -> None:
    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        pass

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
        bench.cluster.requests.clear()
        await bench.cluster.delete("widgets", "w")
        await settle(10)
        assert [r.method for r in bench.cluster.requests if r.user_agent.startswith("trioperator")] == ["PATCH"]
        assert await bench.cluster.list("widgets") == []


async def test_a_deletion_with_a_retry_costs_two_patches(bench: Bench, autojump_clock: MockClock) -> None:
    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(retry: int, **_: Any) -> None:
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=5)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
        bench.cluster.requests.clear()
        await bench.cluster.delete("widgets", "w")
        await settle(10)
        methods = [r.method for r in bench.cluster.requests if r.user_agent.startswith("trioperator")]
    assert methods == ["PATCH", "PATCH"]


async def test_a_converged_object_costs_nothing_but_watching(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="change", registry=bench.registry)
    @on.update("widgets", id="change", registry=bench.registry)
    async def change(**_: Any) -> int:
        return 1

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
        bench.cluster.requests.clear()
        await settle(3600)
        watches = [r for r in bench.cluster.requests if "/widgets" in r.path]
    assert bench.writes() == []
    assert len(watches) <= 12
