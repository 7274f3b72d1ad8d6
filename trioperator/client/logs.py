"""Lines of logs that are followed."""

from __future__ import annotations

from collections import deque
from typing import Final

from trioperator._http.transport import Response
from trioperator.errors import ConnectionLostError

# Bytes of a line that are kept in memory, at most: longer ones are cut into parts.
_MAX_LINE: Final = 1024 * 1024


class LogLines:
    """An asynchronous iterator over the lines of a log, without their ends.

    Raises ConnectionLostError if the connection breaks.
    """

    def __init__(self, response: Response) -> None:
        self._response = response
        self._tail = b""
        self._lines: deque[bytes] = deque()
        self._ended = False

    def __aiter__(self) -> LogLines:
        return self

    async def __anext__(self) -> str:
        while not self._lines:
            if self._ended:
                raise StopAsyncIteration
            await self._receive()
        return self._lines.popleft().decode(errors="replace")

    async def _receive(self) -> None:
        try:
            data = await self._response.receive()
        except ConnectionLostError:
            self._ended = True
            raise
        *lines, self._tail = (self._tail + data).split(b"\n")
        self._ended = not data
        if self._tail and (self._ended or len(self._tail) > _MAX_LINE):
            lines.append(self._tail)
            self._tail = b""
        self._lines.extend(lines)
