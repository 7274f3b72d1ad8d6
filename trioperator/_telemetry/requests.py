"""A client that counts its requests."""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

import trio

from trioperator._http.transport import Request, Response
from trioperator._kube.api_client import ApiClient
from trioperator._kube.credentials import Credentials
from trioperator._telemetry.statistics import RequestStatistics, Statistics
from trioperator.errors import ApiError

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from trioperator._telemetry.tracing import Tracing

# In place of the status code of a response, if there is none.
_NO_RESPONSE: Final = "<error>"


class CountingClient(ApiClient):
    """A client that counts and times the attempts of its requests."""

    def __init__(self, client: ApiClient, statistics: Statistics, tracing: Tracing | None = None) -> None:
        super().__init__(client.credentials, client.settings)
        self.options = client.options
        self._statistics = statistics
        self._tracing = tracing
        self._now = trio.lowlevel.current_clock().current_time
        self._used: Credentials | None = None  # last, and what is counted of requests with them, by methods
        self._host, self._requests = "", dict[str, RequestStatistics]()
        self._status = self._received = 0  # of the response that was read last

    def _raise_for_status(self, response: Response, data: bytes, target: str) -> None:
        self._status, self._received = response.status, len(data)
        ApiClient._raise_for_status(self, response, data, target)

    def report_retry(self, method: str, path: str, error: Exception, *, delay: float) -> None:
        code = str(error.status) if isinstance(error, ApiError) else _NO_RESPONSE
        self._find(self.credentials.current, method).retries[code] += 1
        super().report_retry(method, path, error, delay=delay)

    async def _attempt(self, request: Request, credentials: Credentials) -> bytes:
        # No super(), which costs more: there is a request per object.
        requests = self._find(credentials, request.method)
        began = self._now()
        span = None if self._tracing is None else self._begin_span(self._tracing, request)
        try:
            attempt = ApiClient._attempt(self, request, credentials)
            data = await (attempt if span is None else self._trace(span, attempt))
        except BaseException as error:
            self._count_error(requests, error, self._now() - began, sent=len(request.body or b""))
            raise
        # The last response is that of this attempt: there is no checkpoint between.
        requests.count(self._status, self._now() - began, len(request.body or b""), len(data))
        return data

    def _begin_span(self, tracing: Tracing, request: Request) -> contextlib.AbstractContextManager[Span]:
        return tracing.requesting(request.method, request.target.partition("?")[0], self._host)

    async def _trace(self, span: contextlib.AbstractContextManager[Span], attempt: Awaitable[bytes]) -> bytes:
        with span as entered:
            data = await attempt
            entered.set_attribute("http.response.status_code", self._status)
            return data

    async def _attempt_stream(self, credentials: Credentials, **options: Any) -> Response:
        requests = self._find(credentials, "GET")
        began = self._now()
        try:
            response = await super()._attempt_stream(credentials, **options)
        except BaseException as error:
            self._count_error(requests, error, self._now() - began, sent=0)
            raise
        requests.codes[str(response.status)] += 1
        requests.seconds.observe(self._now() - began)
        requests.sent.observe(0)
        return response

    def _count_error(self, requests: RequestStatistics, error: BaseException, seconds: float, *, sent: int) -> None:
        if isinstance(error, ApiError):
            requests.count(error.status, seconds, sent, self._received)
        else:
            requests.codes[_NO_RESPONSE] += 1
            requests.seconds.observe(seconds)

    def _find(self, credentials: Credentials, method: str) -> RequestStatistics:
        if credentials is not self._used:
            self._used, self._requests = credentials, {}
            self._host = urllib.parse.urlsplit(credentials.info.server).netloc.rpartition("@")[2]
        found = self._requests.get(method)
        if found is None:
            found = self._requests[method] = self._statistics.request(method, self._host)
        return found
