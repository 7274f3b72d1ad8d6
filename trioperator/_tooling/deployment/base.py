"""The kustomize base of an operator: all objects of its deployment, by the files that they are in. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from trioperator._handling.reviews.admission import AdmissionHandler
from trioperator._handling.reviews.conversion import ConversionHandler
from trioperator._model.jsontypes import JsonObject
from trioperator._model.resource import Resource
from trioperator._tooling.deployment.alerts import make_prometheus_rule
from trioperator._tooling.deployment.network import make_metrics_service, make_network_policy, make_service_monitor
from trioperator._tooling.deployment.options import DeploymentOptions, make_selector
from trioperator._tooling.deployment.webhooks import (
    add_conversions,
    make_certificates,
    make_configurations,
    make_webhook_service,
)
from trioperator._tooling.deployment.workload import (
    make_deployment,
    make_disruption_budget,
    make_namespace,
    make_service_account,
)
from trioperator._tooling.permissions import Permissions, make_roles

KUSTOMIZATION: Final = "kustomization.yaml"
#: All files that a base may have, in the order in which their objects are applied.
FILES: Final = (
    "namespace.yaml",
    "crds.yaml",
    "serviceaccount.yaml",
    "rbac.yaml",
    "networkpolicy.yaml",
    "certificates.yaml",
    "webhooks.yaml",
    "deployment.yaml",
    "poddisruptionbudget.yaml",
    "servicemonitor.yaml",
    "alerts.yaml",
    "metrics.yaml",
)
#: The file of alerts where there is no Prometheus Operator: Prometheus reads it, and a cluster does not.
RULES: Final = "alerts.rules.yaml"


class OperatorParts(msgspec.Struct, frozen=True, kw_only=True):
    """Needs of an operator for its deployment: its handlers of webhooks, its CRDs, its permissions.

    *resources* are the kinds that its handlers may select. ``registers`` is for operators that write their webhook
    configurations, and ``converts`` for those that write the conversions of CRDs. ``ca_secret`` is for operators whose
    webhook server has a CA of its own, which it keeps in this Secret, and so needs no certificate.
    """

    permissions: Permissions
    definitions: Sequence[JsonObject] = ()
    resources: Collection[Resource] = ()
    admission: tuple[AdmissionHandler, ...] = ()
    conversion: tuple[ConversionHandler, ...] = ()
    registers: bool = False
    converts: bool = False
    ca_secret: str | None = None

    @property
    def has_webhooks(self) -> bool:
        """Whether the operator serves webhooks."""
        return bool(self.admission or self.conversion)


def make_base(options: DeploymentOptions, parts: OperatorParts) -> dict[str, list[JsonObject]]:
    """Return the objects of each file, the kustomization first. Raises UserCodeError if a selector function fails."""
    files = {
        "namespace.yaml": [make_namespace(options)] if options.create_namespace else [],
        "crds.yaml": _make_definitions(options, parts),
        "serviceaccount.yaml": [make_service_account(options)],
        "rbac.yaml": _make_roles(options, parts.permissions),
        "networkpolicy.yaml": [make_network_policy(options, serves_webhooks=parts.has_webhooks)],
        "deployment.yaml": [
            make_deployment(
                options,
                serves_webhooks=parts.has_webhooks,
                mounts_certificate=parts.has_webhooks and parts.ca_secret is None,
                ca_secret=parts.ca_secret,
            )
        ],
        **_make_webhooks(options, parts),
    }
    if options.replicas > 1:
        files["poddisruptionbudget.yaml"] = [make_disruption_budget(options)]
    if options.prometheus is not None:
        monitor = [make_service_monitor(options)] if options.service_monitor else []
        files["servicemonitor.yaml" if monitor else "metrics.yaml"] = [make_metrics_service(options), *monitor]
    if options.alerts and options.service_monitor:
        files["alerts.yaml"] = [make_prometheus_rule(options)]
    present = {name: files[name] for name in FILES if files.get(name)}
    return {KUSTOMIZATION: [_make_kustomization(present)], **present}


def _make_kustomization(files: Mapping[str, object]) -> JsonObject:
    # No namespace: kustomize would move the roles in others, too.
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": list(files)}


def _make_definitions(options: DeploymentOptions, parts: OperatorParts) -> list[JsonObject]:
    return add_conversions(
        options, parts.definitions, parts.conversion, resources=parts.resources, managed=parts.converts
    )


def _make_roles(options: DeploymentOptions, permissions: Permissions) -> list[JsonObject]:
    roles = make_roles(permissions, name=options.name, account=(options.namespace, options.name))
    for role in roles:
        role["metadata"] = {**role["metadata"], "labels": make_selector(options)}
    return roles


def _make_webhooks(options: DeploymentOptions, parts: OperatorParts) -> dict[str, list[JsonObject]]:
    if not parts.has_webhooks:
        return {}
    webhooks = [make_webhook_service(options, registers=parts.registers or parts.converts)]
    if not parts.registers:
        webhooks += make_configurations(options, parts.admission, parts.resources)
    return {
        "webhooks.yaml": webhooks,
        "certificates.yaml": [] if parts.ca_secret else make_certificates(options),
    }
