"""Webhook servers for clusters that reach this machine by another name, and one that recognizes where it is."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, ClassVar

from trioperator._logs import get_logger
from trioperator._webhooks.server import WebhookServer
from trioperator.errors import ApiError, ConfigError

if TYPE_CHECKING:
    from trioperator._kube.api_client import ApiClient


@dataclasses.dataclass(kw_only=True, eq=False)
class WebhookK3dServer(WebhookServer):
    """Webhook server for K3d clusters on this machine, which reach it as ``host.k3d.internal``."""

    DEFAULT_HOST: ClassVar[str | None] = "host.k3d.internal"
    DEFAULT_ADDR: ClassVar[str] = "0.0.0.0"


@dataclasses.dataclass(kw_only=True, eq=False)
class WebhookMinikubeServer(WebhookServer):
    """Webhook server for Minikube on this machine, which reaches it as ``host.minikube.internal``."""

    DEFAULT_HOST: ClassVar[str | None] = "host.minikube.internal"
    DEFAULT_ADDR: ClassVar[str] = "0.0.0.0"


@dataclasses.dataclass(kw_only=True, eq=False)
class WebhookDockerDesktopServer(WebhookServer):
    """Webhook server for the Kubernetes of Docker Desktop, which reaches it as ``host.docker.internal``."""

    DEFAULT_HOST: ClassVar[str | None] = "host.docker.internal"
    DEFAULT_ADDR: ClassVar[str] = "0.0.0.0"


@dataclasses.dataclass(kw_only=True, eq=False)
class WebhookAutoServer(WebhookServer):
    """Webhook server for wherever the operator runs, if that is recognized; else a plain :class:`WebhookServer`.

    In a pod of ``trioperator manifests``, it serves behind the Service, with the certificate or CA of the manifests.
    Elsewhere it recognizes K3d, Minikube and Docker Desktop: it asks the API server for its version and, if that is
    allowed, for the nodes. It never opens a tunnel. Options come first.
    """

    def __post_init__(self) -> None:
        for key, value in _read_environment().items():
            if getattr(self, key) is None:
                setattr(self, key, value)
        super().__post_init__()

    async def inspect_cluster(self, client: ApiClient) -> None:
        """Find out by which host name the cluster reaches this machine, unless ``host`` is given."""
        await super().inspect_cluster(client)
        kind = None if self.host else await recognize_cluster(client)
        if kind is not None:
            self.host = kind.DEFAULT_HOST
            self.addr = kind.DEFAULT_ADDR if self.addr is None else self.addr
            get_logger("trioperator.webhooks").info("The cluster is recognized: using %s.", kind.__name__)


def _read_environment() -> dict[str, Any]:
    """Return the options that the Deployment of ``trioperator manifests`` sets, if there are any."""
    given = {key: os.environ.get(f"TRIOPERATOR_WEBHOOKS_{key.upper()}") for key in ("host", "port", "ca_secret")}
    options: dict[str, Any] = {key: value for key, value in given.items() if value}
    if "port" in options:
        try:
            options |= {"port": int(options["port"]), "addr": "0.0.0.0"}
        except ValueError:
            raise ConfigError(f"TRIOPERATOR_WEBHOOKS_PORT is {options['port']!r}: it must be a number.") from None
    if folder := os.environ.get("TRIOPERATOR_WEBHOOKS_CERTIFICATES"):
        options |= {"certfile": os.path.join(folder, "tls.crt"), "pkeyfile": os.path.join(folder, "tls.key")}
        authority = os.path.join(folder, "ca.crt")  # which not all issuers have
        options |= {"cafile": authority} if os.path.exists(authority) else {}
    return options


async def recognize_cluster(client: ApiClient) -> type[WebhookServer] | None:
    """Return the class of servers for the cluster; None if it is of no known kind."""
    try:
        if "k3s" in str((await client.get("/version")).get("gitVersion")):
            return WebhookK3dServer
        nodes = (await client.get("/api/v1/nodes", {"limit": 5})).get("items") or []
    except ApiError as error:
        get_logger("trioperator.webhooks").debug("The cluster is not recognized: %s", error)
        return None
    for node in nodes:
        metadata = node.get("metadata") or {}
        if "minikube.k8s.io/name" in (metadata.get("labels") or {}):
            return WebhookMinikubeServer
        if metadata.get("name") == "docker-desktop":
            return WebhookDockerDesktopServer
    return None
