"""How daemons and timers are told to stop: a flag with its reasons, to be looked at and to be waited for."""

from __future__ import annotations

import abc
import enum
from typing import Any

import trio

__all__ = ["AsyncDaemonStopped", "DaemonStopped", "DaemonStoppingReason", "Stopper", "SyncDaemonStopped"]


class DaemonStoppingReason(enum.Flag):
    """Say why a daemon or a timer has to stop, and how far that has come. Reasons add up."""

    DONE = enum.auto()
    """It has ended, whatever the reason."""

    FILTERS_MISMATCH = enum.auto()
    """The object does not pass the filters any more."""

    RESOURCE_DELETED = enum.auto()
    """The object is being deleted, or is gone."""

    OPERATOR_PAUSING = enum.auto()
    """The operator leaves its objects to another one."""

    OPERATOR_EXITING = enum.auto()
    """The operator stops."""

    DAEMON_SIGNALLED = enum.auto()
    """The flag is set."""

    DAEMON_CANCELLED = enum.auto()
    """It is cancelled, because it did not stop by itself in time."""

    DAEMON_ABANDONED = enum.auto()
    """It is not waited for any more, though it may still run."""


class DaemonStopped(abc.ABC):
    """Tell whether to stop: true as soon as it is so, and why.

    In a sync function ``stopped.wait(5)`` blocks, in an async one ``await stopped.wait(5)`` waits: until the flag is
    set, or for so many seconds. Either gives the flag itself, so that ``while not stopped.wait(5)`` is a loop with
    pauses.
    """

    __slots__ = ("_event", "_reason")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._reason: DaemonStoppingReason | None = None

    def is_set(self) -> bool:
        """Tell whether to stop."""
        return self._reason is not None

    @property
    def reason(self) -> DaemonStoppingReason | None:
        """Tell why to stop; None as long as there is no reason."""
        return self._reason

    @abc.abstractmethod
    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the flag, for so many seconds at most, and give it: at once, or when awaited in async functions."""

    def __bool__(self) -> bool:
        return self._reason is not None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._reason}>"

    async def _wait(self, timeout: float | None) -> None:
        if timeout is None:
            await self._event.wait()
        else:
            with trio.move_on_after(max(0.0, timeout)):
                await self._event.wait()


class AsyncDaemonStopped(DaemonStopped):
    """Be the flag of an async function."""

    __slots__ = ()

    async def wait(self, timeout: float | None = None) -> AsyncDaemonStopped:
        """Wait until the flag is set, for so many seconds at most, and give it."""
        await self._wait(timeout)
        return self


class SyncDaemonStopped(DaemonStopped):
    """Be the flag of a sync function, which runs in a thread."""

    __slots__ = ("_token",)

    def __init__(self) -> None:
        super().__init__()
        self._token = trio.lowlevel.current_trio_token()

    def wait(self, timeout: float | None = None) -> SyncDaemonStopped:
        """Block until the flag is set, for so many seconds at most, and give it. From any thread.

        The time is that of Trio's clock. Raises ``trio.Cancelled`` in the function's own thread when it is cancelled.
        """
        if self._reason is None:
            try:
                trio.from_thread.run(self._wait, timeout)
            except trio.RunFinishedError:
                pass
            except RuntimeError:  # a thread that the function has started
                self._wait_elsewhere(timeout)
        return self

    def _wait_elsewhere(self, timeout: float | None) -> None:
        try:
            trio.from_thread.run(self._wait, timeout, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):  # Trio has ended: nobody is left who could set the flag
            self._reason = self._reason or DaemonStoppingReason.OPERATOR_EXITING


class Stopper:
    """Hold the flag of one daemon or timer, and set it."""

    __slots__ = ("stopped",)

    def __init__(self, *, is_async: bool) -> None:
        self.stopped: DaemonStopped = AsyncDaemonStopped() if is_async else SyncDaemonStopped()

    @property
    def is_set(self) -> bool:
        """Tell whether any reason to stop was given."""
        return self.stopped._reason is not None

    def has(self, reason: DaemonStoppingReason) -> bool:
        """Tell whether this reason was given."""
        return self.stopped._reason is not None and bool(self.stopped._reason & reason)

    def stop(self, reason: DaemonStoppingReason) -> None:
        """Add a reason to stop."""
        stopped = self.stopped
        stopped._reason = reason if stopped._reason is None else stopped._reason | reason
        stopped._event.set()

    async def wait_until(self, due: float) -> bool:
        """Wait for a time on Trio's clock, and tell whether it was reached: else there is a reason to stop."""
        with trio.CancelScope(deadline=due):  # all that move_on_at() does, at half the cost
            await self.stopped._event.wait()
        return self.stopped._reason is None
