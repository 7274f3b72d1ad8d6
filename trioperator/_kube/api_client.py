"""The client of one API server: requests, their retries and their exceptions.

Network errors, 5xx and 429 are retried by ``settings.networking``, unless that could apply a request twice that must
not be. After a 401 the credentials are reloaded while all requests wait for that. All else is raised at once, as an
:class:`ApiError` or a :class:`ConnectionLostError`. The client works with paths and bytes, not with kinds.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import trio

from trioperator._concurrency.threads import run_in_thread
from trioperator._http.transport import BodyTooLargeError, Headers, Request, Response, TransportError
from trioperator._kube.bookmarks import Bookmarks
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.credential_store import CredentialStore, Login, login_in_thread
from trioperator._kube.credentials import Credentials
from trioperator._kube.deep_json import DECODE_ERRORS
from trioperator._kube.error_response import parse_error_response
from trioperator._kube.messages import build_headers, decode_object, decompress, size_error, timeout_error
from trioperator._kube.objects import Page, parse_deep_page, parse_page
from trioperator._kube.outage import Outage
from trioperator._kube.retry import adjust_delay, is_repeatable, is_retryable, iterate_backoffs, may_be_processed
from trioperator._logs import Logger, get_logger
from trioperator._model.jsontypes import JsonObject, encode_json
from trioperator._model.urls import build_target
from trioperator.errors import ApiError, ConnectionLostError, ServerError, TooManyRequestsError
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    import httpx

_logger = get_logger("trioperator.kube.client")

Params: TypeAlias = Mapping[str, str | int | bool | None]
#: Is called with the method, the target and the status of each response; 0 if there was none.
NoteRequest: TypeAlias = Callable[[str, str, int], None]
Forms: TypeAlias = tuple[str | None, str | None]  # what lists and watches accept; None: JSON

MERGE_PATCH: Final = "application/merge-patch+json"

_JSON: Final = "application/json"
# Bytes of an error response to a streaming request, at most.
_MAX_ERROR_BODY: Final = 1024 * 1024


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a client sends requests; see the methods that set them. None stands for what the settings say."""

    fence: Callable[[], None] | None = None
    is_reserved: bool = False
    is_compressed: bool = False
    backoffs: Iterable[float] | float | None = None
    timeout: float | None = None
    max_size: int | None = None
    selection: Params = {}
    forms: Forms = (None, None)
    note_headers: Callable[[Headers], None] | None = None
    note_request: NoteRequest | None = None
    find_logger: Callable[[], Logger] = lambda: _logger


