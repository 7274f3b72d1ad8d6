"""One watch request as a stream of watch events. Nothing here retries, lists or remembers.

A stream ends in one of three ways: the server closes it or the client's timeouts do (the iteration ends), the server
reports an error (ApiError, from the HTTP status or an ERROR event), or it breaks: dropped, truncated, not JSON
(ConnectionLostError). Silence is no error: bookmarks are not guaranteed, and a quiet kind may have no events for days.
But a stream that has gone deaf is as silent, so one that is silent for long is ended: see :mod:`._kube.bookmarks`.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import msgspec
import trio

from trioperator._http.transport import Response, ResponseTimeoutError
from trioperator._kube.api_client import ApiClient, Params
from trioperator._kube.bookmarks import Bookmarks
from trioperator._kube.deep_json import split_members
from trioperator._kube.error_response import parse_status
from trioperator._kube.objects import BrokenObject, RawObject, parse_identity, parse_object
from trioperator._logs import get_logger
from trioperator.errors import ConnectionLostError
from trioperator.settings import WatchingSettings

_logger = get_logger("trioperator.kube.watch")

WatchType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

#: Bytes of a line, at most: ten times the largest object that a server stores.
MAX_LINE: Final = 16 * 1024 * 1024

# Range of the duration of a watch that is requested from the server, in seconds. It is client-go's.
_DURATION: Final = (300.0, 600.0)
_MAX_DURATION: Final = 2.0**31
# Seconds after the requested duration until the client ends a watch that the server has not ended: the connection is
# dead, or the server ignores what was requested.
_MARGIN: Final = 30.0
# Seconds until the headers of the response to a watch, which do not depend on events.
_RESPONSE_TIMEOUT: Final = 70.0

_INITIAL_EVENTS: Final[Params] = {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan"}
_INITIAL_EVENTS_END: Final = b'"k8s.io/initial-events-end":"true"'

_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})
# Lines as kube-apiserver writes them: the object can be sliced out without decoding the line.
_CHANGES: Final[tuple[WatchType, ...]] = ("MODIFIED", "ADDED", "DELETED")
_PREFIXES: Final = tuple((f'{{"type":"{name}","object":'.encode(), name) for name in _CHANGES)


class RawWatchEvent(NamedTuple):
    """One watch event. The object of a BOOKMARK has a meaningful resource version only.

    A deleted object that cannot be read has only the metadata that tells which one it is.
    """

    type: WatchType
    object: RawObject


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_line: Final = msgspec.json.Decoder(_Line).decode


class Watch:
    """An open watch; one task at a time iterates over its events.

    The iteration raises ApiError for an ERROR event and ConnectionLostError if the stream is broken, after all events
    that were received before. It ends at *deadline* and after *inactivity_timeout* seconds of silence. Objects that
    cannot be read are passed to *report*, and the times between bookmarks to *bookmarks*.
    """

    def __init__(
        self,
        response: Response,
        *,
        path: str,
        inactivity_timeout: float,
        bookmarks: Bookmarks,
        deadline: float = float("inf"),
        report: Callable[[BrokenObject], None] | None = None,
    ) -> None:
        self._response = response
        self._path = path
        self._inactivity_timeout = self._silence_left = inactivity_timeout
        self._deadline = deadline
        self._bookmarks = bookmarks
        self._bookmarked_at = trio.current_time()
        self._report = report or self._warn
        self._tail: list[bytes] = []  # the parts of an incomplete line
        self._tail_size = 0
        self._lines: deque[bytes] = deque()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> RawWatchEvent:
        while True:
            while self._lines:
                line = self._parse(self._lines.popleft())
                if line is not None:
                    return line
            if not await self._fill():
                raise StopAsyncIteration

    async def _fill(self) -> bool:
        """Receive at least one complete line. Return False at the end of the stream."""
        while not self._lines:
            data = await self._receive()
            if not data:
                if any(map(bytes.strip, self._tail)):
                    raise ConnectionLostError(f"The watch of {self._path} ended in the middle of a line.")
                return False
            self._split(data)
        return True

    async def _receive(self) -> bytes:
        """Receive bytes; ``b""`` at the end of the stream, or when one of the client's own timeouts is over."""
        silent_at = trio.current_time() + self._silence_left
        try:
            data = await self._response.receive(min(self._deadline, silent_at))
            self._silence_left = self._inactivity_timeout
            return data
        except trio.TooSlowError:
            pass
        except trio.Cancelled:  # by a reader who waits for a short time, again and again: the silence adds up
            self._silence_left = silent_at - trio.current_time()
            raise
        is_late = self._deadline <= silent_at
        if not is_late:
            self._bookmarks.note_silence(self._path)
        why = "the server has not ended in time" if is_late else "has been silent for so long that it may be deaf"
        _logger.debug("Ending the watch of %s, which %s.", self._path, why)
        self._tail.clear()
        return b""

    def _split(self, data: bytes) -> None:
        """Split *data* into lines, in time linear in its size."""
        first, *rest = data.split(b"\n")
        self._tail.append(first)
        self._tail_size += len(first)
        if self._tail_size > MAX_LINE:
            raise ConnectionLostError(f"The watch of {self._path} sent a line longer than {MAX_LINE} bytes.")
        if rest:
            lines = self._lines
            line = b"".join(self._tail) if len(self._tail) > 1 else first
            last = rest.pop()
            lines.extend(filter(bytes.strip, (line, *rest)))
            self._tail = [last]
            self._tail_size = len(last)

    def _parse(self, line: bytes) -> RawWatchEvent | None:
        """Parse a line; return None for an event to be skipped. Raises what ends the stream."""
        try:
            for prefix, name in _PREFIXES:
                if line.startswith(prefix):
                    try:
                        return RawWatchEvent(name, parse_object(line[len(prefix) : -1]))
                    except msgspec.ValidationError as exc:
                        return self._skip(name, line[len(prefix) : -1], exc)
                    except msgspec.DecodeError:
                        break  # the line has more fields, or is invalid
            return self._parse_slowly(line)
        except msgspec.ValidationError as exc:
            self._warn(BrokenObject(None, str(exc)))
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise ConnectionLostError(f"The watch of {self._path} sent invalid JSON: {exc}") from exc

    def _parse_slowly(self, line: bytes) -> RawWatchEvent | None:
        """Parse a line in any format."""
        try:
            parsed = _decode_line(line)
        except RecursionError:
            parsed = _take_apart(line)
        raw = bytes(parsed.object)
        if parsed.type == "BOOKMARK":
            self._record_bookmark()
        if parsed.type in _TYPES:
            try:
                return RawWatchEvent(cast(WatchType, parsed.type), parse_object(raw))
            except msgspec.ValidationError as exc:
                return self._skip(parsed.type, raw, exc)
        if parsed.type == "ERROR":
            raise parse_status(raw, status=0, target=self._path)
        _logger.warning("Watching %s: skipping an event of the unknown type %.50s.", self._path, parsed.type)
        return None

    def _record_bookmark(self) -> None:
        before, self._bookmarked_at = self._bookmarked_at, trio.current_time()
        self._bookmarks.record(self._path, self._bookmarked_at - before)

    def _skip(self, type: str, raw: bytes, exc: msgspec.ValidationError) -> RawWatchEvent | None:
        """Report an object that cannot be read. Its deletion is an event all the same."""
        identity = parse_identity(raw)
        if type == "DELETED" and identity is not None:
            return RawWatchEvent("DELETED", identity)
        self._report(BrokenObject(identity, str(exc)))
        return None

    def _warn(self, broken: BrokenObject) -> None:
        name = "an invalid object" if broken.identity is None else broken.identity
        _logger.warning("Watching %s: skipping an event with %s: %s", self._path, name, broken.problem)


