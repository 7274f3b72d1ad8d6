"""Threads under virtual time: a mock clock stands still while they work, and goes on while they wait for it.

Trio's mock clock jumps to the next deadline as soon as all tasks are blocked, and a task that waits for a thread is
blocked. So a test would see hours pass while a handler reads a file. The threads that are started here hold the clock:
nothing is polled, the clock's threshold is just out of reach until the last one has ended. With any other clock this is
``trio.to_thread.run_sync()`` and nothing else.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar, cast

import outcome
import trio

__all__ = ["run_beside", "run_in_thread", "run_to_the_end", "time_passes"]

T = TypeVar("T")


async def run_in_thread(fn: Callable[[], T], *, limiter: trio.CapacityLimiter) -> T:
    """Call the function in a thread; virtual time stands still until it returns.

    While the function waits for a task of Trio (``trio.from_thread.run()``), or is in a block of :func:`time_passes`,
    time goes on. Waiting for the limiter does not hold the time. Cancellation abandons the thread, which then holds
    nothing any more. Raises what the function raises.
    """
    thread = _make_thread()
    try:
        return await _run(fn, limiter=limiter, thread=thread)
    finally:
        if thread is not None:
            thread.end()


async def run_to_the_end(fn: Callable[[], T], *, limiter: trio.CapacityLimiter, scope: trio.CancelScope) -> T | None:
    """Call the function in a thread that is told of the cancellation of *scope*, and is waited for all the same.

    In the thread, ``trio.from_thread.check_cancelled()`` raises then. Gives what the function returns, and None if it
    ends by that ``trio.Cancelled`` or was not called at all. Any other cancellation abandons the thread.
    """
    ended: list[outcome.Outcome[T]] = []
    entry = _Entry(limiter)
    thread = _make_thread()
    try:
        with scope:
            gate = cast(trio.CapacityLimiter, entry)
            await _run(lambda: ended.append(outcome.capture(fn)), limiter=gate, thread=thread)
        if not entry.begun:
            return None
        await entry.ended.wait()
    finally:
        if thread is not None:
            thread.end()
    result = ended[0]
    if scope.cancel_called and isinstance(result, outcome.Error) and isinstance(result.error, trio.Cancelled):
        return None
    return result.unwrap()


async def run_beside(
    fn: Callable[[], T], *, limiter: trio.CapacityLimiter, scope: trio.CancelScope, nursery: trio.Nursery
) -> T | None:
    """Call the function in a thread that is a child of *nursery*, around the caller: only with that it is abandoned.

    It is told of the cancellation of *scope*, and of the caller, and is waited for all the same. What it returns or
    raises counts then; if it has not begun, or ends by that ``trio.Cancelled``, the caller's cancellation goes on, or
    None is given after that of *scope*.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    results: list[outcome.Outcome[T | None]] = []
    ended = trio.Event()

    async def run() -> None:
        try:
            results.append(outcome.Value(await run_to_the_end(fn, limiter=limiter, scope=scope)))
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 -- it is raised where the function was called
            results.append(outcome.Error(error))
        finally:
            ended.set()

    nursery.start_soon(run, name="thread")
    try:
        await ended.wait()
    except trio.Cancelled:
        scope.cancel(reason="its caller is cancelled")
        with trio.CancelScope(shield=True):  # limited by the nursery
            await ended.wait()
        if not results or results[0] == outcome.Value(None):
            raise
    return results[0].unwrap()  # a cancellation comes again at the next checkpoint


def _make_thread() -> _Thread | None:
    standstill = _find_standstill()
    return None if standstill is None else _Thread(standstill)


async def _run(fn: Callable[[], T], *, limiter: trio.CapacityLimiter, thread: _Thread | None) -> T:
    if thread is None:
        return await trio.to_thread.run_sync(fn, limiter=limiter, abandon_on_cancel=True)

    def call() -> T:
        _thread.set(thread)
        return fn()

    gate = cast(trio.CapacityLimiter, _Gate(limiter, thread))
    return await trio.to_thread.run_sync(call, limiter=gate, abandon_on_cancel=True)


class _Entry:
    """A capacity limiter in front of a thread: it knows whether the thread was begun, and when it has ended."""

    def __init__(self, limiter: trio.CapacityLimiter) -> None:
        self._limiter = limiter
        self.begun = False
        self.ended = trio.Event()

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._limiter.acquire_on_behalf_of(borrower)
        self.begun = True

    def release_on_behalf_of(self, borrower: object) -> None:
        self._limiter.release_on_behalf_of(borrower)
        self.ended.set()


