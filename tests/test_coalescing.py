"""Pauses of event loops under load. All but one of the tests play the loop, with a clock of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import trio

from trioperator.coalescing import Coalescing

WORK: Final = 0.0003
"""Seconds that a task runs when it is woken."""


class Loop:
    """An event loop without tasks: something arrives at given times, and each arrival wakes so many tasks."""

    def __init__(self, *, tasks: int = 2) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.waits = 0
        self._tasks = tasks
        self._coalescing = Coalescing(lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def wait(self, until: float, *, deadline: float = math.inf) -> None:
        """Wait for something that arrives at the time *until*."""
        timeout = max(0.0, deadline - self.now)
        self._coalescing.before_io_wait(timeout)
        self.now = max(self.now, min(until, deadline))
        self._coalescing.after_io_wait(timeout)
        self.waits += 1

    def wake(self) -> None:
        """Run the tasks that wait for one arrival."""
        for _ in range(self._tasks):
            self._coalescing.task_scheduled(None)  # type: ignore[arg-type]
            self.now += WORK

    def handle(self, arrivals: Iterable[float]) -> float:
        """Wait for all arrivals, and return by how many seconds the latest was handled."""
        left, latest = sorted(arrivals), 0.0
        while left:
            self.wait(left[0])
            while left and left[0] <= self.now:
                latest = max(latest, self.now - left.pop(0))
                self.wake()
        return latest

    def exchange(self, requests: int, *, latency: float) -> float:
        """Let a task send requests one after another, and return the seconds that takes."""
        began = self.now
        for _ in range(requests):
            self.wait(self.now + latency)
            self.wake()
        return self.now - began


def test_a_storm_is_handled_in_a_quarter_of_the_waits() -> None:
    loop = Loop()
    latest = loop.handle(number / 1000 for number in range(2000))
    assert loop.waits < 2000 / 4
    assert latest < 0.02


def test_what_arrives_now_and_then_is_handled_at_once() -> None:
    loop = Loop()
    assert loop.handle(number / 100 for number in range(500)) == 0.0
    assert loop.slept == []


def test_an_object_that_takes_some_requests_is_handled_at_once() -> None:
    loop = Loop()
    for number in range(100):
        loop.handle([number * 0.05 + wait * 0.002 for wait in range(6)])
    assert loop.slept == []


def test_a_task_that_waits_for_each_response_is_hardly_slower() -> None:
    alone = 5000 * (0.001 + 2 * WORK)
    assert Loop().exchange(5000, latency=0.001) < 1.1 * alone


def test_pauses_end_with_the_load() -> None:
    loop = Loop()
    loop.handle(number / 1000 for number in range(500))
    assert loop.slept
    loop.slept.clear()
    begin = loop.now
    assert loop.handle(begin + number / 10 for number in range(1, 50)) == 0.0
    assert len(loop.slept) <= 1  # the wait in which the load ends


def test_nothing_is_waited_for_while_a_task_can_run() -> None:
    loop = Loop()
    for _ in range(1000):
        loop.wait(loop.now, deadline=loop.now)
        loop.wake()
    assert loop.slept == []


def test_a_pause_is_over_at_the_next_deadline() -> None:
    loop = Loop(tasks=5)
    for _ in range(100):
        loop.wait(loop.now + 0.001, deadline=loop.now + 0.002)
        loop.wake()
    assert loop.slept
    assert max(loop.slept) <= 0.0021


def test_a_program_with_pauses_does_the_same() -> None:
    coalescing, exchanged = Coalescing(), 0

    async def exchange() -> None:
        nonlocal exchanged
        left, right = (trio.SocketStream(end) for end in trio.socket.socketpair())
        async with left, right:
            for _ in range(50):
                await left.send_all(b"x")
                assert await right.receive_some(1) == b"x"
                exchanged += 1

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(exchange)
        trio.lowlevel.remove_instrument(coalescing)  # Trio has removed one that has failed

    trio.run(main, instruments=[coalescing])
    assert exchanged == 1000
