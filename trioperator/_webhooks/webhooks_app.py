"""The webhooks of an operator as an ASGI application, to be served by any server on Trio, or mounted in another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import trio

from trioperator._handling.reviews.webhook_configuration import WebhookClientConfig, WebhookFn
from trioperator._http.asgi import Message, Receive, Send, accept_lifespan
from trioperator._http.server_connection import Budget, Request, Response
from trioperator._webhooks.app import AdmissionApp
from trioperator.errors import ConfigError

__all__ = ["WebhooksApp", "webhooks_app"]

# Seconds for receiving a request. Servers limit that, too, but not all of them do.
_RECEIVING: Final = 10.0
# Bytes of all bodies that are received and reviewed at a time.
_BUDGET: Final = 96 * 1024 * 1024


def webhooks_app(client_config: WebhookClientConfig) -> WebhooksApp:
    """Return the webhooks of an operator as an ASGI application, for a server or an application of yours, on Trio.

    ::

        webhooks = trioperator.webhooks_app({"url": "https://ops.example.com/webhooks"})
        app = fastapi.FastAPI()
        app.mount("/webhooks", webhooks)

        @trioperator.on.startup()
        def configure(settings, **_):
            settings.admission.server = webhooks.serve
            settings.admission.managed = "hooks.example.com"

    - *client_config*: how API servers reach it, as in webhook configurations: ``url``, or ``service``, with the path
      where it is mounted; and ``caBundle``, the CA of your server's certificate, in PEM and base64

    API servers want TLS. Your server has the certificate, and limits connections; it decides who may ask for reviews,
    as handlers get no client certificates (``sslpeer``). Until the operator runs, reviews are HTTP 503.
    Raises ConfigError for a configuration without an address.

    See docs/embedding.md.
    """
    if not client_config.get("url") and not client_config.get("service"):
        raise ConfigError("webhooks_app() needs the url or the service by which API servers reach it.")
    return WebhooksApp(client_config)


class WebhooksApp:
    """ASGI application of webhooks: :func:`webhooks_app` makes it, and its ``serve`` is a webhook server."""

    def __init__(self, client_config: WebhookClientConfig) -> None:
        self._client_config = client_config
        self._reviewer: AdmissionApp | None = None
        self._budget = Budget(_BUDGET)

    async def serve(self, fn: WebhookFn) -> AsyncIterator[WebhookClientConfig]:
        """Answer reviews by *fn*, until cancelled: for ``settings.admission.server``. Yields the address."""
        if self._reviewer is not None:
            raise ConfigError("These webhooks are those of another operator: make an app for each operator.")
        self._reviewer = AdmissionApp(fn, "")
        try:
            yield self._client_config
            await trio.sleep_forever()
        finally:
            self._reviewer = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request. Lifespans are accepted, as of a server that has no other application; nothing else is."""
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        else:
            response = await self._answer(scope, receive)
            length = str(len(response.body)).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", length)]
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            await send({"type": "http.response.body", "body": response.body})

    async def _answer(self, scope: Message, receive: Receive) -> Response:
        reviewer = self._reviewer
        if reviewer is None:
            return Response(503, b'{"error":"The operator is not running."}')
        path = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
        limit = reviewer.limit_body(path)
        if limit is None:
            return Response(404, b'{"error":"There are no webhooks at this path."}')
        body = _Body(self._budget, limit)
        try:
            refused = await body.receive(receive)
            if refused is not None:
                return refused
            headers = {name.decode("latin-1").title(): value.decode("latin-1") for name, value in scope["headers"]}
            query = scope.get("query_string", b"").decode("latin-1")
            return await reviewer(Request(scope["method"], path, query, headers, bytes(body.content)))
        finally:
            body.drop()


class _Body:
    """The body of a request, which is limited, and so are all bodies together."""

    def __init__(self, budget: Budget, limit: int) -> None:
        self.content = bytearray()
        self._budget = budget
        self._limit = limit
        self._taken = 0

    async def receive(self, receive: Receive) -> Response | None:
        """Receive it to its end. Returns the response if it is too large or too slow."""
        with trio.move_on_after(_RECEIVING):
            while True:
                message = await receive()
                chunk = message.get("body", b"")
                if len(self.content) + len(chunk) > self._limit:
                    return Response(413, b'{"error":"The body is too large."}')
                if not self._budget.take(len(chunk)):
                    return Response(503, b'{"error":"There are too many large reviews."}')
                self._taken += len(chunk)
                self.content += chunk
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return None
        return Response(408, b'{"error":"The body is not complete in time."}')

    def drop(self) -> None:
        """Make room for others."""
        self._budget.give_back(self._taken)
