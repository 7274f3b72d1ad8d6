"""The bundle of an operator for the Operator Lifecycle Manager (OLM), in the format ``registry+v1``. Pure.

OLM creates the service account, the roles, the Service and the certificate of webhooks from the ClusterServiceVersion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from trioperator._handling.reviews.webhook_configuration import CONVERSION_PATH
from trioperator._model.jsontypes import JsonObject
from trioperator._tooling.deployment.base import OperatorParts
from trioperator._tooling.deployment.network import make_metrics_service, make_service_monitor
from trioperator._tooling.deployment.options import WEBHOOK_PORT, DeploymentOptions, make_selector
from trioperator._tooling.deployment.webhooks import add_conversions, make_configurations
from trioperator._tooling.deployment.workload import make_deployment, make_disruption_budget
from trioperator._tooling.permissions import Permissions, make_roles
from trioperator.errors import ConfigError

_PREFIX: Final = "operators.operatorframework.io.bundle"
# Where OLM mounts the certificate of webhooks.
_CERTIFICATES: Final = "/tmp/k8s-webhook-server/serving-certs"
_TARGETS: Final = "metadata.annotations['olm.targetNamespaces']"
_TYPES: Final = {
    "ValidatingWebhookConfiguration": "ValidatingAdmissionWebhook",
    "MutatingWebhookConfiguration": "MutatingAdmissionWebhook",
}
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_CHANNEL: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
# Of webhooks, what OLM sets, and what it does not know.
_OWN: Final = frozenset({"name", "clientConfig", "namespaceSelector", "matchConditions"})
# A name must be a label's value.
_MAX_NAME: Final = 63


class BundleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a bundle. Raises ConfigError if they are invalid.

    The first of the ``channels`` is the default one. ``replaces`` is the version before this one, if there is any.
    """

    version: str
    channels: tuple[str, ...] = ("alpha",)
    display_name: str = ""
    description: str = ""
    provider: str = ""
    replaces: str | None = None
    min_kube_version: str = "1.25.0"

    def __post_init__(self) -> None:
        for version in filter(None, (self.version, self.replaces, self.min_kube_version)):
            if not _VERSION.fullmatch(version):
                raise ConfigError(f"The version {version!r} is invalid: it must be semantic, such as 1.2.3.")
        for channel in self.channels or ("",):
            if not _CHANNEL.fullmatch(channel):
                raise ConfigError(f"The channel {channel!r} is invalid: use lower-case letters, digits, dots, hyphens.")


def make_bundle(
    options: DeploymentOptions, bundle: BundleOptions, parts: OperatorParts, *, examples: Sequence[JsonObject]
) -> dict[str, JsonObject]:
    """Return the manifests of a bundle by their files.

    The permissions of *parts* must be made for the namespace of the deployment alone: OLM grants them
    in the namespaces that it is installed for. Raises ConfigError for a name that is too long.
    """
    service_version = _make_service_version(options, bundle, parts, examples=examples)
    files = {f"{options.name}.clusterserviceversion.yaml": service_version}
    for definition in parts.definitions:
        spec = definition["spec"]
        files[f"{spec['group']}_{spec['names']['plural']}.yaml"] = definition
    if options.replicas > 1:
        files["poddisruptionbudget.yaml"] = make_disruption_budget(options)
    if options.prometheus is not None:
        files["metrics-service.yaml"] = make_metrics_service(options)
        files["servicemonitor.yaml"] = make_service_monitor(options)
    for name, content in files.items():
        metadata = {key: value for key, value in content["metadata"].items() if key != "namespace"}
        files[name] = {**content, "metadata": metadata}
    return {f"manifests/{name}": content for name, content in files.items()}


def make_annotations(options: DeploymentOptions, bundle: BundleOptions) -> dict[str, str]:
    """Return the annotations of a bundle, which are the labels of its image, too."""
    return {
        f"{_PREFIX}.mediatype.v1": "registry+v1",
        f"{_PREFIX}.manifests.v1": "manifests/",
        f"{_PREFIX}.metadata.v1": "metadata/",
        f"{_PREFIX}.package.v1": options.name,
        f"{_PREFIX}.channels.v1": ",".join(bundle.channels),
        f"{_PREFIX}.channel.default.v1": bundle.channels[0],
    }


def make_dockerfile(annotations: Mapping[str, str]) -> str:
    """Return the Dockerfile of a bundle's image, to be built in the directory of the bundle."""
    labels = [f"LABEL {key}={value}" for key, value in annotations.items()]
    return "\n".join(["FROM scratch", *labels, "COPY manifests /manifests/", "COPY metadata /metadata/", ""])


def _make_service_version(
    options: DeploymentOptions, bundle: BundleOptions, parts: OperatorParts, *, examples: Sequence[JsonObject]
) -> JsonObject:
    converted = _find_converted(options, parts)
    spec = {
        "displayName": bundle.display_name or options.name,
        "description": bundle.description or f"The operator {options.name}.",
        "version": bundle.version,
        "maturity": "stable" if bundle.channels[0].startswith("stable") else "alpha",
        "minKubeVersion": bundle.min_kube_version,
        "provider": {"name": bundle.provider or options.name},
        "installModes": _make_install_modes(is_global=bool(converted)),
        "customresourcedefinitions": {"owned": [each for one in parts.definitions for each in _describe(one)]},
        "install": {"strategy": "deployment", "spec": _make_install(options, parts)},
    }
    if webhooks := [*_make_webhooks(options, parts), *_make_conversions(options, converted)]:
        spec["webhookdefinitions"] = webhooks
    if bundle.replaces is not None:
        spec["replaces"] = _make_name(options, bundle.replaces)
    annotations = {
        "alm-examples": json.dumps(examples, indent=2),
        "capabilities": "Basic Install",
        "containerImage": options.image,
    }
    metadata = {"name": _make_name(options, bundle.version), "annotations": annotations}
    version = "operators.coreos.com/v1alpha1"
    return {"apiVersion": version, "kind": "ClusterServiceVersion", "metadata": metadata, "spec": spec}


