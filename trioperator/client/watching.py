"""Watches of the client, which continue after disconnects and expired resource versions."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple

import msgspec
import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._kube.api_client import Params
from trioperator._kube.error_response import is_version_too_large
from trioperator._kube.objects import Page, RawObject
from trioperator._kube.retry import adjust_delay, iterate_backoffs
from trioperator._kube.watch import RawWatchEvent, Watch, open_watch
from trioperator._model.jsontypes import JsonObject
from trioperator.client.paging import Listing, report_broken
from trioperator.errors import (
    ApiError,
    ConnectionLostError,
    ExpiredError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # whose type variables have defaults before Python 3.13

    T = TypeVar("T", default=JsonObject)
else:
    from typing import TypeVar

    T = TypeVar("T")

# Seconds: if a server ends watches sooner than this, it does not support them.
_SHORTEST: Final = 1.0
# Seconds: a stream that breaks later than this counts as no failure. Load balancers cut off idle ones after 50 or more.
_LONG_ENOUGH: Final = 30.0
# Delays before further lists if the server has forgotten the resource version of the last one at once, too.
_BACKOFF: Final = Backoff(initial=0.5, maximum=30.0, jitter=0.25)


class ObjectEvent(NamedTuple, Generic[T]):
    """Event of a watch. After a deletion (DELETED), *object* is its last state."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


