"""Watches that go on: events of objects, after breaks and expired resource versions too."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple

import msgspec
import trio

from trioperator.client.paging import Listing
from trioperator.errors import (
    ApiError,
    ConnectionLostError,
    ExpiredError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
)
from trioperator.kube.client import Params
from trioperator.kube.objects import RawObject
from trioperator.kube.retry import adjust_delay, iterate_backoffs
from trioperator.kube.watch import RawWatchEvent, Watch, open_watch
from trioperator.model.jsontypes import JsonObject

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # whose type variables have defaults before Python 3.13

    T = TypeVar("T", default=JsonObject)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = ["ObjectEvent", "ObjectWatch"]

# Seconds: a server that ends watches sooner does not serve them.
_SHORTEST: Final = 1.0


class ObjectEvent(NamedTuple, Generic[T]):
    """Something that has happened to an object, which is as it was before its deletion if that is DELETED."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


class ObjectWatch(Generic[T]):
    """An asynchronous iterator over the events of objects, which begins with an ADDED event for each that exists.

    It goes on when a watch ends or breaks, and never misses that an object is different or gone. After as many failures
    in a row as there are ``settings.networking.error_backoffs``, it raises the last one. Errors such as ForbiddenError
    are raised at once. It also goes on after an error of *decode*, which is applied to each object.
    """

    def __init__(self, listing: Listing, params: Params, *, decode: Callable[[JsonObject], T]) -> None:
        self._kube = listing.kube
        self._path = listing.path
        self._forget = listing.forget
        self._params = params
        self._decode = decode
        self._known: dict[str, RawObject] = {}
        self._pending: deque[ObjectEvent[JsonObject]] = deque()
        self._version = ""
        self._watch: Watch | None = None
        self._stack = contextlib.AsyncExitStack()
        self._delays: Iterator[float] | None = None
        self._opened_at = 0.0

    def __aiter__(self) -> ObjectWatch[T]:
        return self

    async def __anext__(self) -> ObjectEvent[T]:
        while not self._pending:
            await self.advance()
        event = self._pending.popleft()
        return ObjectEvent(event.type, self._decode(event.object))

    async def advance(self) -> None:
        """List the objects, or receive some events: no more than one of what an iteration may have to do."""
        try:
            if not self._version:
                await self._list()
            elif self._watch is None:
                await self._open()
            else:
                await self._receive(self._watch)
        except ExpiredError:
            self._version = ""
            await self._stack.aclose()
            self._watch = None
        except NotFoundError:
            self._forget()
            raise
        except (ConnectionLostError, ServerError, TooManyRequestsError) as error:
            await self._back_off(error)

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
        """Take the events that were received and are not iterated over yet, with their objects as dicts."""
        events = list(self._pending)
        self._pending.clear()
        return events

    async def _list(self) -> None:
        """List all objects, and compare them with those that were known."""
        found: dict[str, RawObject] = {}
        token: str | None = ""
        while token is not None:
            page = await self._kube.list_page(
                self._path,
                params=self._params,
                limit=self._kube.settings.watching.page_size,
                continue_=token,
                backoffs=(),
            )
            found.update((raw.key, raw) for raw in page.items)
            token = page.next or None
        for key in self._known.keys() - found.keys():
            self._note(RawWatchEvent("DELETED", self._known[key]))
        for key, raw in found.items():
            known = self._known.get(key)
            if known is None or known.resource_version != raw.resource_version:
                self._note(RawWatchEvent("ADDED" if known is None else "MODIFIED", raw))
        self._version = page.resource_version
        self._delays = None

    async def _open(self) -> None:
        opening = open_watch(self._kube, self._path, resource_version=self._version, params=self._params)
        self._opened_at = trio.current_time()
        self._watch = await self._stack.enter_async_context(opening)

    async def _receive(self, watch: Watch) -> None:
        try:
            event = await anext(watch)
        except StopAsyncIteration:
            if trio.current_time() < self._opened_at + _SHORTEST:
                raise ConnectionLostError("the server has ended the watch at once") from None
            await self._stack.aclose()
            self._watch = None
            return
        self._version = event.object.resource_version or self._version
        self._delays = None
        if event.type != "BOOKMARK":
            self._note(event)

    def _note(self, event: RawWatchEvent) -> None:
        raw = event.object
        try:
            body = raw.decode()
        except msgspec.MsgspecError as exc:
            self._kube.find_logger().warning("Watching %s: skipping an event of %s: %s", self._path, raw, exc)
            return
        if event.type == "DELETED":
            self._known.pop(raw.key, None)
            self._pending.append(ObjectEvent("DELETED", body))
        else:
            known = raw.key in self._known
            self._known[raw.key] = raw
            self._pending.append(ObjectEvent("MODIFIED" if known else "ADDED", body))

    async def _back_off(self, error: ApiError | ConnectionLostError) -> None:
        await self._stack.aclose()
        self._watch = None
        networking = self._kube.settings.networking
        if self._delays is None:
            self._delays = iterate_backoffs(networking.error_backoffs)
        delay = next(self._delays, None)
        if delay is None:
            raise error
        delay = adjust_delay(delay, error, enforce=networking.enforce_retry_after)
        self._kube.find_logger().warning("Watching %s failed; retrying in %g s: %s", self._path, delay, error)
        await trio.sleep(delay)
