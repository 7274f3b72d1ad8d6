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


class _Objects:
    """The objects as the watch has shown them (``known``), and the events that this makes (``pending``)."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self.known: dict[str, RawObject] = {}
        self.pending: deque[ObjectEvent[JsonObject]] = deque()
        self._listed: dict[str, RawObject] = {}  # of the pages of a list that has begun

    def begin_list(self) -> None:
        """Drop the pages so far."""
        self._listed.clear()

    def add(self, page: Page) -> None:
        """Take a page of the list."""
        self._listed.update((raw.key, raw) for raw in page.items)
        for broken in page.broken:  # it exists, though nobody knows how
            report_broken(self._listing.kube, self._listing.path, broken)
            key = "" if broken.identity is None else broken.identity.key
            if key in self.known:
                self._listed[key] = self.known[key]

    def end_list(self) -> None:
        """Compare the objects that were listed with the known ones."""
        found, self._listed = self._listed, {}
        for key in self.known.keys() - found.keys():
            self.note(RawWatchEvent("DELETED", self.known[key]))
        for key, raw in found.items():
            known = self.known.get(key)
            if known is None or known.resource_version != raw.resource_version:
                self.note(RawWatchEvent("ADDED" if known is None else "MODIFIED", raw))

    def note(self, event: RawWatchEvent) -> None:
        """Take an event of a watch."""
        raw = event.object
        try:
            body = raw.decode()
        except msgspec.MsgspecError as exc:
            text = "Watching %s: skipping an event of %s: %s"
            self._listing.kube.options.find_logger().warning(text, self._listing.path, raw, exc)
            return
        if event.type == "DELETED":
            if self.known.pop(raw.key, None) is not None:  # else it was never shown, or its deletion was
                self.pending.append(ObjectEvent("DELETED", body))
        else:
            known = raw.key in self.known
            self.known[raw.key] = raw
            self.pending.append(ObjectEvent("MODIFIED" if known else "ADDED", body))


class _Failures:
    """The failures in a row, and when to go on after the last one."""

    def __init__(self, listing: Listing) -> None:
        self._kube, self._path = listing.kube, listing.path
        self._delays: Iterator[float] | None = None
        self._expirations = 0
        self._due_at = 0.0

    async def back_off(self) -> None:
        """Wait until it is time to go on: whoever cancels this repeatedly does not get around it."""
        if self._due_at:
            await trio.sleep_until(self._due_at)
            self._due_at = 0.0

    def end(self) -> None:
        """Note that requests succeed."""
        self._delays = None

    def end_all(self) -> None:
        """Note that the resource version is known, too."""
        self._delays, self._expirations = None, 0

    def add_expiration(self, error: ApiError) -> None:
        """Back off from listing again: the server may forget the next version at once, too."""
        self._expirations += 1
        first = self._expirations == 1
        delay = self._kube.settings.watching.reconnect_backoff if first else _BACKOFF.delay(self._expirations - 1)
        delay = adjust_delay(delay, error, enforce=False)
        logger = self._kube.options.find_logger()
        log = logger.debug if first else logger.warning
        log("%s is listed again in %g s: %s", self._path, delay, error)
        self._due_at = trio.current_time() + delay

    def add(self, error: ApiError | ConnectionLostError) -> None:
        """Back off, or raise the error if there were too many."""
        networking = self._kube.settings.networking
        if self._delays is None:
            self._delays = iterate_backoffs(networking.error_backoffs)
        delay = next(self._delays, None)
        if delay is None:
            raise error
        delay = adjust_delay(delay, error, enforce=networking.enforce_retry_after)
        self._kube.options.find_logger().warning("Watching %s failed; retrying in %g s: %s", self._path, delay, error)
        self._due_at = trio.current_time() + delay


class ObjectWatch(Generic[T]):
    """An asynchronous iterator over the events of objects, which begins with an ADDED event for each that exists.

    It goes on when a watch ends or breaks, and never misses that an object is different or gone. After failures, it
    backs off by ``settings.networking.error_backoffs``; when these are used up by failures in a row, it raises the last
    one. Errors such as ForbiddenError are raised at once. It can be continued after an error of *decode*, which is
    applied to each object, and after it was cancelled while it waited for an event.
    """

    def __init__(self, listing: Listing, params: Params, *, decode: Callable[[JsonObject], T]) -> None:
        self._listing = listing
        self._params = params
        self._decode = decode
        self._objects = _Objects(listing)
        self._failures = _Failures(listing)
        self._token = ""  # of the next page of a list
        self._version = ""
        self._watch: Watch | None = None
        self._stack = contextlib.AsyncExitStack()
        self._opened_at = 0.0
        self._is_interrupted = False

    def __aiter__(self) -> ObjectWatch[T]:
        return self

    async def __anext__(self) -> ObjectEvent[T]:
        while not self._objects.pending:
            await self.advance()
        event = self._objects.pending.popleft()
        return ObjectEvent(event.type, self._decode(event.object))

    async def advance(self) -> None:
        """Take one step of the iteration: list one page, open the watch, or receive one event."""
        await self._failures.back_off()
        try:
            if not self._version:
                await self._list()
            elif self._watch is None:
                await self._open()
            else:
                await self._receive(self._watch)
        except NotFoundError:
            self._listing.forget()
            raise
        except (ExpiredError, ConnectionLostError, ServerError, TooManyRequestsError) as error:
            await self._close()
            if isinstance(error, ExpiredError) or (isinstance(error, ApiError) and is_version_too_large(error)):
                self._begin_list()
                self._failures.add_expiration(error)
            else:
                self._failures.add(error)

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
        return self._objects.known.values()

    def take(self) -> Sequence[ObjectEvent[JsonObject]]:
        """Remove and return the events that were received but not iterated over yet, with their objects as dicts."""
        events = list(self._objects.pending)
        self._objects.pending.clear()
        return events

    async def _list(self) -> None:
        """List the next page of objects; after the last page, compare them with the known ones."""
        limit = self._listing.kube.settings.watching.page_size
        try:
            page = await self._request_page(limit=limit, token=self._token)
        except ExpiredError:
            if not self._token:
                raise
            # The pages take longer than the server keeps its history, so they would expire repeatedly.
            page = await self._request_page(limit=None, token=None)
            self._objects.begin_list()
        self._objects.add(page)
        self._token = page.next
        if not self._token:
            self._objects.end_list()
            self._version = page.resource_version
            self._failures.end()

    async def _request_page(self, *, limit: int | None, token: str | None) -> Page:
        kube, path = self._listing.kube.retrying(()), self._listing.path
        return await kube.list_page(path, params=self._params, limit=limit, continue_=token)

    async def _open(self) -> None:
        opening = open_watch(
            self._listing.kube, self._listing.path, resource_version=self._version, params=self._params
        )
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
        self._failures.end_all()
        self._is_interrupted = False
        if event.type != "BOOKMARK":
            self._objects.note(event)

    async def _end(self, end: StopAsyncIteration | ConnectionLostError, *, lasted: float) -> None:
        """Close a watch that has ended or is broken. Raises ConnectionLostError if that counts as a failure."""
        await self._close()
        is_broken = isinstance(end, ConnectionLostError)
        if lasted >= (_LONG_ENOUGH if is_broken else _SHORTEST):
            self._failures.end()
        elif not self._is_interrupted and not is_broken:
            raise ConnectionLostError("the server has ended the watch at once") from None
        if is_broken and not self._is_interrupted:
            raise end

    def _begin_list(self) -> None:
        self._version = self._token = ""
        self._objects.begin_list()
