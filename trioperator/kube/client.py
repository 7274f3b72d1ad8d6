"""The client of one API server: requests, their retries, and the errors that they end with.

It promises: network errors, 5xx and 429 are retried by ``settings.networking``, where that cannot do a thing twice; a
401 has the credentials read again while everything waits; all else that goes wrong is an :class:`ApiError` or a
:class:`ConnectionLostError` at once. It knows paths and bytes, not what kinds mean.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import trio

from trioperator.errors import (
    ApiError,
    ConnectionLostError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
)
from trioperator.kube.connection import ConnectionInfo
from trioperator.kube.exchange import Headers, Reply, TransportError
from trioperator.kube.objects import Page, parse_page
from trioperator.kube.retry import iterate_backoffs, parse_refusal
from trioperator.kube.session import Credentials, Session
from trioperator.logs import get_logger
from trioperator.model.jsontypes import JsonObject
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    import httpx

__all__ = ["JSON_PATCH", "MERGE_PATCH", "Client", "Page", "Params", "open_client"]

_logger = get_logger(__name__)
_T = TypeVar("_T")

Params: TypeAlias = Mapping[str, str | int | bool | None]

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_JSON: Final = "application/json"
_ACCEPT_JSON: Final = (b"Accept", b"application/json")
_SAFE_PATH: Final = re.compile(r"/[\w./:@!$&'()*+,;=~%-]*", re.ASCII)
# Refusals (401) of one request before its caller is told, though the credentials were accepted before: those of a
# single bad endpoint while other requests are let in, and those of the whole server (about a minute).
_MAX_OWN_REFUSALS: Final = 3
_MAX_REFUSALS: Final = 10
# The biggest body of a refusal that is read, in bytes.
_MAX_REFUSAL: Final = 1024 * 1024

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class Client:
    """Talk to one API server. It is made by :func:`open_client`, and any number of tasks share it."""

    def __init__(self, session: Session, settings: OperatorSettings) -> None:
        self._session = session
        self._settings = settings

    @property
    def info(self) -> ConnectionInfo:
        """The connection in use now."""
        return self._session.credentials.info

    @property
    def settings(self) -> OperatorSettings:
        """The settings that the client goes by; they are read at each request."""
        return self._settings

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str | None = None,
        timeout: float | None = None,
        backoffs: Iterable[float] | float | None = None,
    ) -> bytes:
        """Send a request, and give the body of its successful response.

        *timeout* is for each attempt, in seconds (by default ``networking.request_timeout``); *backoffs* are the delays
        between attempts (by default ``networking.error_backoffs``, ``()`` for one attempt only).

        A POST is repeated only where the server surely has not acted on it: it was not reached, or it said 429. All
        other methods are repeated after network errors and 5xx too, and so may be applied twice: a JSON patch with a
        version test then fails with InvalidError, a merge patch and a PUT just say the same again.

        Raises ApiError for what the server refuses, ConnectionLostError where there is no answer after all attempts,
        LoginError where no credentials were ever accepted.
        """
        target = build_target(path, params)
        headers = _build_headers(accept, content_type or (_JSON if body is not None else None))

        async def attempt(credentials: Credentials) -> bytes:
            return await self._exchange(credentials, method, target, headers=headers, body=body, timeout=timeout)

        delays = None
        repeated = False
        while True:
            try:
                return await self._authorized(attempt)
            except (ConnectionLostError, ServerError, TooManyRequestsError) as exc:
                repeated = repeated or not isinstance(exc, TooManyRequestsError)
                if not _is_repeatable(method, exc):
                    raise
                if delays is None:
                    delays = iterate_backoffs(
                        self._settings.networking.error_backoffs if backoffs is None else backoffs
                    )
                delay = next(delays, None)
                if delay is None:
                    raise
                delay = self._adjust(delay, exc)
                _logger.warning("%s %s has failed and is tried again in %g s: %s", method, path, delay, exc)
            except ApiError as exc:
                exc.repeated = exc.repeated or repeated
                raise
            await trio.sleep(delay)

    async def get(self, path: str, params: Params | None = None) -> JsonObject:
        """Give the object at *path*. Raises as :meth:`request` does."""
        return _decode_object(await self.request("GET", path, params=params), path)

    async def post(self, path: str, body: JsonObject, *, params: Params | None = None) -> JsonObject:
        """Create an object, and give it as created. Raises as :meth:`request` does."""
        return _decode_object(await self.request("POST", path, params=params, body=_encode(body)), path)

    async def put(self, path: str, body: JsonObject, *, params: Params | None = None) -> JsonObject:
        """Replace an object, and give the new one. Raises as :meth:`request` does."""
        return _decode_object(await self.request("PUT", path, params=params, body=_encode(body)), path)

    async def delete(self, path: str, *, body: JsonObject | None = None, params: Params | None = None) -> JsonObject:
        """Delete an object, with the ``DeleteOptions`` in *body*; give what the server answers.

        Raises as :meth:`request` does: NotFoundError, too, where a lost answer to an earlier attempt was a success.
        """
        data = _encode(body) if body is not None else None
        return _decode_object(await self.request("DELETE", path, params=params, body=data), path)

    async def patch(self, path: str, patch: JsonObject | list[JsonObject], *, content_type: str = MERGE_PATCH) -> bytes:
        """Patch an object, and give the new one as JSON. Raises as :meth:`request` does."""
        return await self.request("PATCH", path, body=_encode(patch), content_type=content_type)

    async def list_page(
        self,
        path: str,
        *,
        limit: int | None = None,
        continue_: str | None = None,
        backoffs: Iterable[float] | float | None = None,
    ) -> Page:
        """Give one page of a list, at most *limit* objects; ``page.next`` is *continue_* of the next one, if any.

        An object that is none is left out, with a warning. Raises as :meth:`request` does; ExpiredError means that the
        list has to be begun anew.
        """
        params = {"limit": limit or None, "continue": continue_ or None}
        data = await self.request("GET", path, params=params, backoffs=backoffs)
        try:
            page = parse_page(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise ConnectionLostError(f"GET {path}: the answer is no list of objects: {exc}") from exc
        for problem in page.broken:
            _logger.warning("GET %s: an object of the list is left out, it is broken: %s", path, problem)
        return page

    async def open_stream(
        self,
        path: str,
        *,
        params: Params | None = None,
        timeout: float | None = None,
        connect_timeout: float | None = None,
    ) -> Reply:
        """Send a GET, and give its successful reply as soon as its head is there; the caller closes it.

        It is not retried, but for a 401 as everywhere. *timeout* is for the head, in seconds. Raises as
        :meth:`request` does.
        """
        target = build_target(path, params)
        headers = _build_headers(None, None)

        async def attempt(credentials: Credentials) -> Reply:
            seconds = self._timeout(timeout)
            with trio.move_on_after(seconds):
                reply = await credentials.exchange.send(
                    "GET",
                    credentials.base + target,
                    headers=(*credentials.headers, *headers),
                    streaming=True,
                    connect_timeout=connect_timeout or self._settings.networking.connect_timeout,
                )
                if 200 <= reply.status < 300:
                    self._session.note_accepted()
                    return reply
                self._check(reply, await reply.read(_MAX_REFUSAL))
            raise _too_slow("GET", path, seconds)

        return await self._authorized(attempt)

    async def _exchange(
        self,
        credentials: Credentials,
        method: str,
        target: str,
        *,
        headers: Headers,
        body: bytes | None,
        timeout: float | None,
    ) -> bytes:
        """Make one attempt with a request that is answered as a whole."""
        seconds = self._timeout(timeout)
        with trio.move_on_after(seconds):
            reply = await credentials.exchange.send(
                method,
                credentials.base + target,
                headers=(*credentials.headers, *headers),
                body=body,
                connect_timeout=self._settings.networking.connect_timeout,
            )
            data = await reply.read()
            self._check(reply, data)
            return data
        raise _too_slow(method, target.partition("?")[0], seconds)

    def _check(self, reply: Reply, data: bytes) -> None:
        """Raise ApiError unless the reply is a success; take note of credentials that were accepted."""
        status = reply.status
        if status < 500 and status not in (401, 429):
            self._session.note_accepted()
        if not 200 <= status < 300:
            refusal = parse_refusal(status, reply.headers, data)
            refusal.repeated = reply.repeated
            raise refusal

    async def _authorized(self, attempt: Callable[[Credentials], Awaitable[_T]]) -> _T:
        """Make an attempt, and again with other credentials where the present ones are refused."""
        session = self._session
        accepted = session.accepted_count
        refusals = 0
        while True:
            try:
                if not session.troubled:
                    credentials = session.credentials
                    return await attempt(credentials)
                async with session.turn:
                    if not session.troubled:  # somebody before us has found credentials that work
                        continue
                    session.renew()
                    credentials = session.credentials
                    try:
                        return await attempt(credentials)
                    except UnauthorizedError as exc:
                        if refusals + 1 < _MAX_REFUSALS:
                            await session.back_off(exc)
                        raise
            except UnauthorizedError:
                refusals += 1
                if refusals >= (_MAX_REFUSALS if session.accepted_count == accepted else _MAX_OWN_REFUSALS):
                    raise
                session.note_refused(credentials)

    def _timeout(self, timeout: float | None) -> float:
        seconds = self._settings.networking.request_timeout if timeout is None else timeout
        return float("inf") if seconds is None else seconds

    def _adjust(self, delay: float, exc: Exception) -> float:
        """Heed what the server wants of the next attempt: not before, and by a setting not after either."""
        wanted = exc.retry_after if isinstance(exc, ApiError) else None
        if wanted is None:
            return delay
        return wanted if self._settings.networking.enforce_retry_after else max(delay, wanted)


@contextlib.asynccontextmanager
async def open_client(
    source: Callable[[], ConnectionInfo],
    *,
    settings: OperatorSettings,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[Client]:
    """Open a client of the API server that *source* describes; nothing is sent yet.

    *source* is called now, whenever its credentials are refused, and each minute where they live in files. With a
    *transport* everything goes through it, and it is left open. Raises ConfigError where the connection is broken.
    """
    session = Session(source, settings=settings, transport=transport)
    try:
        yield Client(session, settings)
    finally:
        await session.aclose()


def build_target(path: str, params: Params | None) -> str:
    """Give the target of a request: what cannot be in a path is quoted, parameters that are None are left out."""
    if _SAFE_PATH.fullmatch(path) is None:
        path = quote(path, safe="/:@!$&'()*+,;=~%-._")
    if not params:
        return path
    pairs = [
        (name, str(value).lower() if isinstance(value, bool) else value)
        for name, value in params.items()
        if value is not None
    ]
    return f"{path}?{urlencode(pairs, quote_via=quote)}" if pairs else path


def _build_headers(accept: str | None, content_type: str | None) -> Headers:
    first = (b"Accept", accept.encode("ascii")) if accept else _ACCEPT_JSON
    return (first, (b"Content-Type", content_type.encode("ascii"))) if content_type else (first,)


def _is_repeatable(method: str, exc: Exception) -> bool:
    """Tell whether another attempt can help, and cannot do a thing twice that must be done once."""
    if isinstance(exc, TransportError) and exc.final:
        return False
    if method != "POST" or isinstance(exc, TooManyRequestsError):
        return True
    return isinstance(exc, TransportError) and not exc.reached


def _too_slow(method: str, path: str, seconds: float) -> TransportError:
    return TransportError(f"{method} {path}: no answer within {seconds:g} s.", reached=True)


def _decode_object(data: bytes, path: str) -> dict[str, Any]:
    try:
        value = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ConnectionLostError(f"{path}: the answer is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise ConnectionLostError(f"{path}: the answer is not an object but {type(value).__name__}.")
    return value