class ObjectWatch(Generic[T]):
    """An asynchronous iterator over the events of objects, which begins with an ADDED event for each that exists.

    It goes on when a watch ends or breaks, and never misses that an object is different or gone. After failures, it
    backs off by ``settings.networking.error_backoffs``; when these are used up by failures in a row, it raises the last
    one. Errors such as ForbiddenError are raised at once. It can be continued after an error of *decode*, which is
    applied to each object, and after it was cancelled while it waited for an event.
    """

    def __init__(self, listing: Listing, params: Params, *, decode: Callable[[JsonObject], T]) -> None:
        self._kube = listing.kube
        self._path = listing.path
        self._forget = listing.forget
        self._params = params
        self._decode = decode
        self._known: dict[str, RawObject] = {}
        self._pending: deque[ObjectEvent[JsonObject]] = deque()
        self._listed: dict[str, RawObject] = {}  # of the pages of a list that has begun
        self._token = ""  # of its next page
        self._version = ""
        self._watch: Watch | None = None
        self._stack = contextlib.AsyncExitStack()
        self._delays: Iterator[float] | None = None
        self._expirations = 0  # in a row
        self._opened_at = 0.0
        self._due_at = 0.0  # when to go on after a failure
        self._is_interrupted = False

    def __aiter__(self) -> ObjectWatch[T]:
        return self

    async def __anext__(self) -> ObjectEvent[T]:
        while not self._pending:
            await self.advance()
        event = self._pending.popleft()
        return ObjectEvent(event.type, self._decode(event.object))

    async def advance(self) -> None:
        """Take one step of the iteration: list one page, open the watch, or receive one event."""
        if self._due_at:  # a time, so that nobody who cancels this repeatedly gets around the backoff
            await trio.sleep_until(self._due_at)
            self._due_at = 0.0
        try:
            if not self._version:
                await self._list()
            elif self._watch is None:
                await self._open()
            else:
                await self._receive(self._watch)
        except NotFoundError:
            self._forget()
            raise
        except (ExpiredError, ConnectionLostError, ServerError, TooManyRequestsError) as error:
            await self._close()
            if isinstance(error, ExpiredError) or (isinstance(error, ApiError) and is_version_too_large(error)):
                self._start_again(error)
            else:
                self._back_off(error)

    async def restart(self) -> None:
        """List the objects again at the next step."""
        await self._close()
        self._begin_list()

    async def aclose(self) -> None:
        """End the watch."""
        await self._stack.aclose()

    @property
    def is_listed(self) -> bool:
        """Whether the objects have been listed."""
        return bool(self._version)

    @property
    def known(self) -> Collection[RawObject]:
        """The newest states of the objects that exist."""
        return self._known.values()

    def take(self) -> Sequence[ObjectEvent[JsonObject]]:
        """Remove and return the events that were received but not iterated over yet, with their objects as dicts."""
        events = list(self._pending)
        self._pending.clear()
        return events

    async def _list(self) -> None:
        """List the next page of objects; after the last page, compare them with the known ones."""
        limit = self._kube.settings.watching.page_size
        try:
            page = await self._request_page(limit=limit, token=self._token)
        except ExpiredError:
            if not self._token:
                raise
            # The pages take longer than the server keeps its history, so they would expire repeatedly.
            page = await self._request_page(limit=None, token=None)
            self._listed.clear()
        self._listed.update((raw.key, raw) for raw in page.items)
        for broken in page.broken:  # it exists, though nobody knows how
            report_broken(self._kube, self._path, broken)
            key = "" if broken.identity is None else broken.identity.key
            if key in self._known:
                self._listed[key] = self._known[key]
        self._token = page.next
        if not self._token:
            self._compare()
            self._version = page.resource_version
            self._delays = None

    async def _request_page(self, *, limit: int | None, token: str | None) -> Page:
        return await self._kube.retrying(()).list_page(self._path, params=self._params, limit=limit, continue_=token)

    def _compare(self) -> None:
        found, self._listed = self._listed, {}
        for key in self._known.keys() - found.keys():
            self._note(RawWatchEvent("DELETED", self._known[key]))
        for key, raw in found.items():
            known = self._known.get(key)
            if known is None or known.resource_version != raw.resource_version:
                self._note(RawWatchEvent("ADDED" if known is None else "MODIFIED", raw))

    async def _open(self) -> None:
        opening = open_watch(self._kube, self._path, resource_version=self._version, params=self._params)
        self._opened_at = trio.current_time()
        self._watch = await self._stack.enter_async_context(opening)
        self._is_interrupted = False

    async def _close(self) -> None:
        await self._stack.aclose()
        self._watch = None

    async def _receive(self, watch: Watch) -> None:
        try:
            event = await anext(watch)
        except trio.Cancelled:
            self._is_interrupted = True  # which some transports do not survive
            raise
        except (StopAsyncIteration, ConnectionLostError) as end:
            await self._end(end, lasted=trio.current_time() - self._opened_at)
            return
        except UnauthorizedError as error:  # by a proxy, say: the next request renews the credentials
            raise ConnectionLostError(str(error)) from error
        self._version = event.object.resource_version or self._version
        self._delays, self._expirations, self._is_interrupted = None, 0, False
        if event.type != "BOOKMARK":
            self._note(event)

    async def _end(self, end: StopAsyncIteration | ConnectionLostError, *, lasted: float) -> None:
        """Close a watch that has ended or is broken. Raises ConnectionLostError if that counts as a failure."""
        await self._close()
        is_broken = isinstance(end, ConnectionLostError)
        if lasted >= (_LONG_ENOUGH if is_broken else _SHORTEST):
            self._delays = None
        elif not self._is_interrupted and not is_broken:
            raise ConnectionLostError("the server has ended the watch at once") from None
        if is_broken and not self._is_interrupted:
            raise end

    def _note(self, event: RawWatchEvent) -> None:
        raw = event.object
        try:
            body = raw.decode()
        except msgspec.MsgspecError as exc:
            self._kube.find_logger().warning("Watching %s: skipping an event of %s: %s", self._path, raw, exc)
            return
        if event.type == "DELETED":
            if self._known.pop(raw.key, None) is not None:  # else it was never shown, or its deletion was
                self._pending.append(ObjectEvent("DELETED", body))
        else:
            known = raw.key in self._known
            self._known[raw.key] = raw
            self._pending.append(ObjectEvent("MODIFIED" if known else "ADDED", body))

    def _start_again(self, error: ApiError) -> None:
        """List the objects again, with a backoff: the server may forget the next version at once, too."""
        self._begin_list()
        self._expirations += 1
        first = self._expirations == 1
        delay = self._kube.settings.watching.reconnect_backoff if first else _BACKOFF.delay(self._expirations - 1)
        delay = adjust_delay(delay, error, enforce=False)
        logger = self._kube.find_logger()
        log = logger.debug if first else logger.warning
        log("%s is listed again in %g s: %s", self._path, delay, error)
        self._due_at = trio.current_time() + delay

    def _begin_list(self) -> None:
        self._version = self._token = ""
        self._listed.clear()

    def _back_off(self, error: ApiError | ConnectionLostError) -> None:
        networking = self._kube.settings.networking
        if self._delays is None:
            self._delays = iterate_backoffs(networking.error_backoffs)
        delay = next(self._delays, None)
        if delay is None:
            raise error
        delay = adjust_delay(delay, error, enforce=networking.enforce_retry_after)
        self._kube.find_logger().warning("Watching %s failed; retrying in %g s: %s", self._path, delay, error)
        self._due_at = trio.current_time() + delay
