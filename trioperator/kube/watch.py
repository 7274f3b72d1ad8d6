"""One watch request as a stream of lines, each an event of one object. Nothing here retries, lists or remembers.

A stream ends in one of three ways: the server ends it (the iteration ends), the server says why (ApiError, from the
HTTP status or an ERROR line), or it breaks: dropped, silent, half a line, no JSON (ConnectionLostError).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import msgspec
import trio

from trioperator.errors import ConnectionLostError
from trioperator.kube.client import Client
from trioperator.kube.exchange import Reply
from trioperator.kube.objects import RawObject, parse_object
from trioperator.kube.retry import status_error
from trioperator.logs import get_logger

__all__ = ["MAX_LINE", "RawObject", "Watch", "WatchLine", "WatchType", "open_watch"]

_logger = get_logger(__name__)

WatchType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

#: The longest line that is taken, in bytes: ten times the biggest object that a server stores.
MAX_LINE: Final = 16 * 1024 * 1024

_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})
# Lines as kube-apiserver writes them: the object can be cut out with no decoding.
_PREFIXES: Final = tuple((f'{{"type":"{name}","object":'.encode(), name) for name in ("MODIFIED", "ADDED", "DELETED"))


class WatchLine(NamedTuple):
    """One event of a watch. Of a BOOKMARK's object only the resource version is meant."""

    type: WatchType
    object: RawObject


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_line: Final = msgspec.json.Decoder(_Line).decode


class Watch:
    """An open watch, to be iterated over by one task at a time.

    Events that came before a bad line are given first; then the iteration raises ApiError for an ERROR line,
    ConnectionLostError where the stream is broken or silent.
    """

    def __init__(
        self, reply: Reply, *, path: str, inactivity_timeout: float | None, deadline: float = float("inf")
    ) -> None:
        self._reply = reply
        self._path = path
        self._inactivity_timeout = inactivity_timeout
        self._deadline = deadline
        self._tail: list[bytes] = []  # the parts of a line whose end has not come yet
        self._tail_size = 0
        self._lines: deque[bytes] = deque()

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> WatchLine:
        while True:
            while self._lines:
                line = self._parse(self._lines.popleft())
                if line is not None:
                    return line
            if not await self._fill():
                raise StopAsyncIteration

    async def _fill(self) -> bool:
        """Wait for at least one whole line more; tell whether there is one, or the stream has ended."""
        while not self._lines:
            data = await self._receive()
            if not data:
                if any(map(bytes.strip, self._tail)):
                    raise ConnectionLostError(f"The watch of {self._path} has ended in the middle of a line.")
                return False
            self._split(data)
        return True

    async def _receive(self) -> bytes:
        """Give what has come, ``b""`` at the end of the stream or of the client's time for it."""
        idle = float("inf") if self._inactivity_timeout is None else self._inactivity_timeout
        until = min(self._deadline, trio.current_time() + idle)
        with trio.CancelScope(deadline=until):
            return await self._reply.receive()
        if until == self._deadline:
            self._tail.clear()
            return b""
        raise ConnectionLostError(f"The watch of {self._path} was silent for {idle:g} s.")

    def _split(self, data: bytes) -> None:
        """Take whole lines out of *data*: each byte is looked at and copied a fixed number of times."""
        first, *rest = data.split(b"\n")
        self._tail.append(first)
        self._tail_size += len(first)
        if self._tail_size > MAX_LINE:
            raise ConnectionLostError(f"The watch of {self._path} sends a line longer than {MAX_LINE} bytes.")
        if rest:
            lines = self._lines
            line = b"".join(self._tail) if len(self._tail) > 1 else first
            if line:
                lines.append(line)
            last = rest.pop()
            lines.extend(filter(None, rest))
            self._tail = [last]
            self._tail_size = len(last)

    def _parse(self, line: bytes) -> WatchLine | None:
        """Give the event of a line, None for what is left out. Raises what ends the stream."""
        try:
            for prefix, name in _PREFIXES:
                if line.startswith(prefix):
                    try:
                        return WatchLine(cast(WatchType, name), parse_object(line[len(prefix) : -1]))
                    except msgspec.ValidationError:
                        raise
                    except msgspec.DecodeError:
                        break  # there is more in the line than we know of, or it is broken
            return self._parse_slowly(line)
        except msgspec.ValidationError as exc:
            _logger.warning("Watching %s: an event is left out, its object is broken: %s", self._path, exc)
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise ConnectionLostError(f"The watch of {self._path} sends what is not JSON: {exc}") from exc

    def _parse_slowly(self, line: bytes) -> WatchLine | None:
        """Take a line of any shape."""
        try:
            parsed = _decode_line(line)
        except RecursionError:
            raise msgspec.ValidationError("it is nested too deeply") from None
        if parsed.type in _TYPES:
            return WatchLine(cast(WatchType, parsed.type), parse_object(bytes(parsed.object)))
        if parsed.type == "ERROR":
            raise status_error(bytes(parsed.object), status=0)
        _logger.warning("Watching %s: an event of the unknown type %.50s is left out.", self._path, parsed.type)
        return None


@contextlib.asynccontextmanager
async def open_watch(client: Client, path: str, *, resource_version: str) -> AsyncIterator[Watch]:
    """Watch the collection at *path* from *resource_version* on, by the client's ``settings.watching``.

    Raises ApiError where the server refuses, ExpiredError where the version is too old, ConnectionLostError where
    there is no answer. A 401 is dealt with by the client.
    """
    watching = client.settings.watching
    started = trio.current_time()
    server_timeout = watching.server_timeout
    reply = await client.open_stream(
        path,
        params={
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": resource_version,
            "timeoutSeconds": None if server_timeout is None else max(1, round(server_timeout)),
        },
        timeout=watching.inactivity_timeout,
        connect_timeout=watching.connect_timeout,
    )
    client_timeout = float("inf") if watching.client_timeout is None else watching.client_timeout
    try:
        yield Watch(reply, path=path, inactivity_timeout=watching.inactivity_timeout, deadline=started + client_timeout)
    finally:
        await reply.aclose()
