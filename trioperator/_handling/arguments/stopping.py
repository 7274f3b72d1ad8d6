"""The ``stopped`` argument of daemons and timers: a flag with reasons, to be checked and waited for."""

from __future__ import annotations

import abc
import enum
import functools
from typing import Any

import trio

from trioperator._concurrency.threads import call_trio


class DaemonStoppingReason(enum.Flag):
    """Why a daemon or timer is stopped, and which stage of stopping it has reached. Flags are combined."""

    DONE = enum.auto()
    """It has exited, for whatever reason."""

    FILTERS_MISMATCH = enum.auto()
    """The object no longer matches the filters."""

    RESOURCE_DELETED = enum.auto()
    """The object is being deleted, or was deleted."""

    OPERATOR_PAUSING = enum.auto()
    """The operator is paused, in favour of another one."""

    OPERATOR_EXITING = enum.auto()
    """The operator is stopping."""

    DAEMON_SIGNALLED = enum.auto()
    """It has not exited at once, and its ``cancellation_backoff`` has begun."""

    DAEMON_CANCELLED = enum.auto()
    """It was cancelled, as it did not exit in time."""

    DAEMON_ABANDONED = enum.auto()
    """It is no longer waited for, and may still run."""


class DaemonStopped(abc.ABC):
    """Flag that is true when the daemon or timer has to stop.

    ``stopped.wait(5)`` in a sync function, and ``await stopped.wait(5)`` in an async one, wait until the flag is set,
    for at most 5 seconds, and return the flag itself: ``while not stopped.wait(5): ...`` is a loop with pauses.
    """

    __slots__ = ("_event", "_is_noticed", "_reason")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._reason: DaemonStoppingReason | None = None
        self._is_noticed = False  # whoever asks while the flag is set knows that it is

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self.reason is not None

    @property
    def reason(self) -> DaemonStoppingReason | None:
        """Why to stop; None while the flag is not set."""
        if self._reason is not None:
            self._is_noticed = True
        return self._reason

    @abc.abstractmethod
    def wait(self, timeout: float | None = None) -> Any:
        """Wait until the flag is set, for at most *timeout* seconds, and return the flag."""

    def __bool__(self) -> bool:
        return self.is_set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._reason}>"

    async def _wait(self, timeout: float | None) -> None:
        if timeout is None:
            await self._event.wait()
        else:
            with trio.move_on_after(max(0.0, timeout)):
                await self._event.wait()


class AsyncDaemonStopperChecker(DaemonStopped):
    """Stop flag of an async function."""

    __slots__ = ()

    async def wait(self, timeout: float | None = None) -> AsyncDaemonStopperChecker:
        """Wait until the flag is set, for at most *timeout* seconds, and return the flag."""
        await self._wait(timeout)
        self.is_set()
        return self


class SyncDaemonStopperChecker(DaemonStopped):
    """Stop flag of a sync function, which runs in a thread."""

    __slots__ = ("_token",)

    def __init__(self) -> None:
        super().__init__()
        self._token = trio.lowlevel.current_trio_token()

    def wait(self, timeout: float | None = None) -> SyncDaemonStopperChecker:
        """Block until the flag is set, for at most *timeout* seconds by Trio's clock, and return the flag.

        May be called in any thread. Raises ``trio.Cancelled`` in the daemon's own thread when it is cancelled.
        """
        if self._reason is None:
            try:
                call_trio(functools.partial(self._wait, timeout))
            except trio.RunFinishedError:
                pass
            except RuntimeError:  # a thread that the function itself has started
                self._wait_elsewhere(timeout)
        self.is_set()
        return self

    def _wait_elsewhere(self, timeout: float | None) -> None:
        try:
            trio.from_thread.run(self._wait, timeout, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):  # Trio has exited, so nothing will set the flag
            self._reason = self._reason or DaemonStoppingReason.OPERATOR_EXITING


class Stopper:
    """Setter of the stop flag of one daemon or timer."""

    __slots__ = ("stopped",)

    def __init__(self, *, is_async: bool) -> None:
        self.stopped: DaemonStopped = AsyncDaemonStopperChecker() if is_async else SyncDaemonStopperChecker()

    @property
    def is_set(self) -> bool:
        """Whether the flag is set."""
        return self.stopped._reason is not None

    @property
    def is_noticed(self) -> bool:
        """Whether the function has asked for the flag since it was set, so that this may be why it ends."""
        return self.stopped._is_noticed

    def has(self, reason: DaemonStoppingReason) -> bool:
        """Return whether this reason was added."""
        return self.stopped._reason is not None and bool(self.stopped._reason & reason)

    def stop(self, reason: DaemonStoppingReason) -> None:
        """Set the flag, and add a reason."""
        stopped = self.stopped
        stopped._reason = reason if stopped._reason is None else stopped._reason | reason
        stopped._event.set()
