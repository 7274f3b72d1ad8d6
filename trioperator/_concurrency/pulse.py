"""An event that can be set and waited for repeatedly."""

from __future__ import annotations

import trio


class Pulse:
    """A signal for a task that waits in a loop, such as "the queue has changed".

    Like ``trio.Event``, but reset when it has been waited for. A signal that is set while nobody waits is kept for the
    next wait; signals that are set before it add up to one. All tasks that wait at the time are woken.

    Because signals add up, a signal says that something may have changed: check the condition in a loop. Use one pulse
    for each task where several would miss each other's signals: a kept signal goes to the first task that waits.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        """Wake the tasks that wait, or let the next wait return at once. Never waits."""
        self._event.set()

    def clear(self) -> None:
        """Drop a signal that nobody has waited for. Tasks that wait go on waiting."""
        if self._event.is_set():
            self._event = trio.Event()

    async def wait(self) -> None:
        """Wait until the pulse is set, and reset it. A wait that is cancelled leaves the signal in place."""
        event = self._event
        await event.wait()
        if self._event is event:  # else another task has reset it, and signals since then are not ours to drop
            self._event = trio.Event()