def _take_apart(line: bytes) -> _Line:
    """Parse a line that is nested too deeply for the decoder."""
    members = dict(split_members(line))
    event_type = msgspec.json.decode(members.get("type", b"null"), type=str)
    return _Line(type=event_type, object=msgspec.Raw(members.get("object", b"null")))


def longest_watch(settings: WatchingSettings) -> float:
    """Return the seconds that a watch may take with these settings, until the client ends it."""
    duration = _DURATION[1] if settings.server_timeout is None else settings.server_timeout
    longest = min(duration, _MAX_DURATION) + _MARGIN
    return longest if settings.client_timeout is None else min(longest, settings.client_timeout)


def ends_initial_events(event: RawWatchEvent) -> bool:
    """Check whether all objects that there were at first have come."""
    return event.type == "BOOKMARK" and _INITIAL_EVENTS_END in event.object.raw.replace(b" ", b"")


@contextlib.asynccontextmanager
async def open_watch(
    client: ApiClient,
    path: str,
    *,
    resource_version: str | None,
    params: Params | None = None,
    report: Callable[[BrokenObject], None] | None = None,
) -> AsyncIterator[Watch]:
    """Watch the collection at *path* from *resource_version*, with the client's ``settings.watching``.

    Without a version, all objects come first, as ADDED, and then a BOOKMARK that :func:`ends_initial_events`.

    *params* are further parameters of the request, such as selectors.

    Objects that cannot be read are passed to *report*, and by default are skipped with a warning.

    Raises ApiError for an error response (ExpiredError if the resource version is too old), ConnectionLostError if
    there is none. The client handles 401.
    """
    watching = client.settings.watching
    started = trio.current_time()
    duration = random.uniform(*_DURATION) if watching.server_timeout is None else watching.server_timeout
    duration = client.bookmarks.choose_duration(path, duration, patience=watching.inactivity_timeout)
    seconds = max(1, round(min(duration, _MAX_DURATION)))
    start = _INITIAL_EVENTS if resource_version is None else {"resourceVersion": resource_version}
    params = {**(params or {}), "watch": True, "allowWatchBookmarks": True, "timeoutSeconds": seconds, **start}
    timeout = watching.inactivity_timeout or _RESPONSE_TIMEOUT
    try:
        response = await client.open_stream(
            path, params=params, timeout=timeout, connect_timeout=watching.connect_timeout
        )
    except ResponseTimeoutError:
        client.bookmarks.note_silence(path)
        raise
    deadline = trio.current_time() + seconds + _MARGIN
    if watching.client_timeout is not None:
        deadline = min(deadline, started + watching.client_timeout)
    try:
        yield Watch(
            response,
            path=path,
            inactivity_timeout=watching.inactivity_timeout or client.bookmarks.choose_patience(path),
            bookmarks=client.bookmarks,
            deadline=deadline,
            report=report,
        )
    finally:
        await response.aclose()
