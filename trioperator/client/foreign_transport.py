"""The operator's transport for client libraries that ship a fork of httpx under another name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx


def lend_transport(transport: httpx.AsyncBaseTransport, library: ModuleType) -> Any:
    """Return an asynchronous transport for *library*, which is httpx or a fork of it, that sends through *transport*.

    Closing it leaves *transport* open. Responses are streamed, and errors are the library's.
    """
    kind = type("LentTransport", (_Transport, library.AsyncBaseTransport), {})
    return kind(transport, library)


class _Transport:
    def __init__(self, transport: httpx.AsyncBaseTransport, library: ModuleType) -> None:
        import httpx  # big, and few need it

        self._transport = transport
        self._library = library
        self._sent_stream = type("SentStream", (_Stream, httpx.AsyncByteStream), {})
        self._received_stream = type("ReceivedStream", (_Stream, library.AsyncByteStream), {})

    async def handle_async_request(self, request: Any) -> Any:
        import httpx

        sent = httpx.Request(
            request.method,
            str(request.url),
            headers=request.headers.raw,
            stream=self._sent_stream(request.stream, None),
            extensions=dict(request.extensions),
        )
        try:
            response = await self._transport.handle_async_request(sent)
        except httpx.TransportError as error:
            raise _translate(error, self._library) from error
        return self._library.Response(
            response.status_code,
            headers=response.headers.raw,
            stream=self._received_stream(response.stream, self._library),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Leave the transport open: it is lent."""


class _Stream:
    """A stream of one library for the other one. Errors become errors of *library*, if it is given."""

    def __init__(self, stream: Any, library: ModuleType | None) -> None:
        self._stream = stream
        self._library = library
        self._iterator: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._iterator = aiter(self._stream)
        return self

    async def __anext__(self) -> bytes:
        import httpx

        assert self._iterator is not None
        try:
            return await anext(self._iterator)
        except httpx.TransportError as error:
            if self._library is None:
                raise
            raise _translate(error, self._library) from error

    async def aclose(self) -> None:
        await self._stream.aclose()


def _translate(error: httpx.TransportError, library: ModuleType) -> Exception:
    kind = getattr(library, type(error).__name__, library.TransportError)
    translated: Exception = kind(str(error))
    return translated
