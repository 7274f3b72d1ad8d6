"""Sync functions in threads, with a choice of what cancellation means for a thread that is still running.

A thread cannot be killed. :func:`run_in_thread` abandons it by default, :func:`run_in_joined_thread` and
:func:`run_in_nursery_thread` wait until it has ended. But what it awaits on Trio by :func:`call_trio` is cancelled: so
a thread that waits for the API server is interrupted as a task is. Tests under a mock clock observe the threads, as the
clock must not jump while they work: see :func:`observe_threads` and :mod:`trioperator.testing.autojump`.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

import outcome
import trio

if TYPE_CHECKING:
    from concurrent.futures import Executor

T = TypeVar("T")


class Limiter(Protocol):
    """A capacity limiter, as Trio uses it for a thread: Trio's own, or another."""

    async def acquire_on_behalf_of(self, borrower: object) -> None: ...
    def release_on_behalf_of(self, borrower: object) -> None: ...


class ThreadObserver(Protocol):
    """Observer of one thread."""

    def started(self) -> None:
        """Note that the limiter has let the thread start. Called by the task that waits for the thread."""

    def ended(self) -> None:
        """Note that the thread has ended, and that its result is about to be delivered. Called on Trio."""

    def finished(self) -> None:
        """Note that no task waits for the thread: it has ended, was abandoned, or was never started."""

    def time_passes(self) -> contextlib.AbstractContextManager[None]:
        """Return what :func:`time_passes` enters in the thread."""


_make_observer: Callable[[], ThreadObserver | None] | None = None

#: The observer of the thread that this code runs in, also in tasks that the thread starts.
current_observer: Final[contextvars.ContextVar[ThreadObserver | None]] = contextvars.ContextVar(
    "trioperator-thread-observer", default=None
)


def observe_threads(make_observer: Callable[[], ThreadObserver | None] | None) -> None:
    """Call *make_observer* for each thread from now on; it returns the thread's observer, or None for no observer.

    This is the seam for tests under a mock clock: operators run without it. None ends it.
    """
    global _make_observer
    _make_observer = make_observer


def are_threads_observed() -> bool:
    """Return whether threads that the current task starts are observed."""
    return _observe() is not None


async def run_in_thread(fn: Callable[[], T], *, limiter: Limiter, abandon_on_cancel: bool = True) -> T:
    """Call the function in a thread, and return its result. Cancellation abandons the thread.

    Without *abandon_on_cancel*, a thread that has started cannot be cancelled: only for what cannot take long.
    Under a mock clock, time stands still until the function returns (see :mod:`trioperator.testing.autojump`).
    Raises what the function raises.
    """
    observer = _observe()
    gate = limiter if observer is None else _Gate(limiter, observer)
    try:
        return await _start(fn, limiter=gate, observer=observer, abandon_on_cancel=abandon_on_cancel)
    finally:
        if observer is not None:
            observer.finished()


async def run_in_joined_thread(fn: Callable[[], T], *, limiter: Limiter, scope: trio.CancelScope) -> T | None:
    """Call the function in a thread that sees the cancellation of *scope*, but is waited for until it ends.

    Once *scope* is cancelled, ``trio.from_thread.check_cancelled()`` raises in the thread. Returns None if the thread
    ends by that ``trio.Cancelled`` or was never started, and otherwise the result of the function. Any other
    cancellation abandons the thread.
    """
    results: list[outcome.Outcome[T]] = []
    observer = _observe()
    gate = _Gate(limiter, observer)
    try:
        with scope:
            await _start(lambda: results.append(outcome.capture(fn)), limiter=gate, observer=observer)
        if not gate.has_started:
            return None
        await gate.ended.wait()
    finally:
        if observer is not None:
            observer.finished()
    result = results[0]
    if scope.cancel_called and isinstance(result, outcome.Error) and isinstance(result.error, trio.Cancelled):
        return None
    return result.unwrap()


