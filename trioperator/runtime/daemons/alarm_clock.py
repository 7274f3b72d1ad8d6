"""An alarm clock: one task sleeps for many.

A cancel scope with a deadline for each timer takes three times as much as the rest of its wait: Trio ends it by an
exception. Here a task waits for an event, which the only task with a deadline sets.
"""

from __future__ import annotations

import heapq
import itertools
import math

import trio

from trioperator.pulse import Pulse

__all__ = ["Alarm", "AlarmClock"]

# The heap is not searched for dropped alarms below this size.
_FEW = 256


class Alarm:
    """What wakes one task: at its time, or earlier by ``ring()``. Until then it is in the clock's heap."""

    __slots__ = ("_event", "has_gone_off", "is_dropped")

    def __init__(self) -> None:
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

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, time: float) -> Alarm:
        """Return an alarm that goes off at *time*. Drop it when it is not waited for any more."""
        alarm = Alarm()
        heapq.heappush(self._heap, (time, next(self._order), alarm))
        if self._heap[0][2] is alarm:
            self._earlier.set()
        return alarm

    def drop(self, alarm: Alarm) -> None:
        """Forget an alarm, unless it has gone off. Their times may be far off, so they do not stay until then."""
        if alarm.has_gone_off or alarm.is_dropped:
            return
        alarm.is_dropped = True
        self._dropped += 1
        if self._dropped > max(_FEW, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if not entry[2].is_dropped]
            heapq.heapify(self._heap)
            self._dropped = 0

    async def serve(self) -> None:
        """Let alarms go off, until cancelled."""
        while True:
            with trio.move_on_at(self._heap[0][0] if self._heap else math.inf):
                await self._earlier.wait()
            now = trio.current_time()
            while self._heap and self._heap[0][0] <= now:
                _, _, alarm = heapq.heappop(self._heap)
                if alarm.is_dropped:
                    self._dropped -= 1
                else:
                    alarm.has_gone_off = True
                    alarm.ring()
