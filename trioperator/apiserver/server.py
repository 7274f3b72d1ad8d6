"""Serve a cluster on a port, over HTTP or HTTPS."""

from __future__ import annotations

import base64
import ipaddress
import ssl
from functools import partial
from typing import Final

import trio

from trioperator.errors import ConfigError

from .cluster import Cluster
from .model.messages import Handler
from .model.user import ANONYMOUS, NO_CREDENTIALS
from .serving.http import serve_listeners

_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # a server that listens on all addresses is reached here


async def serve_cluster(
    cluster: Cluster,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: bool | ssl.SSLContext = False,
    anonymous: bool = True,
    handler: Handler | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the cluster on a port (0: any free one) until cancelled. ``nursery.start()`` returns its URL.

    With ``tls``, the server's certificate is issued by the cluster's own CA, and clients may present a certificate of
    that CA; pass a context instead to use other certificates. Without ``anonymous``, requests without credentials get
    HTTP 401: :meth:`Cluster.kubeconfig` has credentials. ``handler`` answers in place of the cluster's API. With it, or
    with ``anonymous``, on a loopback address, requests that a web page may have sent are rejected.

    Raises ConfigError if the server cannot listen on the port.
    """
    context, ca_data = tls if isinstance(tls, ssl.SSLContext) else None, ""
    if tls is True:
        context = cluster.ca.server_context(host, "localhost", "127.0.0.1", "::1")
        ca_data = base64.b64encode(cluster.ca.certificate).decode("ascii")
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"The embedded API server cannot listen on {host}:{port}: {reason}.") from error
    bound = listeners[0].socket.getsockname()[1]
    reached = _WILDCARDS.get(host, host)
    shown = f"[{reached}]" if ":" in reached else reached
    url = f"{'https' if tls else 'http'}://{shown}:{bound}"
    cluster.ca_certificates[url] = ca_data
    user = ANONYMOUS if anonymous else NO_CREDENTIALS
    async with trio.open_nursery() as nursery:
        local_only = (anonymous or handler is not None) and is_loopback(host)
        answering = handler or cluster.api
        serve = partial(serve_listeners, answering, listeners, context=context, user=user, local_only=local_only)
        await nursery.start(serve)
        task_status.started(url)


def is_loopback(host: str) -> bool:
    """Return whether the host is this machine, by its name or address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
