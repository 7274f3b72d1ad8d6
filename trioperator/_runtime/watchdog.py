"""The watchdog: a thread that reports functions that block Trio's event loop, with handler, object and stack.

Handlers pay next to nothing for it, and an idle operator nothing. An instrument of Trio counts the rounds of the loop,
each from one wait for I/O to the next. The thread compares the count a few times within the limit: if a round lasts as
long as that, it looks for the task that is running, and reads the handler from the frames of its stack. From them, it
also knows whether the loop waits: then so does the thread, until the loop wakes it up.
"""

from __future__ import annotations

import functools
import queue
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import trio

from trioperator._handling import guard
from trioperator._handling.calls.invoke import Invoker
from trioperator._logs import Logger, get_logger
from trioperator._runtime.reconciler.reconciler import Reconciler
from trioperator.settings import OperatorSettings

# Number of checks within the limit, which must be even: a function that exceeds the limit by less than the time between
# two checks may be missed.
_LOOKS: Final = 4
# Seconds between two checks of the setting while the watchdog is switched off, and the loop is busy.
_SWITCHED_OFF: Final = 1.0

# Functions whose frames tell what is running, by their local variables: the handler, the object, the user's function.
_INVOKE: Final = Invoker.invoke.__code__
_GUARD: Final = guard.call.__code__
_RECONCILE: Final = Reconciler.reconcile.__code__
# Name of Trio's function that waits for I/O, on all platforms.
_WAITING: Final = "get_events"


class _Work(msgspec.Struct, frozen=True, eq=False):
    """Activity of a task: the user's function, None if it is in none, and the logger of the object.

    ``fail`` lets the handler fail for blocking, if it is one.
    """

    what: str | None
    logger: Logger
    fail: Callable[[float], None] | None = None


class Watchdog:
    """Watchdog of one operator, for its functions only, with the limit ``settings.execution.blocking_limit``."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings  # startup handlers may change it
        self._logger = get_logger("trioperator.runtime.watchdog")

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the loop and the tree of the parent task until cancelled. Do nothing under a mock clock."""
        if hasattr(trio.lowlevel.current_clock(), "autojump_threshold"):  # real threads take no virtual time
            task_status.started()
            return
        nursery = trio.lowlevel.current_task().parent_nursery
        assert nursery is not None
        rounds = _Rounds()
        trio.lowlevel.add_instrument(rounds)
        try:
            await trio.to_thread.run_sync(
                self._watch,
                _Loop(nursery.parent_task),
                rounds,
                task_status,
                abandon_on_cancel=True,  # it ends by itself then
                limiter=trio.CapacityLimiter(1),
                thread_name="trioperator-watchdog",
            )
        finally:
            trio.lowlevel.remove_instrument(rounds)
            rounds.close()

    def _watch(self, loop: _Loop, rounds: _Rounds, task_status: trio.TaskStatus[None]) -> None:
        trio.from_thread.run_sync(task_status.started)
        try:
            seen = _Round(rounds)
            while rounds.pause(_pause(self._settings.execution.blocking_limit), loop):
                limit = self._settings.execution.blocking_limit
                if limit is None or seen.is_over(rounds, loop):
                    _report_end(seen)
                    seen = _Round(rounds)
                else:
                    seen.pauses += 1
                    self._check(loop, seen, rounds, limit)
        except (
            Exception
        ):  # it reads what belongs to others, and they may have changed it: no reason to end the operator
            self._logger.exception("The watchdog of the event loop has failed, and does not go on.")

    def _check(self, loop: _Loop, seen: _Round, rounds: _Rounds, limit: float) -> None:
        """Check what runs while a round lasts: first after half of the limit, then after the limit."""
        if seen.pauses == _LOOKS // 2:
            seen.task = loop.find_running()
        elif seen.pauses == _LOOKS:
            task = loop.find_running()
            if task is None or task is not seen.task:
                self._logger.debug("The event loop has been busy for more than %g seconds.", limit)
                return
            frames = loop.frames()
            work = _find_work([*frames, *loop.frames_above(task)], self._logger)
            if not seen.is_over(rounds, loop):  # else the frames may belong to something else
                seen.work = work
                _report(work, frames, limit)
                if work.fail is not None and self._settings.execution.blocking_fails:
                    work.fail(limit)


def _pause(limit: float | None) -> float:
    return _SWITCHED_OFF if limit is None else limit / _LOOKS


class _Rounds(trio.abc.Instrument):
    """Counts the rounds of the event loop, and wakes up a thread that waits for the next one."""

    def __init__(self) -> None:
        self.number = 0
        self._is_awaited = False  # the next round, by the thread
        # Queues, as a wait for an event takes several times as long: it makes a lock each time.
        self._begun = queue.SimpleQueue[None]()
        self._end = queue.SimpleQueue[None]()

    def after_io_wait(self, timeout: float) -> None:
        """Note that a round begins."""
        self.number += 1
        if self._is_awaited:
            self._is_awaited = False
            if self._begun.empty():  # else the thread was not waiting when it was woken up before
                self._begun.put(None)

    def close(self) -> None:
        """Let the thread end. Called by the loop."""
        self._end.put(None)
        self._begun.put(None)

    def pause(self, seconds: float, loop: _Loop) -> bool:
        """Wait for a round if there is none, and for *seconds*, in the thread. Return False to end it.

        It looks at the loop after it has said that it waits: so no round begins without waking it up. At worst, it is
        woken up once too often.
        """
        self._is_awaited = True
        if loop.is_waiting():
            self._begun.get()
        self._is_awaited = False
        try:
            self._end.get(timeout=seconds)
        except queue.Empty:
            return True
        return False


