"""Lifecycles in a running operator: they change the order of calls, and not the number of requests."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator import lifecycles

on = trioperator.on


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    yield
    trioperator.set_default_lifecycle(None)


def add_handlers(bench: Bench, calls: list[str], *ids: str) -> None:
    for id in ids:

        @on.create("widgets", id=id, registry=bench.registry)
        async def create(id: str = id, **_: Any) -> None:
            calls.append(id)


def backwards(handlers: Any, **_: Any) -> Any:
    return handlers[-1:]


@pytest.mark.parametrize(
    ("lifecycle", "expected"),
    [(lifecycles.all_at_once, "abc"), (lifecycles.one_by_one, "abc"), (lifecycles.asap, "abc"), (backwards, "cba")],
)
async def test_all_handlers_are_called_in_one_reconcile_in_the_order_of_the_lifecycle(
    lifecycle: Any, expected: str, bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []
    add_handlers(bench, calls, "a", "b", "c")
    async with bench.running(lifecycle=lifecycle):
        await bench.cluster.create(widget())
        await settle(10)
    assert calls == list(expected)
    assert bench.writes() == ["PATCH main"]


async def test_asap_calls_first_what_was_tried_least(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.create("widgets", id="a", registry=bench.registry)
    async def often(retry: int, **_: Any) -> None:
        calls.append("a")
        if retry < 2:
            raise trioperator.TemporaryError("not yet", delay=1 if not retry else 5)

    @on.create("widgets", id="b", registry=bench.registry)
    async def seldom(retry: int, **_: Any) -> None:
        calls.append("b")
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=6)

    async with bench.running(lifecycle=lifecycles.asap):
        await bench.cluster.create(widget())
        await settle(30)
    assert calls == ["a", "b", "a", "b", "a"]


async def test_asap_counts_the_attempts_of_sub_handlers_after_a_restart(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @on.create("widgets", id="parent", registry=bench.registry)
    async def parent(**_: Any) -> None:
        async def done() -> None:
            calls.append("done")

        async def endless() -> None:
            calls.append("endless")
            await trio.sleep(math.inf)

        await trioperator.execute(fns={"done": done, "endless": endless})

    @on.field("widgets", field="spec.size", id="field", registry=bench.registry)
    async def field(**_: Any) -> None:
        calls.append("field")

    async with bench.running(lifecycle=lifecycles.asap):
        await bench.cluster.create(widget(spec={}))
        await settle(10)
    await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
    async with bench.running(lifecycle=lifecycles.asap):
        await settle(10)
    assert calls == ["done", "endless", "field", "endless"]


async def test_the_default_lifecycle_is_for_operators_that_are_given_none(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []
    add_handlers(bench, calls, "a", "b")
    trioperator.set_default_lifecycle(backwards)
    async with bench.running():
        await bench.cluster.create(widget("one"))
        await settle(10)
    async with bench.running(lifecycle=lifecycles.all_at_once):
        await bench.cluster.create(widget("other"))
        await settle(10)
    assert calls == ["b", "a", "a", "b"]


async def test_sub_handlers_have_the_lifecycle_of_their_parent_or_one_of_their_own(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    async def a() -> None:
        calls.append("a")

    async def b() -> None:
        calls.append("b")

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        await trioperator.execute(fns=[a, b], lifecycle=lifecycles.one_by_one)
        calls.append("then")
        trioperator.register(a, id="c")
        trioperator.register(b, id="d")

    async with bench.running(lifecycle=backwards):
        await bench.cluster.create(widget())
        await settle(10)
    assert calls == ["a", "b", "then", "b", "a"]
    assert bench.writes() == ["PATCH main"]


async def test_what_a_lifecycle_does_not_choose_is_offered_again_and_not_lost(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    asked: list[list[str]] = []
    add_handlers(bench, calls, "a", "b", "c")

    def hesitant(handlers: Any, **_: Any) -> Any:
        asked.append([handler.id for handler in handlers])
        if len(asked) == 3:
            raise ValueError("something")
        return [] if len(asked) == 2 else handlers[:1] if len(asked) == 1 else handlers

    async with bench.running(lifecycle=hesitant):
        await bench.cluster.create(widget())
        await settle(59)
        assert calls == ["a"]
        assert asked == [["a", "b", "c"], ["b", "c"]]
        await settle(200)
    assert calls == ["a", "b", "c"]
    assert asked == [["a", "b", "c"], ["b", "c"], ["b", "c"], ["b", "c"]]
    assert "The lifecycle has chosen none of Handler 'b', Handler 'c': they are due again in 60 seconds." in caplog.text
    assert "hesitant has failed: ValueError('something')" in caplog.text


async def test_an_invalid_lifecycle_is_an_error_at_once(bench: Bench) -> None:
    with pytest.raises(TypeError, match="A lifecycle must be a sync function"):
        await trioperator.operator(registry=bench.registry, lifecycle="asap")  # type: ignore[arg-type]
