"""An alarm clock: one task sleeps for many.

A cancel scope with a deadline for each timer takes three times as much as the rest of its wait: Trio ends it by an
exception. Here a task waits for an event, which the only task with a deadline sets.
"""

from __future__ import annotations

import datetime
import enum
import heapq
import itertools
import math
from typing import Final

import trio

from trioperator._concurrency.clock import wall_now
from trioperator._concurrency.pulse import Pulse

# The heap is not searched for dropped alarms below this size.
_FEW = 256
# Seconds between checks of the wall clock, which may be set.
_WALL_PERIOD = 60.0
#: Seconds by which the elapsed times of the wall clock and of Trio's clock may differ.
TOLERANCE: Final = 0.01


class News(enum.Enum):
    """What a task may wait for besides a time."""

    CHANGE = enum.auto()
    RENEWAL = enum.auto()


class Alarm:
    """An alarm that wakes one task: at its time, or earlier by ``ring()``. Until then it is in the clock's heap.

    It rings earlier for the news that it *heeds*, if any. It needs no clock without a time.
    """

    __slots__ = ("_event", "has_gone_off", "heeds", "is_dropped")

    def __init__(self, heeds: News | None = None) -> None:
        self.heeds = heeds
        self._event = trio.Event()
        self.has_gone_off = False
        self.is_dropped = False

    def ring(self) -> None:
        """Wake the task now."""
        self._event.set()

    async def wait(self) -> None:
        """Wait until it rings."""
        await self._event.wait()


class AlarmClock:
    """Alarms at times on Trio's clock. ``serve`` lets them go off; all others never wait."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._order = itertools.count()
        self._dropped = 0
        self._earlier = Pulse()
        self._by_wall: set[Alarm] = set()
        self._wall_offset = 0.0

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, time: float, *, by_wall: bool = False, heeds: News | None = None) -> Alarm:
        """Return an alarm that goes off at *time*. Drop it when it is no longer waited for.

        With *by_wall* it also rings within a minute of when the wall clock was set, as its time has to be
        computed again.
        """
        alarm = Alarm(heeds)
        if by_wall:
            if not self._by_wall:
                self._wall_offset = _find_wall_offset()
                self._earlier.set()
            self._by_wall.add(alarm)
        heapq.heappush(self._heap, (time, next(self._order), alarm))
        if self._heap[0][2] is alarm:
            self._earlier.set()
        return alarm

    def drop(self, alarm: Alarm) -> None:
        """Forget an alarm, unless it has gone off. Their times may be far off, so they do not stay until then."""
        self._by_wall.discard(alarm)
        if alarm.has_gone_off or alarm.is_dropped:
            return
        alarm.is_dropped = True
        self._dropped += 1
        if self._dropped > max(_FEW, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if not entry[2].is_dropped]
            heapq.heapify(self._heap)
            self._dropped = 0

    def times(self) -> dict[Alarm, float]:
        """Return when the alarms go off that are waited for."""
        return {alarm: time for time, _, alarm in self._heap if not alarm.is_dropped}

    async def serve(self) -> None:
        """Let alarms go off, until cancelled."""
        while True:
            next_look = trio.current_time() + _WALL_PERIOD if self._by_wall else math.inf
            with trio.move_on_at(min(self._heap[0][0] if self._heap else math.inf, next_look)):
                await self._earlier.wait()
            self._look_at_wall()
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                _, _, alarm = heapq.heappop(self._heap)
                if alarm.is_dropped:
                    self._dropped -= 1
                else:
                    alarm.has_gone_off = True
                    alarm.ring()

    def _look_at_wall(self) -> None:
        """Ring what follows the wall clock if that was set, as on a machine that was suspended."""
        if self._by_wall and abs((offset := _find_wall_offset()) - self._wall_offset) > TOLERANCE:
            self._wall_offset = offset
            for alarm in self._by_wall:
                alarm.ring()


def find_due(moment: datetime.datetime) -> float:
    """Return when a moment of the wall clock is on Trio's, as both go on now."""
    return trio.current_time() + max(0.0, (moment - wall_now()).total_seconds())


def _find_wall_offset() -> float:
    return wall_now().timestamp() - trio.current_time()
