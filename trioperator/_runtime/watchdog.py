"""The watchdog: a thread that reports functions that block Trio's event loop, with handler, object and stack.

Handlers pay nothing for it. A few times within the limit, the thread sends a heartbeat to the loop unless that is idle;
if the loop does not answer in time, the thread looks for the task that is running, and reads the handler from the
frames of its stack.
"""

from __future__ import annotations

import functools
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
from trioperator._runtime.reconciler import Reconciler
from trioperator.settings import OperatorSettings

# Heartbeats within the limit, an even number: what exceeds the limit by less than the pause between two may be missed.
_BEATS: Final = 4
# Seconds between two looks at the setting while the watchdog is switched off.
_PARKED: Final = 1.0

# The frames that tell what is running: their local variables have the handler, the object, or the user's function.
_INVOKE: Final = Invoker.invoke.__code__
_GUARD: Final = guard.call.__code__
_RECONCILE: Final = Reconciler.reconcile.__code__


class _Work(msgspec.Struct, frozen=True, eq=False):
    """What a task does: the user's function, None if it is at none, and the logger of the object.

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
        self._closed = threading.Event()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the loop and the tree of the parent task until cancelled. Do nothing under a mock clock."""
        if hasattr(trio.lowlevel.current_clock(), "autojump_threshold"):  # real threads take no virtual time
            task_status.started()
            return
        nursery = trio.lowlevel.current_task().parent_nursery
        assert nursery is not None
        loop = _Loop(nursery.parent_task)
        try:
            await trio.to_thread.run_sync(
                self._watch,
                loop,
                task_status,
                abandon_on_cancel=True,  # it ends by itself then
                limiter=trio.CapacityLimiter(1),
                thread_name="trioperator-watchdog",
            )
        finally:
            self._closed.set()

    def _watch(self, loop: _Loop, task_status: trio.TaskStatus[None]) -> None:
        trio.from_thread.run_sync(task_status.started)
        beat: _Beat | None = None
        try:
            while not self._closed.wait(_pause(self._settings.execution.blocking_limit)):
                limit = self._settings.execution.blocking_limit
                if limit is None:
                    beat = None
                elif beat is None or beat.answered is not None:
                    _report_end(beat)
                    beat = None if loop.is_idle() else loop.send_beat()
                else:
                    beat.pauses += 1
                    self._check(loop, beat, limit)
        except trio.RunFinishedError:
            pass
        except (
            Exception
        ):  # it reads what belongs to others, and they may have changed it: no reason to end the operator
            self._logger.exception("The watchdog of the event loop has failed, and does not go on.")

    def _check(self, loop: _Loop, beat: _Beat, limit: float) -> None:
        """Look at what runs while a heartbeat is not answered: first after half of the limit, then after the limit."""
        if beat.pauses == _BEATS // 2:
            beat.task = loop.find_running()
        elif beat.pauses == _BEATS:
            task = loop.find_running()
            if task is None or task is not beat.task:
                self._logger.debug("The event loop has been busy for more than %g seconds.", limit)
                return
            frames = loop.frames()
            work = _find_work([*frames, *loop.frames_above(task)], self._logger)
            if beat.answered is None:  # else the frames may belong to something else
                beat.work = work
                _report(work, frames, limit)
                if work.fail is not None and self._settings.execution.blocking_fails:
                    work.fail(limit)


def _pause(limit: float | None) -> float:
    return _PARKED if limit is None else limit / _BEATS


class _Beat:
    """A heartbeat, and what has been found out since it was sent; ``answered`` is when the loop has answered it.

    Pauses are counted, not seconds: a process that was stopped for long has missed one pause.
    """

    def __init__(self) -> None:
        self.sent = time.monotonic()
        self.answered: float | None = None
        self.pauses = 0
        self.task: trio.lowlevel.Task | None = None
        self.work: _Work | None = None

    def answer(self) -> None:
        """Answer the heartbeat. Called by the loop."""
        self.answered = time.monotonic()


def _report_end(beat: _Beat | None) -> None:
    if beat is not None and beat.answered is not None and beat.work is not None and beat.work.what is not None:
        took = beat.answered - beat.sent
        beat.work.logger.warning("%s has blocked the event loop for about %.1f seconds.", beat.work.what, took)


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
        self._token = trio.lowlevel.current_trio_token()

    def is_idle(self) -> bool:
        """Return whether the loop waits for I/O or a deadline: there is no need to wake it up for a heartbeat then."""
        frame = sys._current_frames().get(self._thread)
        return frame is not None and frame.f_code.co_name == "get_events"

    def send_beat(self) -> _Beat:
        """Send a heartbeat. Raises ``trio.RunFinishedError``."""
        beat = _Beat()
        self._token.run_sync_soon(beat.answer)
        return beat

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

    def frames(self) -> list[types.FrameType]:
        """Return the frames of the running task, from the inside out."""
        frames: list[types.FrameType] = []
        frame = sys._current_frames().get(self._thread)
        while frame is not None and not _is_runner(frame):
            frames.append(frame)
            frame = frame.f_back
        return frames

    def frames_above(self, task: trio.lowlevel.Task) -> Iterator[types.FrameType]:
        """Yield the frames of the tasks that the task is a descendant of, from the inside out."""
        while task is not self._root and task.parent_nursery is not None:
            task = task.parent_nursery.parent_task
            yield from reversed([frame for frame, _ in task.iter_await_frames()])


def _is_runner(frame: types.FrameType) -> bool:
    """Return whether a frame belongs to Trio's loop, which runs the tasks."""
    return frame.f_code.co_name == "unrolled_run" and frame.f_globals.get("__name__") == "trio._core._run"


def _find_work(frames: list[types.FrameType], logger: Logger) -> _Work:
    """Return what the frames are at, from the inside out. *logger* is for what concerns no object."""
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
