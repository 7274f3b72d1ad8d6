"""Webhook tunnels: a public address that forwards reviews to a server on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import trio

from trioperator._handling.reviews.webhook_configuration import WebhookClientConfig, WebhookFn, WebhookServerProtocol
from trioperator._logs import get_logger
from trioperator._webhooks.server import WebhookServer
from trioperator._webhooks.server_variants import recognize_cluster
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from trioperator._kube.api_client import ApiClient

# Seconds for stopping the agent of a tunnel when the operator stops.
_STOP_TIMEOUT = 5.0


@dataclasses.dataclass(kw_only=True, eq=False)
class WebhookNgrokTunnel:
    """Webhook tunnel by ngrok, for development: ``pip install 'trioperator[ngrok]'``.

    - ``addr``, ``port``: where to listen on this machine; default: localhost, and any free port
    - ``path``: path of all webhooks; default: none
    - ``token``: authtoken of an account; default: as in ngrok's configuration, or the variable ``NGROK_AUTHTOKEN``
    - ``region``: region of the tunnel; default: the nearest one
    - ``binary``: path of the ``ngrok`` program; default: pyngrok downloads it

    The address is public, and everybody who knows it can send reviews. Between the program and this process they are
    sent by HTTP. No CA is reported: ngrok's certificates are trusted anyway. See docs/admission.md.
    """

    addr: str | None = None
    port: int | None = None
    path: str | None = None
    token: str | None = None
    region: str | None = None
    binary: str | os.PathLike[str] | None = None

    async def __call__(self, fn: WebhookFn) -> AsyncIterator[WebhookClientConfig]:
        """Serve reviews by *fn*; yield the public address."""
        config = self._make_config()
        server = WebhookServer(addr=self.addr, port=self.port, path=self.path, insecure=True)
        addresses: Any = server(fn)
        async with contextlib.aclosing(addresses):
            try:
                async for address in addresses:
                    local = urlsplit(address["url"] or "")
                    url = await trio.to_thread.run_sync(_connect, local.port, config, abandon_on_cancel=True)
                    yield WebhookClientConfig(url=f"{url}{local.path}".rstrip("/"))
            finally:
                with trio.move_on_after(_STOP_TIMEOUT, shield=True):
                    await trio.to_thread.run_sync(_stop, config, abandon_on_cancel=True)

    def _make_config(self) -> Any:
        """Return the configuration of the ngrok agent. Raises ConfigError if pyngrok is not installed."""
        try:
            from pyngrok.conf import PyngrokConfig
        except ImportError as error:
            text = "WebhookNgrokTunnel needs pyngrok: install it by `pip install 'trioperator[ngrok]'`."
            raise ConfigError(text) from error
        given: dict[str, Any] = {"auth_token": self.token, "region": self.region}
        if self.binary is not None:
            given["ngrok_path"] = os.fspath(self.binary)
        # A signal at the terminal is for the operator, which stops the agent after its last review.
        return PyngrokConfig(**given, start_new_session=True)


def _connect(port: int | None, config: Any) -> str:
    """Open a tunnel to a local port, and return its public address. Starts ngrok if necessary. Raises ConfigError."""
    from pyngrok import ngrok
    from pyngrok.exception import PyngrokError

    try:
        tunnel = ngrok.connect(str(port), pyngrok_config=config)
    except (PyngrokError, OSError) as error:
        raise ConfigError(f"The ngrok tunnel cannot be opened: {error}") from error
    return str(tunnel.public_url).rstrip("/").replace("http://", "https://", 1)


def _stop(config: Any) -> None:
    from pyngrok import ngrok

    ngrok.kill(config)


@dataclasses.dataclass(kw_only=True, eq=False)
class WebhookAutoTunnel:
    """Webhook server for K3d, Minikube or Docker Desktop if one of these is recognized, and else a tunnel by ngrok.

    ``addr``, ``port`` and ``path`` are the server's or the tunnel's.
    """

    addr: str | None = None
    port: int | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        self._server: WebhookServerProtocol = WebhookNgrokTunnel(addr=self.addr, port=self.port, path=self.path)

    async def inspect_cluster(self, client: ApiClient) -> None:
        """Find out whether the cluster reaches this machine without a tunnel."""
        kind = await recognize_cluster(client)
        chosen = WebhookNgrokTunnel if kind is None else kind
        self._server = chosen(addr=self.addr, port=self.port, path=self.path)
        get_logger("trioperator.webhooks").info("Using %s.", chosen.__name__)

    async def __call__(self, fn: WebhookFn) -> AsyncIterator[WebhookClientConfig]:
        """Serve reviews by *fn*; yield the address."""
        addresses: Any = self._server(fn)
        async with contextlib.aclosing(addresses):
            async for address in addresses:
                yield address
