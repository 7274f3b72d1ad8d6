"""Faults on demand: a plan that says what goes wrong with which requests, and the transport that lets it.

Everything works in Trio's time, so that hours of trouble pass in no time under a virtual clock. Faults that only
streams can have (broken lines, silence…) leave other responses alone.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import httpx
import msgspec
import trio

__all__ = ["Fault", "FaultPlan", "FaultRule", "FaultyTransport"]

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to go wrong; made by the class methods."""

    kind: str
    lines: int = 0
    code: int = 0
    body: bytes = b""
    retry_after: float | None = None
    before: float = 0
    after: float = 0
    hook: Callable[[], object] | None = None

    @classmethod
    def refuse(cls) -> Fault:
        """Refuse the connection: the server never sees the request."""
        return cls(kind="refuse")

    @classmethod
    def reset(cls) -> Fault:
        """Break the connection before the server sees the request."""
        return cls(kind="reset")

    @classmethod
    def lose_answer(cls) -> Fault:
        """Break the connection after the server has done what was asked, before the answer arrives."""
        return cls(kind="lose_answer")

    @classmethod
    def stall(cls) -> Fault:
        """Never answer; the client's read time-out applies. The server never sees the request."""
        return cls(kind="stall")

    @classmethod
    def status(
        cls, code: int, *, message: str = "", reason: str | None = None, retry_after: float | None = None
    ) -> Fault:
        """Answer with the HTTP status and a ``Status`` object; the server never sees the request."""
        body = msgspec.json.encode(_status_object(code, message, reason, retry_after))
        return cls(kind="status", code=code, body=body, retry_after=retry_after)

    @classmethod
    def answer(cls, code: int, body: bytes) -> Fault:
        """Answer with that very body, whatever it is; the server never sees the request."""
        return cls(kind="status", code=code, body=body)

    @classmethod
    def delay(cls, *, before: float = 0, after: float = 0) -> Fault:
        """Hold the request back for *before* seconds, and the answer of the server for *after* seconds."""
        return cls(kind="delay", before=before, after=after)

    @classmethod
    def close(cls, *, lines: int = 0) -> Fault:
        """End the stream in order after so many lines."""
        return cls(kind="close", lines=lines)

    @classmethod
    def break_off(cls, *, lines: int = 0) -> Fault:
        """Break the connection after so many lines of the stream."""
        return cls(kind="break_off", lines=lines)

    @classmethod
    def half_line(cls, *, lines: int = 0) -> Fault:
        """Send only a half of the line after so many lines, and end the stream."""
        return cls(kind="half_line", lines=lines)

    @classmethod
    def garbage(cls, *, lines: int = 0, text: bytes = b'{"type":\n') -> Fault:
        """Send a line that is not JSON after so many lines, and end the stream."""
        return cls(kind="inject", lines=lines, body=text)

    @classmethod
    def error_event(cls, code: int, *, lines: int = 0, message: str = "", reason: str | None = None) -> Fault:
        """Send an ERROR event after so many lines, and end the stream."""
        event = {"type": "ERROR", "object": _status_object(code, message, reason, None)}
        return cls(kind="inject", lines=lines, body=msgspec.json.encode(event) + b"\n")

    @classmethod
    def silence(cls, *, lines: int = 0) -> Fault:
        """Send nothing more after so many lines of the stream, and leave it open."""
        return cls(kind="silence", lines=lines)

    @classmethod
    def duplicate(cls) -> Fault:
        """Send each line of the stream twice."""
        return cls(kind="duplicate")

    @classmethod
    def stale(cls) -> Fault:
        """Answer a read as the last time it was answered, if it ever was."""
        return cls(kind="stale")

    @classmethod
    def call(cls, hook: Callable[[], object]) -> Fault:
        """Call the function before the request goes on unharmed: to compact the history, to delete an object…"""
        return cls(kind="call", hook=hook)


def _status_object(code: int, message: str, reason: str | None, retry_after: float | None) -> dict[str, Any]:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message or "a fault on demand",
        "reason": _REASONS.get(code, "") if reason is None else reason,
        "code": code,
    }
    if retry_after is not None:
        status["details"] = {"retryAfterSeconds": math.ceil(retry_after)}
    return status


@dataclasses.dataclass(slots=True, eq=False)
class FaultRule:
    """To which requests a fault happens; ``hits`` counts to how many it has happened."""

    fault: Fault
    method: str | None = None
    path: re.Pattern[str] | None = None
    watch: bool | None = None
    times: float = math.inf
    skip: int = 0
    since: float = -math.inf
    until: float = math.inf
    hits: int = 0
    seen: int = 0

    def takes(self, request: httpx.Request) -> bool:
        """Tell whether the fault happens to the request, and count it."""
        if self.hits >= self.times or not self.since <= trio.current_time() < self.until:
            return False
        if self.method is not None and request.method != self.method:
            return False
        if self.watch is not None and _is_watch(request) is not self.watch:
            return False
        if self.path is not None and not self.path.search(request.url.raw_path.decode()):
            return False
        self.seen += 1
        if self.seen <= self.skip:
            return False
        self.hits += 1
        return True


