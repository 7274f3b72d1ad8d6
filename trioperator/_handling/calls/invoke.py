"""Invocation of handlers: the one place where they are called.

Each call is one attempt and returns an outcome, whatever the function raises. Only cancellation, KeyboardInterrupt and
SystemExit propagate. Sync functions run in threads, async ones on Trio.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import logging
import math
import types
from collections.abc import Awaitable, Callable, Hashable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import msgspec
import trio

from trioperator._concurrency.clock import Clocks, Moment, find_clocks
from trioperator._concurrency.threads import (
    Calls,
    current_calls,
    initialize_thread,
    run_in_joined_thread,
    run_in_nursery_thread,
    run_in_thread,
)
from trioperator._handling.calls.failures import (
    classify_failure,
    find_deciding_error,
    is_interrupted,
    report_failure,
    report_interruption,
    split_cancellation,
)
from trioperator._handling.calls.handler_state import add_seconds
from trioperator._handling.calls.interruption import InterruptedAttempt, Interruption
from trioperator._handling.calls.storable import check_storable
from trioperator._handling.calls.thread_limiter import ThreadLimiter, ThreadSlot
from trioperator._handling.handlers.handler import Handler
from trioperator._handling.handlers.outcome import Outcome, check_limits, describe_with_type, name_outcome
from trioperator._logs import describe_ref
from trioperator._logs.context import current_handler
from trioperator._model.patch import Patch
from trioperator._model.resource import Resource
from trioperator.errors import HandlerTimeoutError, PausedError, PermanentError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from trioperator._logs import Logger

# Outcome of a call that is not made, or whose write is refused, as others may have taken over. A second later, the
# operator is paused and the call is dropped, or the lease was renewed at the last moment.
_REFUSED: Final = Outcome(final=False, interrupted=True, delay=1.0)


class Attempt(msgspec.Struct, frozen=True, eq=False):
    """One attempt of a handler, after ``retry`` earlier ones; the first one began at ``started``, in steady time.

    Without ``started``, it is the first one.

    ``after`` is awaited after the function has returned, as a part of the attempt. ``patch`` is what the function
    wants stored, with its result: if that is not JSON-serializable, the handler has failed. ``interruption`` cancels
    this attempt alone. The threads of attempts that are cancelled within ``nursery`` are waited for, as they may
    be retried. ``kind`` is the object's kind, if there is an object, for statistics. Where threads are scarce,
    attempts of one ``flow`` take turns with other flows. ``backoff`` replaces the default delay after errors, in
    seconds. ``reports_success`` is false where the caller has more to do; ``is_news`` says of an error whether to log
    it as one. ``find_end`` returns why no other attempt will follow, whatever this one's outcome is; None if one may.
    """

    retry: int
    started: datetime.datetime | None
    after: Callable[[], Awaitable[None]] | None = None
    patch: Patch | None = None
    interruption: Interruption | None = None
    nursery: trio.Nursery | None = None
    flow: Hashable = None
    kind: Resource | None = None
    backoff: float | None = None
    reports_success: bool = True
    is_news: Callable[[BaseException, Outcome], bool] | None = None
    find_end: Callable[[], str | None] | None = None


class RunningCall(msgspec.Struct, frozen=True, eq=False):
    """A call of a handler that has not ended. ``logger`` is bound to the object, if there is one."""

    handler: Handler
    logger: Logger

    def __str__(self) -> str:
        ref = self.logger.object_ref
        return str(self.handler) if ref is None else f"{self.handler} of {describe_ref(ref)}"


class Clients(msgspec.Struct, frozen=True, eq=False):
    """The ``client`` argument of async and of sync functions."""

    for_async: Any
    for_sync: Any


class CallObserver(Protocol):
    """Something that is notified of each call of a handler, such as metrics. No method waits or raises."""

    def begin(self, handler: Handler, attempt: Attempt, logger: Logger) -> Attempt:
        """Note that a call begins. Returns the attempt to be made: this one, or one that can be interrupted."""

    def end(self, handler: Handler, attempt: Attempt, logger: Logger, *, outcome: Outcome | None) -> None:
        """Note that the call of the attempt that :meth:`begin` returned has ended; without outcome: by cancellation."""


class CallLog(Protocol):
    """Log of calls for people to read. It must neither wait nor raise."""

    def called(self, handler: str, began: float, result: str, /) -> None: ...


class Invoker:
    """Caller of handlers, sync ones in threads of *limiter*. *backoff*: default delay after errors, in seconds.

    *running* gets the calls in progress: who stops the operator can say for what it waits. Without *clients*, there is
    no argument ``client``. The *observer* is a part of each call rather than an invoker around this one: that would be
    one more frame between a worker and the user's function.
    """

    def __init__(
        self,
        *,
        limiter: ThreadLimiter,
        backoff: float,
        running: MutableMapping[Attempt, RunningCall] | None = None,
        clients: Clients | None = None,
        observer: CallObserver | None = None,
        log: CallLog | None = None,
    ) -> None:
        self._limiter = limiter
        self._backoff = backoff
        self._observer = observer
        self._log = log
        self.running: MutableMapping[Attempt, RunningCall] = {} if running is None else running
        self.clients = clients
        self._blocking: dict[Attempt, float] = {}
        self._clocks: Clocks | None = None
        self._fence: Callable[[], None] | None = None
        self._find_pool: Callable[[], Executor | None] | None = None

    def with_limiter(self, limiter: ThreadLimiter) -> Self:
        """Return an invoker that differs in the limit of its threads only."""
        other = copy.copy(self)
        other._limiter = limiter
        return other

    def with_pool(self, find_pool: Callable[[], Executor | None]) -> Self:
        """Return an invoker that differs in its threads only: they are initialized as those of the pool found then."""
        other = copy.copy(self)
        other._find_pool = find_pool
        return other

    def with_clients(self, clients: Clients) -> Self:
        """Return an invoker that differs in the clients of handlers only."""
        other = copy.copy(self)
        other.clients = clients
        return other

    def unlogged(self) -> Self:
        """Return an invoker that differs in its log only: for calls that are no part of a reconcile."""
        other = copy.copy(self)
        other._log = None
        return other

    def fenced(self, fence: Callable[[], None] | None) -> Self:
        """Return an invoker that differs in its fence only: nothing is called where that raises PausedError."""
        other = copy.copy(self)
        other._fence = fence
        return other

    def fail_for_blocking(self, attempt: Attempt, limit: float) -> None:
        """Let an attempt in progress fail for blocking the event loop. Called by the watchdog, in its thread."""
        self._blocking[attempt] = limit
        if attempt not in self.running:  # it has just ended
            self._blocking.pop(attempt, None)

    async def invoke(self, handler: Handler, kwargs: Mapping[str, Any], *, attempt: Attempt, logger: Logger) -> Outcome:
        """Make one attempt of *handler* and return its outcome.

        An async function that exceeds the handler's ``timeout=`` is cancelled at its next checkpoint. A sync one is
        not: its outcome is determined when it returns. Cancellation abandons the thread of a sync function, except for
        interruptions and other cancellation within the attempt's nursery: then the thread is waited for, and its
        outcome counts unless it was cancelled.
        """
        attempt = attempt if self._observer is None else self._observer.begin(handler, attempt, logger)
        moment = began, now, _ = (self._clocks or self._find_clocks()).find_moment()
        outcome, token = None, current_handler.set(handler.id)
        try:
            runtime = 0.0 if attempt.started is None else (now - attempt.started).total_seconds()
            is_limited = self._fence is not None or handler.timeout is not None or handler.retries is not None
            if is_limited and (outcome := self._refuse(handler, attempt, runtime=runtime, logger=logger)) is not None:
                return outcome
            if is_debugged := logger.isEnabledFor(logging.DEBUG):
                logger.debug("%s is invoked.", handler)
            kwargs = self._pick(handler, kwargs, attempt, moment)  # drops the original: there may be many daemons
            self.running[attempt] = RunningCall(handler, logger)
            since = began - runtime
            try:
                outcome = Outcome(final=True, result=await self._call(handler, kwargs, attempt, since=since))
                if self._blocking or attempt.patch is not None:
                    self._check(handler, attempt, outcome.result)
            except BaseException as raised:
                if (outcome := self._classify(handler, raised, attempt, since=since, logger=logger)) is None:
                    raise
                return outcome
            finally:
                del self.running[attempt]
            is_loud = attempt.reports_success and (attempt.retry or not handler.is_routine)
            if is_loud or is_debugged:
                (logger.info if is_loud else logger.debug)("%s succeeded.", handler)
            return outcome
        finally:
            current_handler.reset(token)
            self._end(handler, attempt, logger, outcome, began=began)

    def _find_clocks(self) -> Clocks:
        self._clocks = find_clocks()
        return self._clocks

    def _end(
        self, handler: Handler, attempt: Attempt, logger: Logger, outcome: Outcome | None, *, began: float
    ) -> None:
        if self._blocking:
            self._blocking.pop(attempt, None)
        if self._observer is not None:
            self._observer.end(handler, attempt, logger, outcome=outcome)
        if self._log is not None:
            self._log.called(handler.id, began, name_outcome(outcome))

    def _refuse(self, handler: Handler, attempt: Attempt, *, runtime: float, logger: Logger) -> Outcome | None:
        """Return the outcome of an attempt that must not be made: others have taken over, or it was the last one."""
        if self._fence is not None:
            try:
                self._fence()
            except PausedError as error:
                logger.debug("%s is not invoked: %s", handler, error)
                return _REFUSED
        refused = check_limits(handler, retry=attempt.retry, runtime=runtime)
        if refused is not None:
            logger.error("%s failed permanently: %s", handler, refused.error)
        return refused

    def _pick(self, handler: Handler, kwargs: Mapping[str, Any], attempt: Attempt, begins: Moment) -> Mapping[str, Any]:
        """Return the arguments that a function takes: of *kwargs*, and of the attempt itself."""
        _, now, shift = begins
        steady = now if attempt.started is None else attempt.started
        started = add_seconds(steady, shift) if shift else steady
        own = {"param": handler.param, "retry": attempt.retry, "started": started, "runtime": now - steady}
        if self.clients is not None:
            own["client"] = self.clients.for_async if handler.is_async else self.clients.for_sync
        signature = handler.signature
        return {**own, **kwargs} if signature.takes_all else signature.pick({**own, **kwargs})

    def _check(self, handler: Handler, attempt: Attempt, result: Any) -> None:
        """Raise PermanentError if a call that has returned counts as failed, for what it did or wants stored."""
        limit = self._blocking.pop(attempt, None) if self._blocking else None
        if limit is not None:
            raise PermanentError(f"{handler} has blocked the event loop for more than {limit:g} seconds.")
        if attempt.patch is not None:
            check_storable(attempt.patch, result)

    def _classify(
        self, handler: Handler, raised: BaseException, attempt: Attempt, *, since: float, logger: Logger
    ) -> Outcome | None:
        """Log the error of an attempt, the first of which has begun at *since*, and return its outcome.

        Returns None if the error must propagate.
        """
        if attempt.interruption is not None and is_interrupted(raised, attempt.interruption):
            report_interruption(handler, raised, attempt.interruption, logger)
            return Outcome(final=False, interrupted=True)
        error = find_deciding_error(raised)
        if error is None:
            cancelled = split_cancellation(handler, raised, logger)
            if cancelled is None:
                return None
            raise cancelled from None
        if self._fence is not None and isinstance(error, PausedError):
            logger.info("%s is interrupted: %s.", handler, error)
            return _REFUSED
        runtime = trio.current_time() - since
        backoff = self._backoff if attempt.backoff is None else attempt.backoff
        outcome = classify_failure(handler, error, retry=attempt.retry, runtime=runtime, backoff=backoff)
        if attempt.is_news is None or attempt.is_news(error, outcome):
            end = None if attempt.find_end is None else attempt.find_end()
            report_failure(handler, error, outcome, logger, end=end)
        else:
            logger.debug("%s has failed again: %s", handler, describe_with_type(error))
        return outcome

    async def _call(self, handler: Handler, kwargs: Mapping[str, Any], attempt: Attempt, *, since: float) -> Any:
        """Call a function, whose first attempt has begun at *since* on Trio's clock."""
        result = handler.fn(**kwargs) if handler.is_async else await self._call_in_thread(handler, kwargs, attempt)
        if attempt.interruption is None and handler.timeout is None:  # no scopes, as there may be thousands of daemons
            if isinstance(result, types.CoroutineType):
                result = await result
            if attempt.after is not None:
                await attempt.after()
            return result
        with contextlib.nullcontext() if attempt.interruption is None else attempt.interruption.make_scope():
            with trio.move_on_at(math.inf if handler.timeout is None else since + handler.timeout):
                if isinstance(result, types.CoroutineType):
                    result = await result
                if attempt.after is not None:
                    await attempt.after()
                return result
            raise HandlerTimeoutError(f"{handler} has timed out after {handler.timeout:g} seconds.")
        raise InterruptedAttempt

    async def _call_in_thread(self, handler: Handler, kwargs: Mapping[str, Any], attempt: Attempt) -> Any:
        # The result is in a tuple: Trio rejects coroutines from threads, which sync wrappers of async functions return.
        threads: list[Calls | None] = []

        def call() -> tuple[Any]:
            threads.append(current_calls())
            try:
                if self._find_pool is not None and (pool := self._find_pool()) is not None:
                    initialize_thread(pool)
                return (handler.fn(**kwargs),)
            finally:
                threads.clear()

        limiter = self._limiter.slot(handler, attempt.flow)
        try:
            if attempt.interruption is None and attempt.nursery is None:
                (result,) = await run_in_thread(call, limiter=limiter)
                return result
            return await self._call_in_awaited_thread(call, attempt, limiter)
        except trio.Cancelled:
            if threads and not (threads[0] is not None and threads[0].is_pending):  # else it ends by itself
                logger = self.running[attempt].logger
                logger.warning("%s is still running in a thread, which is abandoned.", handler)
            raise

    async def _call_in_awaited_thread(
        self, call: Callable[[], tuple[Any]], attempt: Attempt, limiter: ThreadSlot
    ) -> Any:
        interruption, nursery = attempt.interruption, attempt.nursery
        scope = trio.CancelScope() if interruption is None else interruption.make_scope()
        try:
            if nursery is None:
                returned = await run_in_joined_thread(call, limiter=limiter, scope=scope)
            else:
                returned = await run_in_nursery_thread(call, limiter=limiter, scope=scope, nursery=nursery)
        finally:
            if interruption is not None:
                interruption.leave_scope()
        if returned is None:
            raise InterruptedAttempt
        return returned[0]
