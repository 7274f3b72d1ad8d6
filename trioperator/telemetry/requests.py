"""A client that counts its requests."""

from __future__ import annotations

import urllib.parse
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from trioperator.errors import ApiError
from trioperator.kube.client import Client
from trioperator.kube.credentials import Credentials
from trioperator.kube.transport import Response
from trioperator.telemetry.statistics import RequestStatistics, Statistics

if TYPE_CHECKING:
    from trioperator.telemetry.tracing import Tracing

__all__ = ["CountingClient"]

_T = TypeVar("_T", bytes, Response)

# In place of the status code of a response, if there is none.
_NO_RESPONSE: Final = "<error>"


class CountingClient(Client):
    """A client that counts and times the attempts of its requests."""

    def __init__(self, client: Client, statistics: Statistics, tracing: Tracing | None = None) -> None:
        super().__init__(client._credentials, client._settings)
        self._fence, self.find_logger = client._fence, client.find_logger
        self._statistics = statistics
        self._tracing = tracing
        self._hosts: dict[str, str] = {}
        self._status = self._received = 0  # of the response that was read last

    def _raise_for_status(self, response: Response, data: bytes) -> None:
        self._status, self._received = response.status, len(data)
        super()._raise_for_status(response, data)

    def _report_retry(self, method: str, path: str, error: Exception, *, delay: float) -> None:
        code = str(error.status) if isinstance(error, ApiError) else _NO_RESPONSE
        self._find_statistics(self.credentials, method).retries[code] += 1
        super()._report_retry(method, path, error, delay=delay)

    async def _attempt(self, credentials: Credentials, *, method: str, target: str, **options: Any) -> bytes:
        attempt = super()._attempt(credentials, method=method, target=target, **options)
        sent = len(options["body"] or b"")
        if self._tracing is None:
            return await self._count(attempt, credentials, method, sent=sent)
        with self._tracing.requesting(method, target.partition("?")[0], self._host_of(credentials)) as span:
            data = await self._count(attempt, credentials, method, sent=sent)
            span.set_attribute("http.response.status_code", self._status)
            return data

    async def _attempt_stream(self, credentials: Credentials, **options: Any) -> Response:
        return await self._count(super()._attempt_stream(credentials, **options), credentials, "GET", sent=0)

    async def _count(self, attempt: Awaitable[_T], credentials: Credentials, method: str, *, sent: int) -> _T:
        # What was read last is of this attempt where it ends: there is no checkpoint between.
        requests = self._find_statistics(credentials, method)
        began = trio.current_time()
        code = _NO_RESPONSE
        try:
            response = await attempt
            if isinstance(response, bytes):
                code = str(self._status)
                requests.received.observe(self._received)
            else:
                code = str(response.status)
            requests.sent.observe(sent)
            return response
        except ApiError as error:
            code = str(error.status)
            requests.received.observe(self._received)
            requests.sent.observe(sent)
            raise
        finally:
            requests.codes[code] += 1
            requests.seconds.observe(trio.current_time() - began)

    def _find_statistics(self, credentials: Credentials, method: str) -> RequestStatistics:
        return self._statistics.request(method, self._host_of(credentials))

    def _host_of(self, credentials: Credentials) -> str:
        server = credentials.info.server
        host = self._hosts.get(server)
        if host is None:
            host = self._hosts[server] = urllib.parse.urlsplit(server).netloc.rpartition("@")[2]
        return host
