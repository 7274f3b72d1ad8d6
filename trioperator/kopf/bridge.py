"""The bridge between asyncio and Trio: asyncio functions as handlers, and Trio functions for asyncio code.

There is one asyncio loop for all handlers of an operator, around all of its tasks. Asyncio tasks that a handler leaves
behind go on, as in Kopf, and are cancelled when the operator has ended. Cancellation, results and exceptions pass in
both directions.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib
import importlib.util
import sys
import threading
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import outcome
import trio

from trioperator._handling.arguments.stopping import AsyncDaemonStopperChecker
from trioperator._handling.handlers.handler import is_async
from trioperator._handling.handlers.keywords import may_use
from trioperator._logs import get_logger
from trioperator._model.signatures import read_signature
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

_ATTRIBUTE: Final = "__trioperator_on_asyncio__"
#: Whether trio-asyncio runs on this Python: 3.14 no longer has what it builds on (python-trio/trio-asyncio#160).
HAS_TRIO_ASYNCIO: Final = sys.version_info < (3, 14)


class Loop(Protocol):
    """An asyncio loop next to Trio."""

    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Await an asyncio function in a Trio task. It runs in an asyncio task, which is cancelled with that."""

    def start(self, call: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        """Start a Trio function, and return an asyncio future for it. Cancelling the future cancels the function."""


#: The loop in which the handlers of the current operator run.
current_loop: Final[contextvars.ContextVar[Loop]] = contextvars.ContextVar("trioperator-asyncio-loop")


class _Loop:
    """The loop of trio-asyncio."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        result: outcome.Outcome[Any] = await self._loop.run_aio_coroutine(capture_exit(call))
        return result.unwrap()

    def start(self, call: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        future: asyncio.Future[Any] = self._loop.trio_as_future(call)
        return future


async def capture_exit(call: Callable[[], Awaitable[Any]]) -> outcome.Outcome[Any]:
    """Await an asyncio function, and capture exits: if raised, they would end the loop, and its waiters would hang."""
    try:
        return outcome.Value(await call())
    except (KeyboardInterrupt, SystemExit) as error:
        return outcome.Error(error)


@contextlib.asynccontextmanager
async def open_loop() -> AsyncIterator[None]:
    """Open the asyncio loop for the handlers of the operators that run in the block.

    Asyncio tasks that are left at the end of the block are cancelled and waited for.
    """
    trio_asyncio: Any = sys.modules.get("trio_asyncio")
    if trio_asyncio is None:  # it cannot be imported in a Trio task
        trio_asyncio = await trio.to_thread.run_sync(load)
    async with trio_asyncio.open_loop() as loop:
        loop.set_exception_handler(_report)
        token = current_loop.set(_Loop(loop))
        try:
            yield
        finally:
            current_loop.reset(token)


def _report(_: object, context: Mapping[str, Any]) -> None:
    """Log errors that nobody awaits, such as that of a forgotten task, as asyncio does; trio-asyncio ends the loop."""
    error = context.get("exception")
    logger = get_logger("trioperator.kopf")
    logger.error("%s", context.get("message") or "Unhandled exception in the asyncio loop", exc_info=error)


def load() -> Any:
    """Return the module of trio-asyncio. It changes asyncio in the whole process: import it only where it is used.

    Outside of Trio's thread, loops stay asyncio's own. By default, trio-asyncio would make loops of its own there,
    which run Trio in greenlets: if one of them is still running in a daemon thread, as some synchronous clients have
    them, the process crashes when it ends. Raises ConfigError if trio-asyncio is not installed, or does not exist.
    """
    check_installed()
    if not HAS_TRIO_ASYNCIO:
        raise ConfigError(
            "Handlers on asyncio cannot run inside of Trio on Python 3.14, which trio-asyncio does not support yet."
            " Run them by kopf.run() or trioperator-kopf run, or await kopf.operator() on asyncio."
        )
    module = importlib.import_module("trio_asyncio")
    policies: Any = importlib.import_module("trio_asyncio._loop")
    if policies._FakedPolicy.policy is None:  # the default of all threads, which set_event_loop_policy() overrides
        policies._FakedPolicy.policy = policies._original_policy
    return module


def leaves_asyncio_alone() -> bool:
    """Return whether asyncio must not be changed here, so that Trio runs as the guest of its loop.

    That is the case without trio-asyncio, in threads, beside programs that may use asyncio themselves, and if AnyIO has
    already bound functions of asyncio that trio-asyncio would replace, as its pytest plugin does.
    """
    if not HAS_TRIO_ASYNCIO or threading.current_thread() is not threading.main_thread():
        return True
    return "anyio._backends._asyncio" in sys.modules and "trio_asyncio" not in sys.modules


def check_installed() -> None:
    """Raise ConfigError if trio-asyncio is missing."""
    if HAS_TRIO_ASYNCIO and importlib.util.find_spec("trio_asyncio") is None:
        raise ConfigError("Kopf's operators need trio-asyncio: pip install 'trioperator[kopf]'.")


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
        return known  # type: ignore[no-any-return]
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
    with contextlib.suppress(TypeError, ValueError):  # not every callable has a signature
        adapted.__signature__ = read_signature(fn)  # type: ignore[attr-defined]
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
