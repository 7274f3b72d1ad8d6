"""The bridge between asyncio and Trio: asyncio functions as handlers, and Trio functions for asyncio code.

There is one asyncio loop for all handlers of an operator, around all of its tasks. Asyncio tasks that a handler leaves
behind go on, as in Kopf, and are cancelled when the operator has ended. Cancellation, results and exceptions pass in
both directions.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import types
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast

import outcome
import trio

from trioperator._handling.arguments.stopping import AsyncDaemonStopperChecker
from trioperator._handling.handlers.handler import is_async
from trioperator._handling.handlers.keywords import may_use
from trioperator._model.signatures import copy_signature

if TYPE_CHECKING:
    import asyncio

_ATTRIBUTE: Final = "__trioperator_on_asyncio__"


class Loop:
    """An asyncio loop next to Trio, in the same thread. Trio functions that asyncio code starts run in *nursery*."""

    def __init__(self, loop: asyncio.AbstractEventLoop, nursery: trio.Nursery) -> None:
        self._loop = loop
        self._nursery = nursery
        self._scopes: set[trio.CancelScope] = set()
        self._has_ended = False

    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Await an asyncio function in an asyncio task, which is cancelled with the current Trio task."""
        task, waiting = self._loop.create_task(capture_exit(call)), trio.lowlevel.current_task()
        task.add_done_callback(lambda _: trio.lowlevel.reschedule(waiting))
        cancellations: list[Callable[[], Any]] = []

        def cancel(raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
            cancellations.append(raise_cancel)
            task.cancel()
            return trio.lowlevel.Abort.FAILED

        await trio.lowlevel.wait_task_rescheduled(cancel)
        if task.cancelled() and cancellations:
            cancellations[0]()
        return task.result().unwrap()

    def start(self, call: Callable[[], Awaitable[Any]]) -> asyncio.Future[Any]:
        """Start a Trio function, and return an asyncio future, which cancels the function if it is cancelled.

        Nothing else does before :meth:`end`: handlers may wait for it while the operator stops.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        scope = trio.CancelScope(shield=True)
        self._scopes.add(scope)
        if self._has_ended:
            scope.cancel(reason="the operator has ended")
        future.add_done_callback(lambda _: scope.cancel() if future.cancelled() else None)
        self._nursery.start_soon(self._run_trio, call, future, scope)
        return future

    def end(self) -> None:
        """Cancel all Trio functions that asyncio code has started, or starts from now on."""
        self._has_ended = True
        for scope in self._scopes:
            scope.cancel(reason="the operator has ended")

    async def _run_trio(
        self, call: Callable[[], Awaitable[Any]], future: asyncio.Future[Any], scope: trio.CancelScope
    ) -> None:
        result: outcome.Outcome[Any] | None = None
        with scope:
            try:
                result = outcome.Value(await call())
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- it is raised where the future is awaited
                result = outcome.Error(error)
        self._scopes.discard(scope)
        if future.done():
            return
        if isinstance(result, outcome.Value):
            future.set_result(result.value)
        elif isinstance(result, outcome.Error):
            future.set_exception(result.error)
        else:
            future.cancel()


#: The loop in which the handlers of the current operator run.
current_loop: Final[contextvars.ContextVar[Loop]] = contextvars.ContextVar("trioperator-asyncio-loop")


async def capture_exit(call: Callable[[], Awaitable[Any]]) -> outcome.Outcome[Any]:
    """Await an asyncio function, and capture exits: if raised, they would end the loop, and its waiters would hang."""
    try:
        return outcome.Value(await call())
    except (KeyboardInterrupt, SystemExit) as error:
        return outcome.Error(error)


def is_in_asyncio() -> bool:
    """Return whether this code runs in the asyncio loop rather than in a Trio task of its own."""
    import sniffio

    try:
        return sniffio.current_async_library() == "asyncio"
    except sniffio.AsyncLibraryNotFoundError:
        return False


def adapt(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler on Trio for an asyncio function, always the same one. Sync functions mostly stay as they are.

    Kopf's handlers get no ``client``: they may pass their ``**kwargs`` to functions with an argument of that name.
    """
    if not callable(fn) or isinstance(fn, type) or not (is_async(fn) or may_use("client", fn)):
        return fn
    if isinstance(fn, types.MethodType):  # it is another object each time
        return types.MethodType(adapt(fn.__func__), fn.__self__)
    known = getattr(fn, _ATTRIBUTE, None)
    if known is not None and known.__wrapped__ is fn:  # else it was copied from a function that this one wraps
        return cast("Callable[..., Any]", known)
    adapted = _wrap(fn) if is_async(fn) else _hide_client(fn)
    with contextlib.suppress(AttributeError, TypeError):  # not every callable has attributes
        setattr(fn, _ATTRIBUTE, adapted)
    return adapted


def _wrap(fn: Callable[..., Any]) -> Callable[..., Any]:
    async def call_in_asyncio(*args: Any, **kwargs: Any) -> Any:
        stopped = kwargs.get("stopped")
        if isinstance(stopped, AsyncDaemonStopperChecker):
            kwargs["stopped"] = _Stopped(stopped)
        return await current_loop.get().run(functools.partial(fn, *args, **_drop_client(kwargs)))

    return _with_looks(call_in_asyncio, fn)


def _hide_client(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call_without_client(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **_drop_client(kwargs))

    return _with_looks(call_without_client, fn)


def _drop_client(kwargs: dict[str, Any]) -> dict[str, Any]:
    if "client" in kwargs:
        from trioperator.client import Client, SyncClient  # it is loaded only if there are any

        if isinstance(kwargs["client"], (Client, SyncClient)):  # not an index of this name
            del kwargs["client"]
    return kwargs


def _with_looks(adapted: Callable[..., Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return *adapted* with the name and the signature of *fn*."""
    adapted = functools.wraps(fn, updated=())(adapted)
    copy_signature(adapted, fn)
    return adapted


class _Stopped(AsyncDaemonStopperChecker):
    """Stop flag of an asyncio function."""

    __slots__ = ("_flag",)

    def __init__(self, flag: AsyncDaemonStopperChecker) -> None:
        self._flag = flag

    def is_set(self) -> bool:
        return self._flag.is_set()

    @property
    def reason(self) -> Any:
        return self._flag.reason

    def __bool__(self) -> bool:
        return bool(self._flag)

    def __repr__(self) -> str:
        return repr(self._flag)

    async def wait(self, timeout: float | None = None) -> AsyncDaemonStopperChecker:
        if not self._flag.is_set():
            await current_loop.get().start(functools.partial(self._flag.wait, timeout))
        return self
