"""Options of a deployment: names, the image, the scope, the replicas. Pure."""

from __future__ import annotations

import os
import re
from typing import Any, Final

import msgspec

from trioperator._model.jsontypes import JsonObject
from trioperator.errors import ConfigError

#: Ports of the operator's container.
HEALTH_PORT: Final = 8081
METRICS_PORT: Final = 8080
WEBHOOK_PORT: Final = 9443

# Names get a suffix of up to eleven characters, and must be labels in DNS then.
_NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class DeploymentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a deployment. Raises ConfigError if they do not fit each other.

    ``name`` is the name of the objects, and ``namespace`` the one that the pods are in. ``files`` and ``modules`` are
    those in the image, ``patterns`` the namespaces whose objects are handled (default: all). ``prometheus`` is the
    namespace that may scrape metrics; None: there are no metrics. Without ``service_monitor``, their Service has
    annotations. ``alerts`` are on the metrics, and link to their runbooks on the page ``runbooks``.
    """

    name: str = "trioperator"
    namespace: str = "trioperator"
    image: str = "operator"
    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    peering: str | None = None
    replicas: int = 1
    leader_elect: bool = False
    shards: int = 1
    prometheus: str | None = None
    service_monitor: bool = True
    alerts: bool = False
    runbooks: str | None = None
    create_namespace: bool = True

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"The name {self.name!r} is invalid: use at most 52 lower-case letters, digits and hyphens, beginning"
                " with a letter."
            )
        if not _NAMESPACE.fullmatch(self.namespace):
            raise ConfigError(f"The namespace {self.namespace!r} is invalid: use lower-case letters, digits, hyphens.")
        if not self.image or any(map(str.isspace, self.image)):
            raise ConfigError(f"The image {self.image!r} is invalid: it must not be empty, or contain white space.")
        if self.alerts and self.prometheus is None:
            raise ConfigError("Alerts need metrics: pass --metrics, too.")
        if self.replicas > 1 and not self.has_lease:
            raise ConfigError(
                f"{self.replicas} replicas would all handle the same objects: pass --leader-elect or --shards, too."
            )

    @property
    def has_lease(self) -> bool:
        """Whether several replicas may run at the same time."""
        return self.leader_elect or self.shards > 1

    @property
    def webhook_service(self) -> str:
        """The name of the Service of webhooks, and of the Secret with their certificate."""
        return f"{self.name}-webhooks"

    @property
    def webhook_host(self) -> str:
        """The host name of webhooks."""
        return f"{self.webhook_service}.{self.namespace}.svc"


def make_arguments(options: DeploymentOptions) -> list[str]:
    """Return the arguments of ``trioperator run`` in the container."""
    arguments = [f"--namespace={pattern}" for pattern in options.patterns] or ["--all-namespaces"]
    arguments.append("--standalone" if options.peering is None else f"--peering={options.peering}")
    if options.shards > 1:
        arguments.append(f"--shards={options.shards}")
    elif options.leader_elect:
        arguments.append("--leader-elect")
    if options.has_lease:
        arguments.append(f"--lease={options.name}")
    arguments += ["--log-format=json", f"--health=http://0.0.0.0:{HEALTH_PORT}"]
    if options.prometheus is not None:
        arguments.append(f"--metrics=http://0.0.0.0:{METRICS_PORT}/metrics")
    arguments += [f"--module={module}" for module in options.modules]
    return arguments + [_find_in_image(file) for file in options.files]


def _find_in_image(file: str) -> str:
    """Return the path of a file in the image, relative to its working directory."""
    path = os.path.normpath(file).replace(os.sep, "/")
    return path.rpartition("/")[2] if path.startswith(("/", "../")) else path


def make_selector(options: DeploymentOptions) -> dict[str, str]:
    """Return the labels of the pods."""
    return {"app.kubernetes.io/name": options.name}


def make_object(
    options: DeploymentOptions, api_version: str, kind: str, *, suffix: str = "", **content: Any
) -> JsonObject:
    """Return an object in the namespace of the deployment, with its name and labels."""
    metadata = {
        "name": f"{options.name}{suffix}",
        "namespace": options.namespace,
        "labels": make_selector(options),
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}
