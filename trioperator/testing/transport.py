"""Fault injection: the transport that makes requests fail. It waits in Trio's time, which may be virtual."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import trio

from .faults import Fault
from .plans import FaultPlan, is_watch


class FaultyTransport(httpx.AsyncBaseTransport):
    """Transport that sends requests by the inner transport, and injects the faults of the plan."""

    def __init__(self, inner: httpx.AsyncBaseTransport, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan
        self._responses: dict[tuple[str, bytes], tuple[int, httpx.Headers, bytes]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request, and return the response, with the fault that the plan chooses for it."""
        fault = self._plan.choose(request)
        if fault is None:
            return await self._send(request)
        await trio.lowlevel.checkpoint()
        response = await self._fail(fault, request)
        if response is not None:
            return response
        if fault.hook is not None:
            fault.hook()
        await _sleep(fault.before)
        response = await self._send(request)
        if fault.kind == "delay":
            await _sleep(fault.after)
        if fault.kind == "half_body" and not is_watch(request):
            half = _HalfBody(await _read(response), request)
            return httpx.Response(response.status_code, headers=response.headers, stream=half)
        if is_watch(request) and response.status_code == 200:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _FaultyStream(response.stream, fault, request)
        return response

    async def _fail(self, fault: Fault, request: httpx.Request) -> httpx.Response | None:
        """Raise or return what takes the place of the response; None if the request is to be sent."""
        match fault.kind:
            case "refuse":
                raise httpx.ConnectError("The connection was refused.", request=request)
            case "reset":
                raise httpx.ReadError("The connection was reset.", request=request)
            case "lose_answer":
                response = await self._send(request)
                await response.aclose()
                raise httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)
            case "stall":
                await _wait_forever(request)
            case "status":
                return _build_response(fault)
            case "stale" if (request.method, request.url.raw_path) in self._responses:
                status, headers, body = self._responses[request.method, request.url.raw_path]
                return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))
        return None

    async def _send(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if request.method == "GET" and not is_watch(request):
            status, headers, body = response.status_code, response.headers, await _read(response)
            self._responses[request.method, request.url.raw_path] = (status, headers, body)
            return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))
        return response

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


async def _read(response: httpx.Response) -> bytes:
    """Return the body as it was sent, and close the response."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    body = b"".join([part async for part in response.stream])
    await response.aclose()
    return body


async def _sleep(seconds: float) -> None:
    if seconds > 0:
        await trio.sleep(seconds)


async def _wait_forever(request: httpx.Request) -> None:
    timeout = (request.extensions.get("timeout") or {}).get("read")
    if timeout is None:
        await trio.sleep_forever()
    await trio.sleep(timeout)
    raise httpx.ReadTimeout("The server did not respond in time.", request=request)


def _build_response(fault: Fault) -> httpx.Response:
    headers = {"Content-Type": "application/json", "Content-Length": str(len(fault.body))}
    if fault.retry_after is not None:
        headers["Retry-After"] = f"{fault.retry_after:g}"
    return httpx.Response(fault.code, headers=headers, stream=httpx.ByteStream(fault.body))


class _HalfBody(httpx.AsyncByteStream):
    """First half of a body, before the connection is dropped."""

    def __init__(self, body: bytes, request: httpx.Request) -> None:
        self._parts = [body[: len(body) // 2]]
        self._request = request

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if self._parts:
            return self._parts.pop()
        raise httpx.RemoteProtocolError("The connection was closed in the middle of the body.", request=self._request)


class _FaultyStream(httpx.AsyncByteStream):
    """Lines of a stream with an injected fault."""

    def __init__(self, inner: httpx.AsyncByteStream, fault: Fault, request: httpx.Request) -> None:
        self._inner = inner
        self._chunks = inner.__aiter__()
        self._fault = fault
        self._request = request
        self._lines: list[bytes] = []
        self._rest = b""
        self._sent = 0
        self._due: float | None = None
        self._has_ended = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if self._has_ended:
            raise StopAsyncIteration
        fault = self._fault
        if self._sent == fault.lines:
            match fault.kind:
                case "close":
                    raise StopAsyncIteration
                case "break_off":
                    raise httpx.ReadError("The connection was reset.", request=self._request)
                case "inject":
                    self._has_ended = True
                    return fault.body
                case "silence":
                    await _wait_forever(self._request)
                case "half_line":
                    self._has_ended = True
                    line = await self._next_line()
                    return line[: len(line) // 2]
        if fault.kind == "lag":
            await self._lag()
        line = await self._next_line()
        self._sent += 1
        return line * 2 if fault.kind == "duplicate" else line

    async def _lag(self) -> None:
        """Wait until the next line arrives. If a reader gives up waiting, the line is still under way, and not lost."""
        if self._due is None:
            await self._fill()
            self._due = trio.current_time() + self._fault.after
        await trio.sleep_until(self._due)
        self._due = None

    async def _next_line(self) -> bytes:
        await self._fill()
        return self._lines.pop(0)

    async def _fill(self) -> None:
        while not self._lines:
            *lines, self._rest = (self._rest + await self._chunks.__anext__()).split(b"\n")
            self._lines.extend(line + b"\n" for line in lines)

    async def aclose(self) -> None:
        """Close the inner stream."""
        await self._inner.aclose()
