"""Tests for :mod:`trioperator._endpoints.live_view.streaming`.

When a page is sent again, and what slow readers cost.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.endpoints.live_view.conftest import Showing
from tests.runtime.conftest import Bench, settle, widget
from trioperator._endpoints.live_view import streaming
from trioperator._endpoints.live_view.pages import describe_page

on = trioperator.on


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rendering take no time: its time is real, and the clock of these tests is not."""
    monkeypatch.setattr(streaming, "_SHARE", 0.0)


def add_handler(bench: Bench) -> None:
    on.event("widgets", registry=bench.registry)(lambda **_: None)


async def test_a_state_comes_at_once_and_whenever_something_has_changed(
    bench: Bench, showing: Showing, autojump_clock: MockClock
) -> None:
    add_handler(bench)
    async with showing() as client:
        await settle(5)
        async with client.stream("/objects?q=w") as stream:
            await stream.until(lambda: stream.states)
            assert "No objects" in stream.states[0]
            assert "<html" not in stream.states[0]
            await settle(3)
            before = trio.current_time()
            await bench.cluster.create(widget("w1"))
            await stream.until(lambda: "w1" in stream.states[-1])
            assert trio.current_time() - before < 1.5
            await bench.cluster.create(widget("other"))
            await settle(3)
            assert "other" not in stream.states[-1], "the filter of the address counts"


async def test_many_changes_are_one_state_a_second(bench: Bench, showing: Showing, autojump_clock: MockClock) -> None:
    add_handler(bench)
    async with showing() as client:
        await settle(5)
        async with client.stream("/objects") as stream:
            for number in range(100):
                await bench.cluster.create(widget(f"w{number}"))
                await trio.sleep(0.1)
            await settle(3)
            gaps = [after - before for before, after in zip(stream.times, stream.times[1:], strict=False)]
            assert min(gaps) >= 0.99
            assert 5 <= len(stream.states) <= 16
            assert "100 objects" in stream.states[-1], "the last state is never lost"


async def test_pages_that_take_long_come_less_often(
    bench: Bench, showing: Showing, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_SHARE", 1e9)  # whatever it takes, it is too long
    add_handler(bench)
    async with showing() as client:
        await settle(5)
        async with client.stream("/objects") as stream:
            await stream.until(lambda: stream.states)
            for number in range(20):
                await bench.cluster.create(widget(f"w{number}"))
                await trio.sleep(1)
            assert len(stream.states) == 1


async def test_an_idle_operator_is_looked_at_four_times_a_minute(
    bench: Bench, showing: Showing, autojump_clock: MockClock
) -> None:
    add_handler(bench)
    async with showing() as client:
        await settle(5)
        async with client.stream("/kinds") as stream:
            await stream.until(lambda: stream.states)
            await settle(150.5)
            assert len(stream.states) == 11


def record_pages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of each page is added that is rendered."""
    rendered: list[str] = []

    def record(name: str, *args: Any) -> Any:
        rendered.append(name)
        return describe_page(name, *args)

    monkeypatch.setattr("trioperator._endpoints.live_view.site.describe_page", record)
    return rendered


async def test_nothing_is_rendered_for_nobody(bench: Bench, showing: Showing, monkeypatch: Any) -> None:
    rendered = record_pages(monkeypatch)
    add_handler(bench)
    async with showing() as client:
        async with client.stream("/kinds") as stream:
            await stream.until(lambda: stream.states)
        rendered.clear()
        await bench.cluster.create(widget("w"))
        await settle(0.1)
        assert rendered == []
        assert client.app._shown.changes._watchers == {}  # type: ignore[attr-defined]
        assert client.app._site._streams.count == 0  # type: ignore[attr-defined]


async def test_a_slow_reader_gets_the_newest_state_and_keeps_none(
    bench: Bench, showing: Showing, autojump_clock: MockClock, monkeypatch: Any
) -> None:
    rendered = record_pages(monkeypatch)
    add_handler(bench)
    async with showing() as client:
        await settle(5)
        reads = trio.Event()
        async with client.stream("/objects", slow=reads) as stream:
            for number in range(50):
                await bench.cluster.create(widget(f"w{number}"))
                await trio.sleep(1)
            assert rendered == ["objects"], "the next one is rendered when this one has been read"
            reads.set()
            await stream.until(lambda: len(stream.states) == 2)
            assert "50 objects" in stream.states[1]


async def test_the_end_of_the_operator_ends_a_stream_at_once(
    bench: Bench, showing: Showing, autojump_clock: MockClock
) -> None:
    add_handler(bench)
    async with trio.open_nursery() as nursery:
        streaming, ended_at = trio.Event(), []

        async def read(client: Any) -> None:
            async with client.stream("/kinds") as stream:
                await stream.until(lambda: stream.states)
                streaming.set()
                await stream.ended.wait()
                ended_at.append(trio.current_time())
                assert stream.events[-1] == "end"

        async with showing() as client:
            nursery.start_soon(read, client)
            await streaming.wait()
            began = trio.current_time()
        await settle()
    assert ended_at[0] - began < 1.1