class ApiClient:
    """A client of one API server, shared by any number of tasks. Created by :func:`open_client`.

    The *settings* are read for each request, and the ``options`` say how it is sent. There may be tasks that renew the
    *credentials* before they expire, and that keep their ``timeouts``, without which each request has a cancel scope.
    """

    def __init__(self, credentials: CredentialStore, settings: OperatorSettings) -> None:
        self.credentials = credentials
        self.settings = settings
        self.options = RequestOptions()
        self.outage = Outage()
        self.bookmarks = Bookmarks()
        self._thread = trio.CapacityLimiter(1)  # for lists that take long to parse

    def fenced(self, fence: Callable[[], None]) -> ApiClient:
        """Return a client that calls *fence* before each attempt to write, which is not made if *fence* raises.

        It is called once more when there is a connection for the request, directly before that is sent.
        """
        return self._with(fence=fence)

    def reserved(self) -> ApiClient:
        """Return a client with connections of its own, but for streams: its requests never wait for others'."""
        return self._with(is_reserved=True)

    def retrying(self, backoffs: Iterable[float] | float | None, *, timeout: float | None = None) -> ApiClient:
        """Return a client on the same connections that sends a failed request again after these delays.

        Pass ``()`` for a single attempt. *timeout* is for each attempt, in seconds. None stands for
        ``settings.networking.error_backoffs`` and ``request_timeout``.
        """
        return self._with(backoffs=backoffs, timeout=timeout)

    def limiting(self, max_size: int | None) -> ApiClient:
        """Return a client on the same connections for responses of at most *max_size* bytes.

        The default is ``settings.networking.response_limit``.
        """
        return self._with(max_size=max_size)

    def logging_to(self, find_logger: Callable[[], Logger]) -> ApiClient:
        """Return a client on the same connections that logs its retries to the logger that *find_logger* returns."""
        return self._with(find_logger=find_logger)

    def selecting(self, params: Params, *, forms: Forms) -> ApiClient:
        """Return a client on the same connections whose lists and watches have these parameters, in these *forms*."""
        return self._with(selection=params, forms=forms)

    def noting_headers(self, note: Callable[[Headers], None]) -> ApiClient:
        """Return a client on the same connections that calls *note* with the headers of each response."""
        return self._with(note_headers=note)

    def noting_requests(self, note: NoteRequest) -> ApiClient:
        """Return a client on the same connections that calls *note* for each request but streams."""
        return self._with(note_request=note)

    def compressed(self) -> ApiClient:
        """Return a client on the same connections whose responses may be compressed, where few bytes matter more."""
        return self._with(is_compressed=True)

    def _with(self, **options: Any) -> ApiClient:
        client = copy.copy(self)
        client.options = msgspec.structs.replace(self.options, **options)
        return client

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str | None = None,
    ) -> bytes:
        """Send a request and return the body of its successful response.

        A POST is retried only if the server has certainly not processed it: it was not reached, or it responded with
        429. So is a DELETE without a uid as its precondition, and a JSON patch that tests neither the version nor what
        it changes. Others may be applied twice, as they are retried after network errors and 5xx as well: a JSON patch
        with a version test then fails with InvalidError, a merge patch and a PUT have no further effect.

        Raises ApiError for an error response, ConnectionLostError if there is no response after the last attempt,
        BodyTooLargeError (one of these) if its body is larger than the limit, LoginError if no credentials have ever
        been accepted.
        """
        target = build_target(path, params)
        headers = build_headers(accept, content_type or (_JSON if body is not None else None))
        headers = (*headers, (b"Accept-Encoding", b"gzip")) if self.options.is_compressed else headers
        request = Request(method, target, headers, body, functools.partial(is_repeatable, method, content_type, body))
        return await self._retry(functools.partial(self._attempt, request), path, request)

    async def get(self, path: str, params: Params | None = None) -> JsonObject:
        """Return the object at *path*. Raises as :meth:`request` does."""
        return decode_object(await self.request("GET", path, params=params), path)

    async def post(self, path: str, body: JsonObject, *, params: Params | None = None) -> JsonObject:
        """Create an object and return it as created. Raises as :meth:`request` does."""
        return decode_object(await self.request("POST", path, params=params, body=encode_json(body)), path)

    async def put(self, path: str, body: JsonObject, *, params: Params | None = None) -> JsonObject:
        """Replace an object and return the new one. Raises as :meth:`request` does."""
        return decode_object(await self.request("PUT", path, params=params, body=encode_json(body)), path)

    async def delete(self, path: str, *, body: JsonObject | None = None, params: Params | None = None) -> JsonObject:
        """Delete an object, with ``DeleteOptions`` as *body*, and return the response.

        Without a uid as its precondition, it is not retried if it may have been processed. Raises as :meth:`request`
        does; NotFoundError also if the response to a successful earlier attempt was lost.
        """
        data = encode_json(body) if body is not None else None
        return decode_object(await self.request("DELETE", path, params=params, body=data), path)

    async def patch(self, path: str, patch: JsonObject | list[JsonObject], *, content_type: str = MERGE_PATCH) -> bytes:
        """Patch an object and return the new one as JSON. Raises as :meth:`request` does."""
        return await self.request("PATCH", path, body=encode_json(patch), content_type=content_type)

    async def list_page(
        self,
        path: str,
        *,
        params: Params | None = None,
        limit: int | None = None,
        continue_: str | None = None,
    ) -> Page:
        """Return one page of a list, *limit* objects at most; ``page.next`` is *continue_* of the next page, if any.

        Objects that cannot be read are in ``page.broken``. Raises as :meth:`request` does; after ExpiredError the list
        must be started again.
        """
        params = {**self.options.selection, **(params or {}), "limit": limit or None, "continue": continue_ or None}
        data = await self.request("GET", path, params=params, accept=self.options.forms[0])
        try:
            try:
                return parse_page(data)
            except RecursionError:  # one object must not keep all others from being listed
                return await run_in_thread(lambda: parse_deep_page(data), limiter=self._thread)
        except DECODE_ERRORS as exc:
            raise ConnectionLostError(f"GET {path}: the response is not a list of objects: {exc}") from exc

    async def open_stream(
        self,
        path: str,
        *,
        params: Params | None = None,
        timeout: float | None = None,
        connect_timeout: float | None = None,
    ) -> Response:
        """Send a GET and return its successful response once the headers have arrived; the caller closes it.

        Not retried, except after a 401. *timeout* is for the headers, in seconds. Raises as :meth:`request` does.
        """
        target = build_target(path, {**self.options.selection, **(params or {})})
        attempt = functools.partial(
            self._attempt_stream, path=path, target=target, timeout=timeout, connect_timeout=connect_timeout
        )
        return await self.credentials.call(attempt)

    async def _retry(self, attempt: Callable[[Credentials], Awaitable[bytes]], path: str, request: Request) -> bytes:
        networking = self.settings.networking
        delays = None
        repeated = False
        while True:
            try:
                return await self.credentials.call(attempt)
            except (ConnectionLostError, ServerError, TooManyRequestsError) as exc:
                repeated = repeated or may_be_processed(exc)
                if not is_retryable(exc, repeatable=request.is_repeatable()):
                    raise
                if delays is None:
                    backoffs = networking.error_backoffs if self.options.backoffs is None else self.options.backoffs
                    delays = iterate_backoffs(backoffs)
                delay = next(delays, None)
                if delay is None:
                    raise
                delay = adjust_delay(delay, exc, enforce=networking.enforce_retry_after)
                self.report_retry(request.method, path, exc, delay=delay)
                is_away = isinstance(exc, TransportError) and not exc.reached
            except ApiError as exc:
                exc.repeated = exc.repeated or repeated
                raise
            if is_away:
                await self.outage.wait(delay)
            else:
                await trio.sleep(delay)

    def report_retry(self, method: str, path: str, error: Exception, *, delay: float) -> None:
        """Log that a request has failed, and is sent again after *delay* seconds.

        Of many requests that do not reach the server at the same time, one is a warning.
        """
        if self.options.note_request is not None and isinstance(error, ConnectionLostError):
            self.options.note_request(method, path, 0)
        if isinstance(error, TransportError) and not error.reached:
            place = self.credentials.current.info.place
            text = "Cannot reach the API server %s; retrying %s %s in %g s: %s"
            logger = self.options.find_logger()
            (logger.warning if self.outage.claim_warning() else logger.debug)(text, place, method, path, delay, error)
            return
        self.options.find_logger().warning("%s %s failed; retrying in %g s: %s", method, path, delay, error)

    async def _attempt(self, request: Request, credentials: Credentials) -> bytes:
        """Send a request once and read its whole response."""
        method, target, options = request.method, request.target, self.options
        fence = None if method == "GET" else options.fence
        if fence is not None:
            fence()  # what must not be sent does not wait for a connection
        networking = self.settings.networking
        timeout = self._get_timeout(options.timeout)
        limit = networking.response_limit if options.max_size is None else options.max_size
        transport = credentials.transport.reserved if options.is_reserved else credentials.transport
        connect_timeout, signed = networking.connect_timeout, credentials.sign(request)
        try:
            fetched = await transport.fetch(
                signed, limit=limit, timeout=timeout, connect_timeout=connect_timeout, check=fence
            )
            if fetched is None:
                raise timeout_error(method, target.partition("?")[0], timeout)
            response, data = fetched[0], decompress(fetched[0].headers, fetched[1], limit)
        except BodyTooLargeError as exc:
            raise size_error(method, target, limit) from exc
        if options.note_headers is not None:
            options.note_headers(response.headers)
        if options.note_request is not None:
            options.note_request(method, target, response.status)
        self._raise_for_status(response, data, target)
        return data

    async def _attempt_stream(
        self, credentials: Credentials, *, path: str, target: str, timeout: float | None, connect_timeout: float | None
    ) -> Response:
        """Send a GET once and return its response, whose body is still to be read."""
        seconds = self._get_timeout(timeout)
        with trio.move_on_after(seconds):
            response = await credentials.transport.send(
                credentials.sign(Request("GET", target, build_headers(self.options.forms[1], None))),
                streaming=True,
                connect_timeout=connect_timeout or self.settings.networking.connect_timeout,
            )
            if 200 <= response.status < 300:
                if self.options.note_headers is not None:
                    self.options.note_headers(response.headers)
                return response
            self._raise_for_status(response, await response.read(_MAX_ERROR_BODY), target)
        raise timeout_error("GET", path, seconds)

    def _raise_for_status(self, response: Response, data: bytes, target: str) -> None:
        """Raise ApiError for an error response."""
        status = response.status
        if not 200 <= status < 300:
            secret = self.settings.persistence.digested_fields
            # Not by a variable: then the traceback, and all that its frames have, would stay until it is collected.
            raise parse_error_response(
                status, response.headers, data, target=target, secret=secret, repeated=response.repeated
            )

    def _get_timeout(self, timeout: float | None) -> float:
        seconds = self.settings.networking.request_timeout if timeout is None else timeout
        return float("inf") if seconds is None else seconds


@contextlib.asynccontextmanager
async def log_in(
    login: Login, *, settings: OperatorSettings, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncIterator[ApiClient]:
    """Open a client with the credentials that *login* returns, now and whenever all of them are rejected or old.

    No request is sent yet. All requests go through *transport*, if any; it is left open. Run
    :meth:`CredentialStore.serve` to renew credentials before they expire. Raises ConfigError if the connection is
    invalid, LoginError if there are no credentials.
    """
    credentials = CredentialStore(login, settings=settings, transport=transport)
    await credentials.open()
    try:
        yield ApiClient(credentials, settings)
    finally:
        await credentials.aclose()


def open_client(
    source: Callable[[], ConnectionInfo],
    *,
    settings: OperatorSettings,
    transport: httpx.AsyncBaseTransport | None = None,
) -> contextlib.AbstractAsyncContextManager[ApiClient]:
    """Open a client of the API server that *source* returns, as :func:`log_in` does.

    *source* is called in a thread: now, and whenever its credentials are rejected or have expired.
    """
    return log_in(login_in_thread(source), settings=settings, transport=transport)