def _is_watch(request: httpx.Request) -> bool:
    return request.url.params.get("watch", "").lower() in {"1", "true"}


class FaultPlan:
    """What goes wrong: rules in order, of which the first that takes a request decides its fate."""

    def __init__(self) -> None:
        self._rules: list[FaultRule] = []

    def add(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        path: str | None = None,
        watch: bool | None = None,
        times: int | None = None,
        skip: int = 0,
        since: float | None = None,
        until: float | None = None,
    ) -> FaultRule:
        """Let the fault happen to the requests that fit.

        ``path`` is a regular expression to be found in the path with its query; ``watch`` tells watches from other
        requests; the first ``skip`` requests that fit are spared, the next ``times`` are hit; ``since`` and ``until``
        are in Trio's time.
        """
        rule = FaultRule(
            fault,
            method=method,
            path=None if path is None else re.compile(path),
            watch=watch,
            times=math.inf if times is None else times,
            skip=skip,
            since=-math.inf if since is None else since,
            until=math.inf if until is None else until,
        )
        self._rules.append(rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """Let the rule's fault happen no more."""
        self._rules.remove(rule)

    def clear(self) -> None:
        """Let nothing go wrong any more."""
        self._rules.clear()

    def choose(self, request: httpx.Request) -> Fault | None:
        """Return the fault that happens to the request."""
        for rule in self._rules:
            if rule.takes(request):
                return rule.fault
        return None


class FaultyTransport(httpx.AsyncBaseTransport):
    """Carry requests by the inner transport, and let happen to them what the plan says."""

    def __init__(self, inner: httpx.AsyncBaseTransport, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan
        self._answers: dict[tuple[str, bytes], tuple[int, list[tuple[bytes, bytes]], bytes]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer the request, or not."""
        fault = self._plan.choose(request)
        if fault is None:
            return await self._pass_on(request)
        await trio.lowlevel.checkpoint()
        match fault.kind:
            case "refuse":
                raise httpx.ConnectError("The connection was refused.", request=request)
            case "reset":
                raise httpx.ReadError("The connection was reset.", request=request)
            case "lose_answer":
                response = await self._pass_on(request)
                await response.aclose()
                raise httpx.RemoteProtocolError("The server disconnected without an answer.", request=request)
            case "stall":
                await _wait_forever(request)
            case "status":
                return _made_up(fault)
            case "stale" if (request.method, request.url.raw_path) in self._answers:
                status, headers, body = self._answers[request.method, request.url.raw_path]
                return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))
            case "call":
                assert fault.hook is not None
                fault.hook()
        await _sleep(fault.before)
        response = await self._pass_on(request)
        await _sleep(fault.after)
        if _is_watch(request) and response.status_code == 200:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _FaultyStream(response.stream, fault, request)
        return response

    async def _pass_on(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if request.method == "GET" and not _is_watch(request):
            body = await response.aread()
            kept = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-encoding"]
            self._answers[request.method, request.url.raw_path] = (response.status_code, kept, body)
            return httpx.Response(response.status_code, headers=kept, stream=httpx.ByteStream(body))
        return response

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()


async def _sleep(seconds: float) -> None:
    if seconds > 0:
        await trio.sleep(seconds)


async def _wait_forever(request: httpx.Request) -> None:
    timeout = (request.extensions.get("timeout") or {}).get("read")
    if timeout is None:
        await trio.sleep_forever()
    await trio.sleep(timeout)
    raise httpx.ReadTimeout("The server has not answered in time.", request=request)


def _made_up(fault: Fault) -> httpx.Response:
    headers = {"Content-Type": "application/json", "Content-Length": str(len(fault.body))}
    if fault.retry_after is not None:
        headers["Retry-After"] = f"{fault.retry_after:g}"
    return httpx.Response(fault.code, headers=headers, stream=httpx.ByteStream(fault.body))


class _FaultyStream(httpx.AsyncByteStream):
    """The lines of a stream, with what happens to them."""

    def __init__(self, inner: httpx.AsyncByteStream, fault: Fault, request: httpx.Request) -> None:
        self._inner = inner
        self._chunks = inner.__aiter__()
        self._fault = fault
        self._request = request
        self._lines: list[bytes] = []
        self._rest = b""
        self._sent = 0
        self._over = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if self._over:
            raise StopAsyncIteration
        fault = self._fault
        if self._sent == fault.lines:
            match fault.kind:
                case "close":
                    raise StopAsyncIteration
                case "break_off":
                    raise httpx.ReadError("The connection was reset.", request=self._request)
                case "inject":
                    self._over = True
                    return fault.body
                case "silence":
                    await _wait_forever(self._request)
                case "half_line":
                    self._over = True
                    line = await self._next_line()
                    return line[: len(line) // 2]
        line = await self._next_line()
        self._sent += 1
        return line * 2 if fault.kind == "duplicate" else line

    async def _next_line(self) -> bytes:
        while not self._lines:
            *lines, self._rest = (self._rest + await self._chunks.__anext__()).split(b"\n")
            self._lines.extend(line + b"\n" for line in lines)
        return self._lines.pop(0)

    async def aclose(self) -> None:
        """Close the inner stream."""
        await self._inner.aclose()