async def run_in_nursery_thread(
    fn: Callable[[], T], *, limiter: Limiter, scope: trio.CancelScope, nursery: trio.Nursery
) -> T | None:
    """Call the function in a thread that only the cancellation of *nursery*, which is around the caller, abandons.

    The thread sees the cancellation of *scope* and of the caller, but is waited for until it ends, and its result or
    error counts. If it was never started, or ends by that ``trio.Cancelled``, the cancellation of the caller goes on,
    and after a cancellation of *scope* the result is None.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    results: list[outcome.Outcome[T | None]] = []
    ended = trio.Event()

    async def run() -> None:
        try:
            results.append(outcome.Value(await run_in_joined_thread(fn, limiter=limiter, scope=scope)))
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


def call_trio(fn: Callable[[], Awaitable[T]], *, token: trio.lowlevel.TrioToken | None = None) -> T:
    """Run an async function on Trio from a thread, and return its result.

    Raises ``trio.Cancelled`` once the task that has started the thread is cancelled; the function is cancelled then,
    too. With *token* it may be called in threads that Trio has not started: these are never interrupted. Raises what
    the function raises, and RuntimeError in such a thread without *token*.
    """
    try:
        trio.from_thread.check_cancelled()
    except RuntimeError:
        return trio.from_thread.run(fn, trio_token=token)
    calls = _calls.get()
    if calls is None:
        return trio.from_thread.run(fn)
    for result in trio.from_thread.run(calls.run, fn):
        return result
    trio.from_thread.check_cancelled()
    raise RuntimeError("The task that waited for another thread of this call was cancelled.")


def current_calls() -> Calls | None:
    """Return what the calling thread awaits on Trio; None in threads that were not started here."""
    return _calls.get()


def time_passes() -> contextlib.AbstractContextManager[None]:
    """Let virtual time pass while the calling thread blocks in this context.

    For sync functions that block by means other than Trio's, such as a ``threading.Event`` that a task sets after a
    sleep. Does nothing outside of such threads, and under a real clock.
    """
    observer = current_observer.get()
    return contextlib.nullcontext() if observer is None else observer.time_passes()


def initialize_thread(pool: Executor) -> None:
    """Call the initializer of a thread pool in the calling thread, unless that was done before.

    So a thread that is not one of the pool's is prepared as if it were. Raises what the initializer raises.
    """
    pools: weakref.WeakSet[Executor] = _prepared.__dict__.setdefault("pools", weakref.WeakSet())
    if pool in pools:
        return
    create_context = getattr(pool, "_create_worker_context", None)  # since Python 3.14
    if create_context is not None:
        create_context().initialize()
    elif (initializer := getattr(pool, "_initializer", None)) is not None:
        initializer(*getattr(pool, "_initargs", ()))
    pools.add(pool)


def _observe() -> ThreadObserver | None:
    return None if _make_observer is None else _make_observer()


async def _start(
    fn: Callable[[], T], *, limiter: Limiter, observer: ThreadObserver | None, abandon_on_cancel: bool = True
) -> T:
    calls = Calls()

    def call() -> T:
        _calls.set(calls)
        current_observer.set(observer)
        return fn()

    try:
        return await trio.to_thread.run_sync(
            call, limiter=cast(trio.CapacityLimiter, limiter), abandon_on_cancel=abandon_on_cancel
        )
    finally:
        calls.cancel()


class Calls:
    """Calls of a thread on Trio, in system tasks: they are cancelled when nobody waits for the thread."""

    def __init__(self) -> None:
        self._scopes: set[trio.CancelScope] = set()
        self._is_cancelled = False

    @property
    def is_pending(self) -> bool:
        """Whether the thread awaits something now: then it notices at once that it is cancelled."""
        return bool(self._scopes)

    async def run(self, fn: Callable[[], Awaitable[T]]) -> list[T]:
        """Await the function, and return its result in a list, which is empty if the function was cancelled."""
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            if self._is_cancelled:
                scope.cancel()
            try:
                return [await fn()]
            finally:
                self._scopes.discard(scope)
        return []

    def cancel(self) -> None:
        """Cancel what is awaited now or later."""
        self._is_cancelled = True
        for scope in self._scopes:
            scope.cancel(reason="the task that has started the thread is cancelled")


# The pools whose initializers were called in a thread.
_prepared: Final = threading.local()
_calls: Final[contextvars.ContextVar[Calls | None]] = contextvars.ContextVar("trioperator-calls", default=None)


class _Gate:
    """Capacity limiter of one thread that records when the thread starts and when it ends."""

    def __init__(self, limiter: Limiter, observer: ThreadObserver | None) -> None:
        self._limiter = limiter
        self._observer = observer
        self.has_started = False
        self.ended = trio.Event()

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._limiter.acquire_on_behalf_of(borrower)
        self.has_started = True
        if self._observer is not None:
            self._observer.started()

    def release_on_behalf_of(self, borrower: object) -> None:
        self._limiter.release_on_behalf_of(borrower)
        self.ended.set()
        if self._observer is not None:
            self._observer.ended()
