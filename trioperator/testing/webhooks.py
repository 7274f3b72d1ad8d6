"""Webhooks in virtual time: the API server of a test calls its operator in memory, as sockets take real time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import trio
from trio.testing import MockClock

from trioperator._handling.reviews.webhook_configuration import WebhookClientConfig, WebhookFn
from trioperator._webhooks.app import AdmissionApp, Request
from trioperator._webhooks.server import WebhookServer
from trioperator.apiserver import Cluster


class MemoryWebhooks:
    """The webhooks of one operator on a cluster, at the same address after each of its starts."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._server: MemoryWebhookServer | None = None

    def replace(self, server: Any) -> Any:
        """Return the webhook server for a start of the operator: one in memory in place of a WebhookServer.

        Other servers are returned as they are, and so is any server if time is real.
        """
        if not (isinstance(server, WebhookServer) and isinstance(trio.lowlevel.current_clock(), MockClock)):
            return server
        if self._server is None:
            host = f"operator{len(self._cluster.webhooks)}.webhooks.test"
            self._server = self._cluster.webhooks[host] = MemoryWebhookServer(host)
        return self._server


class MemoryWebhookServer(httpx.AsyncBaseTransport):
    """Webhook server in memory: a server for the operator, and the way to it for the API server."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._app: AdmissionApp | None = None

    async def __call__(self, fn: WebhookFn) -> AsyncIterator[WebhookClientConfig]:
        """Serve reviews by *fn* until cancelled; yield the address."""
        app = self._app = AdmissionApp(fn, "")
        try:
            yield {"url": f"https://{self._host}"}
            await trio.sleep_forever()
        finally:
            if self._app is app:
                self._app = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a review to the operator. Raises ConnectError while it does not run."""
        if self._app is None:
            raise httpx.ConnectError("The operator does not run.")
        url, body = request.url, await request.aread()
        query, headers = url.query.decode(), {key.title(): value for key, value in request.headers.items()}
        asked = Request(method=request.method, path=url.path, query=query, headers=headers, body=body)
        status, content = await self._app.answer(asked)
        return httpx.Response(status, content=content, headers={"Content-Type": "application/json"}, request=request)