class _Round:
    """A round of the loop as the watchdog has seen it first, and what has been found out since.

    Pauses are counted, not seconds: a process that was stopped for long has missed one pause.
    """

    def __init__(self, rounds: _Rounds) -> None:
        self.number, self.seen_at = rounds.number, time.monotonic()
        self.pauses = 0
        self.task: trio.lowlevel.Task | None = None
        self.work: _Work | None = None

    def is_over(self, rounds: _Rounds, loop: _Loop) -> bool:
        """Return whether the round has ended."""
        return rounds.number != self.number or loop.is_waiting()


def _report_end(seen: _Round) -> None:
    if seen.work is not None and seen.work.what is not None:
        took = time.monotonic() - seen.seen_at
        seen.work.logger.warning("%s has blocked the event loop for about %.1f seconds.", seen.work.what, took)


def _report(work: _Work, frames: list[types.FrameType], limit: float) -> None:
    error = RuntimeWarning("the event loop is blocked here")
    error.__traceback__ = _make_traceback(frames)
    if work.what is None:  # not the user's
        work.logger.debug("The event loop is blocked for more than %g seconds.", limit, exc_info=error)
        return
    text = (
        "%s blocks the event loop for more than %g seconds, and with it the whole operator. Call blocking functions in"
        " sync handlers (def), or with trio.to_thread.run_sync()."
    )
    work.logger.warning(text, work.what, limit, exc_info=error)


class _Loop:
    """The event loop of the current thread, as seen from another one, and the tree of tasks below *root*."""

    def __init__(self, root: trio.lowlevel.Task) -> None:
        self._root = root
        self._thread = threading.get_ident()

    def find_running(self) -> trio.lowlevel.Task | None:
        """Return the task of the tree that is running, if any is."""
        tasks = [self._root]
        while tasks:
            task = tasks.pop()
            if getattr(task.coro, "cr_running", False):
                return task
            for nursery in task.child_nurseries:
                tasks += nursery.child_tasks
        return None

    def is_waiting(self) -> bool:
        """Return whether the loop waits for I/O or a deadline, or for its turn in the loop of a host."""
        frames, is_running = self._look()
        return not is_running or (bool(frames) and frames[-1].f_code.co_name == _WAITING)

    def frames(self) -> list[types.FrameType]:
        """Return the frames of the running task, from the inside out."""
        return self._look()[0]

    def _look(self) -> tuple[list[types.FrameType], bool]:
        """Return the frames of what the loop calls, from the inside out, and whether the loop is running."""
        frames: list[types.FrameType] = []
        frame = sys._current_frames().get(self._thread)
        while frame is not None and not _is_runner(frame):
            frames.append(frame)
            frame = frame.f_back
        return frames, frame is not None

    def frames_above(self, task: trio.lowlevel.Task) -> Iterator[types.FrameType]:
        """Yield the frames of the tasks that the task is a descendant of, from the inside out."""
        while task is not self._root and task.parent_nursery is not None:
            task = task.parent_nursery.parent_task
            yield from reversed([frame for frame, _ in task.iter_await_frames()])


def _is_runner(frame: types.FrameType) -> bool:
    """Return whether a frame belongs to Trio's loop, which runs the tasks."""
    return frame.f_code.co_name == "unrolled_run" and frame.f_globals.get("__name__") == "trio._core._run"


def _find_work(frames: list[types.FrameType], logger: Logger) -> _Work:
    """Return what the frames are doing, from the inside out. *logger* is for what concerns no object."""
    what: str | None = None
    for frame in frames:
        if frame.f_code is _INVOKE:
            values = frame.f_locals
            fail = functools.partial(values["self"].fail_for_blocking, values["attempt"])
            return _Work(what or str(values["handler"]), values["logger"], fail)
        if frame.f_code is _GUARD:
            what = guard.name_of(frame.f_locals["what"], frame.f_locals["subject"])
        elif frame.f_code is _RECONCILE:
            return _Work(what, frame.f_locals["state"].make_logger())
    return _Work(what, logger)


def _make_traceback(frames: list[types.FrameType]) -> types.TracebackType | None:
    """Return a traceback of the frames up to where the framework calls the user's function."""
    traceback: types.TracebackType | None = None
    for frame in frames:
        if frame.f_code in (_INVOKE, _GUARD):
            break
        traceback = types.TracebackType(traceback, frame, frame.f_lasti, frame.f_lineno or 0)
    return guard.trim(traceback)
