"""Stopping: the request and its deadline, and reports of what is waited for."""

from __future__ import annotations

import logging
import threading
import time

import pytest
import trio
from trio.testing import MockClock

from trioperator._supervisor.shutdown import Awaited, Shutdown, describe_awaited, report_awaited, wait_flag


async def test_the_first_request_sets_the_deadline_and_others_change_nothing(autojump_clock: MockClock) -> None:
    shutdown = Shutdown(lambda: 25.0)
    began = trio.current_time()
    assert shutdown.remaining == 25
    shutdown.request("a signal")
    assert shutdown.requested.is_set()
    assert not shutdown.everything.cancel_called
    await trio.sleep(10)
    shutdown.request("another reason")
    assert shutdown.remaining == 15
    assert not shutdown.everything.cancel_called
    shutdown.end_at_once("a signal")
    assert shutdown.everything.cancel_called
    assert shutdown.cleaning.cancel_called
    await trio.sleep(50)
    assert (shutdown.deadline, shutdown.remaining) == (began + 25, 0)


def test_a_thread_that_waits_for_a_flag_ends_soon_after_nobody_waits_any_more() -> None:
    async def wait_in_vain() -> None:
        with trio.move_on_after(0.05):
            await wait_flag(threading.Event())

    before = {*threading.enumerate()}
    trio.run(wait_in_vain)
    deadline = time.monotonic() + 10
    while any("wait" in thread.name for thread in {*threading.enumerate()} - before):  # as Trio names it
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("late", [False, True])
async def test_what_is_starting_is_cancelled(autojump_clock: MockClock, *, late: bool) -> None:
    shutdown = Shutdown(lambda: 25.0)
    async with trio.open_nursery() as nursery:
        if late:
            shutdown.request("a flag")
        else:
            nursery.start_soon(_request_later, shutdown)
        with shutdown.starting():
            await trio.sleep(100)
            raise AssertionError
    with trio.move_on_after(1) as scope:  # the request cancels nothing that comes later
        await trio.sleep(5)
    assert scope.cancelled_caught


async def _request_later(shutdown: Shutdown) -> None:
    await trio.sleep(1)
    shutdown.request("a flag")


async def test_reports_come_every_few_seconds_while_anything_is_waited_for(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    began = trio.current_time()
    times: list[float] = []

    def list_awaited() -> list[Awaited]:
        times.append(trio.current_time() - began)
        return [Awaited("Handler 'b' of Widget default/w", began + 9)] if trio.current_time() < began + 12 else []

    with trio.move_on_after(18):
        await report_awaited(list_awaited, hint=" Hurry up.")
    assert times == [1, 6, 11, 16]
    assert caplog.messages == [
        "Waiting for Handler 'b' of Widget default/w (cancelled in 8 s). Hurry up.",
        "Waiting for Handler 'b' of Widget default/w (cancelled in 3 s). Hurry up.",
        "Waiting for Handler 'b' of Widget default/w (cancelled, but has not ended). Hurry up.",
    ]


def test_the_first_few_are_named() -> None:
    awaited = [Awaited(f"Handler {number:02}", number) for number in reversed(range(1, 31))]
    text = describe_awaited(awaited, now=0)
    assert text.startswith("Handler 01 (cancelled in 1 s), Handler 02 (cancelled in 2 s), ")
    assert text.endswith("Handler 10 (cancelled in 10 s) and 20 more")