@contextlib.contextmanager
def time_passes() -> Iterator[None]:
    """Let virtual time go on while the calling thread waits in the block for something that takes time.

    For sync functions that wait by means of their own, for example a ``threading.Event`` which a task sets after a
    sleep. It does nothing in other places, and under a clock which is not virtual.
    """
    thread = _thread.get()
    if thread is None:
        yield
        return
    token = thread.token
    trio.from_thread.run_sync(thread.wait, trio_token=token)
    try:
        yield
    finally:
        with contextlib.suppress(trio.RunFinishedError):
            trio.from_thread.run_sync(thread.resume, trio_token=token)


class _MockClock(Protocol):
    """What is asked of :class:`trio.testing.MockClock`."""

    autojump_threshold: float


class _Standstill(trio.abc.Instrument):
    """Keeps the mock clock of one run from jumping while threads work; watches for those that wait for tasks."""

    def __init__(self, clock: _MockClock) -> None:
        self._clock = clock
        self._threshold = math.inf  # the clock's own
        self._working = 0
        self._alive = 0

    def enter(self) -> None:
        """Take note of a thread that begins."""
        if not self._alive:
            trio.lowlevel.add_instrument(self)
        self._alive += 1
        self.hold()

    def leave(self) -> None:
        """Take note of a thread that has ended; it does not hold the clock any more."""
        self._alive -= 1
        if not self._alive:
            trio.lowlevel.remove_instrument(self)

    def hold(self) -> None:
        """Let one more thread hold the clock."""
        if not self._working:
            self._threshold = self._clock.autojump_threshold
            self._clock.autojump_threshold = math.inf
        self._working += 1

    def release(self) -> None:
        """Let one thread less hold the clock, which jumps again after the last one."""
        self._working -= 1
        # Who has set another threshold in between keeps it.
        if not self._working and math.isinf(self._clock.autojump_threshold):
            self._clock.autojump_threshold = self._threshold

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """Let the clock go while a thread waits for the task."""
        if (thread := self._waiting(task)) is not None:
            thread.wait()

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """Hold the clock again, before the thread goes on."""
        if (thread := self._waiting(task)) is not None:
            thread.resume()

    def _waiting(self, task: trio.lowlevel.Task) -> _Thread | None:
        """Return the thread that waits for the task: Trio runs it as a system task, in the context of the thread."""
        thread = task.context.get(_thread)
        if thread is None or thread.standstill is not self:
            return None
        nursery = task.parent_nursery
        is_of_system = nursery is not None and nursery.parent_task is trio.lowlevel.current_root_task()
        return thread if is_of_system else None


class _Thread:
    """One thread: it holds the clock from its begin to its end, but while it waits."""

    def __init__(self, standstill: _Standstill) -> None:
        self.standstill = standstill
        self.token = trio.lowlevel.current_trio_token()
        self._is_alive = False
        self._waits = 0

    def begin(self) -> None:
        """Hold the clock."""
        self._is_alive = True
        self.standstill.enter()

    def end(self) -> None:
        """Let the clock go for good, if it was held."""
        if self._is_alive:
            self._is_alive = False
            if not self._waits:
                self.standstill.release()
            self.standstill.leave()

    def wait(self) -> None:
        """Let the clock go for now."""
        self._waits += 1
        if self._waits == 1 and self._is_alive:
            self.standstill.release()

    def resume(self) -> None:
        """Hold the clock again."""
        self._waits -= 1
        if not self._waits and self._is_alive:
            self.standstill.hold()


class _Gate:
    """A capacity limiter in front of a thread: it tells when the thread begins."""

    def __init__(self, limiter: trio.CapacityLimiter, thread: _Thread) -> None:
        self._limiter = limiter
        self._thread = thread

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._limiter.acquire_on_behalf_of(borrower)
        self._thread.begin()

    def release_on_behalf_of(self, borrower: object) -> None:
        self._limiter.release_on_behalf_of(borrower)


_thread: Final[contextvars.ContextVar[_Thread | None]] = contextvars.ContextVar("trioperator-thread", default=None)
_standstill: Final[trio.lowlevel.RunVar[_Standstill | None]] = trio.lowlevel.RunVar("trioperator-standstill")


def _find_standstill() -> _Standstill | None:
    """Return what holds the clock of this run; None if the clock is not one that jumps."""
    try:
        return _standstill.get()
    except LookupError:
        clock = trio.lowlevel.current_clock()
        found = _Standstill(cast(_MockClock, clock)) if hasattr(clock, "autojump_threshold") else None
        _standstill.set(found)
        return found