def _make_name(options: DeploymentOptions, version: str) -> str:
    name = f"{options.name}.v{version.lower().replace('+', '-')}"
    if len(name) > _MAX_NAME:
        raise ConfigError(f"The name {name!r} is too long: the operator and its version have {_MAX_NAME} characters.")
    return name


def _make_install_modes(*, is_global: bool) -> list[JsonObject]:
    # Conversions are for all objects of a kind. Several namespaces are separated by commas, which are patterns to us.
    supported = {"OwnNamespace": not is_global, "SingleNamespace": not is_global, "MultiNamespace": False}
    modes = {**supported, "AllNamespaces": True}
    return [{"type": mode, "supported": supported} for mode, supported in modes.items()]


def _describe(definition: JsonObject) -> list[JsonObject]:
    """Return the served versions of a CRD, as an owned kind."""
    names = definition["spec"]["names"]
    described = []
    for version in definition["spec"]["versions"]:
        if version.get("served"):
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            owned = {"name": definition["metadata"]["name"], "version": version["name"], "kind": names["kind"]}
            text = schema.get("description") or f"Objects of the kind {names['kind']}."
            described.append({**owned, "displayName": names["kind"], "description": text})
    return described


# The install strategy.


def _make_install(options: DeploymentOptions, parts: OperatorParts) -> JsonObject:
    deployment = make_deployment(options, serves_webhooks=parts.has_webhooks)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    container["args"].remove("--all-namespaces")
    # Empty if the operator is installed for all namespaces.
    targets = {"name": "TRIOPERATOR_RUN_NAMESPACES", "valueFrom": {"fieldRef": {"fieldPath": _TARGETS}}}
    container["env"].append(targets)
    if parts.has_webhooks:
        variables = {
            "CERTIFICATES": _CERTIFICATES,
            "TRIOPERATOR_WEBHOOKS_PORT": str(WEBHOOK_PORT),
            "TRIOPERATOR_WEBHOOKS_CERTIFICATES": _CERTIFICATES,
        }
        container["env"] += [{"name": name, "value": value} for name, value in variables.items()]
    namespaced, cluster = _split(options, parts.permissions)
    install: JsonObject = {
        "deployments": [{"name": options.name, "label": make_selector(options), "spec": deployment["spec"]}]
    }
    for key, rules in (("permissions", namespaced), ("clusterPermissions", cluster)):
        if rules:
            install[key] = [{"serviceAccountName": options.name, "rules": rules}]
    return install


def _split(options: DeploymentOptions, permissions: Permissions) -> tuple[list[Any], list[Any]]:
    """Return the rules for the namespaces that the operator is installed for, and those for the whole cluster."""
    namespaced: list[Any] = []
    cluster: list[Any] = []
    for role in make_roles(permissions, name=options.name):
        rules = namespaced if role["metadata"].get("namespace") == options.namespace else cluster
        rules += [rule for rule in role["rules"] if rule not in rules]
    return namespaced, cluster


# Webhooks.


def _make_webhooks(options: DeploymentOptions, parts: OperatorParts) -> list[JsonObject]:
    webhooks = []
    for configuration in make_configurations(options, parts.admission, parts.resources):
        for webhook in configuration["webhooks"]:
            kept = {key: value for key, value in webhook.items() if key not in _OWN}
            path = webhook["clientConfig"]["service"]["path"]
            where = _make_webhook(options, webhook["name"], path, type=_TYPES[configuration["kind"]])
            webhooks.append({**where, **kept})
    return webhooks


def _find_converted(options: DeploymentOptions, parts: OperatorParts) -> list[str]:
    """Return the names of the CRDs whose objects the operator converts."""
    changed = add_conversions(options, parts.definitions, parts.conversion, resources=parts.resources)
    pairs = zip(parts.definitions, changed, strict=True)
    return [str(after["metadata"]["name"]) for before, after in pairs if after is not before]


def _make_conversions(options: DeploymentOptions, converted: Collection[str]) -> list[JsonObject]:
    if not converted:
        return []
    name = f"{CONVERSION_PATH}.{options.name}.{options.namespace}"
    webhook = _make_webhook(options, name, f"/{CONVERSION_PATH}", type="ConversionWebhook")
    return [{**webhook, "admissionReviewVersions": ["v1"], "sideEffects": "None", "conversionCRDs": list(converted)}]


def _make_webhook(options: DeploymentOptions, name: str, path: str, *, type: str) -> JsonObject:
    return {
        "generateName": name,
        "type": type,
        "deploymentName": options.name,
        "containerPort": 443,
        "targetPort": WEBHOOK_PORT,
        "webhookPath": path,
    }
