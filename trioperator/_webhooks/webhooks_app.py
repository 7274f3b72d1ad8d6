"""The webhooks of an operator as an ASGI application, to be served by any server on Trio, or mounted in another one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import trio

from trioperator._handling.reviews.webhook_configuration import WebhookClientConfig, WebhookFn
from trioperator._http.asgi import Message, Receive, Send, accept_lifespan, respond
from trioperator._webhooks.app import AdmissionApp
from trioperator.errors import ConfigError


def webhooks_app(client_config: WebhookClientConfig) -> WebhooksApp:
    """Return the webhooks of an operator as an ASGI application, for your own server or application on Trio.

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

    API servers require TLS. Your server has the certificate, and limits connections; it decides who may send reviews,
    as handlers get no client certificates (``sslpeer``). Until the operator runs, reviews get HTTP 503.

    Raises ConfigError for a configuration without an address. See docs/embedding.md.
    """
    if not client_config.get("url") and not client_config.get("service"):
        raise ConfigError("webhooks_app() needs the url or the service by which API servers reach it.")
    return WebhooksApp(client_config)


class WebhooksApp:
    """ASGI application of webhooks: :func:`webhooks_app` makes it, and its ``serve`` is a webhook server."""

    def __init__(self, client_config: WebhookClientConfig) -> None:
        self._client_config = client_config
        self._reviews: AdmissionApp | None = None

    async def serve(self, fn: WebhookFn) -> AsyncIterator[WebhookClientConfig]:
        """Answer reviews by *fn*, until cancelled: for ``settings.admission.server``. Yields the address."""
        if self._reviews is not None:
            raise ConfigError("These webhooks belong to another operator: make an app for each operator.")
        self._reviews = AdmissionApp(fn, "")
        try:
            yield self._client_config
            await trio.sleep_forever()
        finally:
            self._reviews = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request. Lifespans are accepted, as of a server that has no other application; nothing else is."""
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        elif self._reviews is None:
            content = b'{"error":"The operator is not running."}'
            await respond(send, 503, content, [(b"content-type", b"application/json")])
        else:
            await self._reviews(scope, receive, send)
