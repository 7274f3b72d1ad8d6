"""Autojump and threads: a mock clock stands still while threads work.

Trio's mock clock jumps to the next deadline as soon as all tasks are blocked, and a task that waits for a thread is
blocked. So in a test, hours could pass while a handler reads a file. Therefore, threads that the operator starts pause
autojump: the clock's threshold is infinite until the last thread has ended; nothing is polled. While a thread waits for
a task of Trio (``trio.from_thread.run()``), or is in :func:`trioperator._concurrency.threads.time_passes`, the clock
may jump. Waiting for a free thread does not pause autojump, and neither does a thread that was abandoned.

Where threads and tasks run at the same time, no two runs are the same. In :func:`serial_threads`, the event loop waits
for threads after each step of a task: it goes on when they have ended, or wait for the loop.

The pytest plugin switches this on for all runs whose clock is a :class:`trio.testing.MockClock`.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import select
import time
from collections.abc import Iterator
from typing import Any, Final, Protocol, cast

import trio

from trioperator._concurrency.threads import ThreadObserver, current_observer, observe_threads

# Real seconds for which the event loop waits for a thread, which may itself wait for another thread.
_PATIENCE: Final = 1.0


def pause_autojump_for_threads() -> None:
    """Make the threads of operators pause the autojump of mock clocks, in this process from now on.

    Call it for runs with a :class:`trio.testing.MockClock` outside of pytest; the pytest plugin does that itself. Other
    clocks are left alone.
    """
    observe_threads(observe_thread)


@contextlib.contextmanager
def serial_threads() -> Iterator[None]:
    """Let threads and tasks run one after another, in runs with a mock clock that start in this context."""
    token = _is_serial.set(True)
    try:
        yield
    finally:
        _is_serial.reset(token)


def observe_thread() -> ThreadObserver | None:
    """Return an observer for a thread that the current task is about to start; None unless the clock can jump."""
    try:
        autojump = _autojump.get()
    except LookupError:
        clock = trio.lowlevel.current_clock()
        autojump = _Autojump(cast(_MockClock, clock)) if hasattr(clock, "autojump_threshold") else None
        _autojump.set(autojump)
    return None if autojump is None else _Thread(autojump)


class _MockClock(Protocol):
    """The part of :class:`trio.testing.MockClock` that is needed here."""

    autojump_threshold: float


class _Autojump(trio.abc.Instrument):
    """Autojump of the clock of one run; as an instrument, it sees the tasks that threads wait for."""

    def __init__(self, clock: _MockClock) -> None:
        self._clock = clock
        self._threshold = math.inf  # the clock's own
        self._pauses = 0
        self._threads = 0
        self._running = 0  # threads that execute code now
        self._is_serial = _is_serial.get()
        # Calls of threads that the event loop has not made yet. Trio has no public way to look at them.
        self._calls: Any = getattr(trio.lowlevel.current_trio_token(), "_reentry_queue", None)

    def add_thread(self) -> None:
        """Pause for a thread that starts."""
        if not self._threads:
            trio.lowlevel.add_instrument(self)
        self._threads += 1
        self.pause()

    def remove_thread(self) -> None:
        """Forget a thread; its pause must have ended."""
        self._threads -= 1
        if not self._threads:
            trio.lowlevel.remove_instrument(self)

    def pause(self) -> None:
        """Stop the clock from jumping, once more."""
        if not self._pauses:
            self._threshold = self._clock.autojump_threshold
            self._clock.autojump_threshold = math.inf
        self._pauses += 1

    def resume(self) -> None:
        """End one pause; after the last one, the clock jumps again."""
        self._pauses -= 1
        # A threshold that somebody has set in between stays.
        if not self._pauses and math.isinf(self._clock.autojump_threshold):
            self._clock.autojump_threshold = self._threshold

    def note_running(self, change: int) -> None:
        """Note that a thread has started or stopped executing code."""
        self._running += change

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Wait until no thread runs, or one calls the event loop."""
        if not (self._running and self._is_serial and self._calls is not None):
            return
        deadline = time.monotonic() + _PATIENCE
        wakeup = self._calls.wakeup
        has_called = False
        while not has_called:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([wakeup.wakeup_sock], [], [], left)[0]:
                self._is_serial = False  # it takes real time, which is never the same
                return
            wakeup.drain()  # a byte follows each call: one that came later would wake up Trio once more
            has_called = bool(self._calls.queue or self._calls.idempotent_queue)
        wakeup.wakeup_thread_and_signal_safe()  # for Trio, in place of what was drained

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """Let the clock jump while a thread waits for the task."""
        if (thread := self._thread_waiting_for(task)) is not None:
            thread.wait()

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """Pause again, before the thread goes on."""
        if (thread := self._thread_waiting_for(task)) is not None:
            thread.go_on()

    def _thread_waiting_for(self, task: trio.lowlevel.Task) -> _Thread | None:
        """Return the thread that waits for the task: Trio runs it as a system task, in the context of the thread."""
        thread = task.context.get(current_observer)
        if not isinstance(thread, _Thread) or thread.autojump is not self:
            return None
        nursery = task.parent_nursery
        is_system_task = nursery is not None and nursery.parent_task is trio.lowlevel.current_root_task()
        return thread if is_system_task else None


class _Thread:
    """One thread, which pauses autojump from its start to its end except while it waits."""

    def __init__(self, autojump: _Autojump) -> None:
        self.autojump = autojump
        self._token = trio.lowlevel.current_trio_token()
        self._is_alive = False
        self._waits = 0
        self._is_running = False

    def started(self) -> None:
        """Pause autojump."""
        self._is_alive = True
        self.autojump.add_thread()
        self._run(True)

    def ended(self) -> None:
        """Let the event loop go on."""
        self._run(False)

    def _run(self, is_running: bool) -> None:
        if is_running != self._is_running:
            self._is_running = is_running
            self.autojump.note_running(1 if is_running else -1)

    def finished(self) -> None:
        """End the pause for good, if there was one."""
        if self._is_alive:
            self._is_alive = False
            self._run(False)
            if not self._waits:
                self.autojump.resume()
            self.autojump.remove_thread()

    def wait(self) -> None:
        """End the pause for now."""
        self._waits += 1
        if self._waits == 1 and self._is_alive:
            self._run(False)
            self.autojump.resume()

    def go_on(self) -> None:
        """Pause again."""
        self._waits -= 1
        if not self._waits and self._is_alive:
            self._run(True)
            self.autojump.pause()

    @contextlib.contextmanager
    def time_passes(self) -> Iterator[None]:
        """Let the clock jump while the thread is in the context."""
        trio.from_thread.run_sync(self.wait, trio_token=self._token)
        try:
            yield
        finally:
            with contextlib.suppress(trio.RunFinishedError):
                trio.from_thread.run_sync(self.go_on, trio_token=self._token)


_is_serial: Final[contextvars.ContextVar[bool]] = contextvars.ContextVar("trioperator-serial-threads", default=False)
_autojump: Final[trio.lowlevel.RunVar[_Autojump | None]] = trio.lowlevel.RunVar("trioperator-autojump")
