"""Webhooks of a deployment: their Service, certificates by cert-manager, configurations and conversions. Pure.

The webhooks have the names, rules and paths of those that the operator would register itself.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from typing import Any, Final

from trioperator._handling import guard
from trioperator._handling.reviews.admission import AdmissionHandler, WebhookType
from trioperator._handling.reviews.conversion import ConversionHandler
from trioperator._handling.reviews.webhook_configuration import build_conversion_strategy, build_webhooks
from trioperator._model.jsontypes import JsonObject
from trioperator._model.resource import Resource, select_resources
from trioperator._tooling.deployment.options import WEBHOOK_PORT, DeploymentOptions, make_object, make_selector

_API: Final = "cert-manager.io/v1"
#: The annotation by which cert-manager writes the CA into webhook configurations and CRDs.
_INJECTION: Final = "cert-manager.io/inject-ca-from"
_KINDS: Final = {
    WebhookType.VALIDATING: "ValidatingWebhookConfiguration",
    WebhookType.MUTATING: "MutatingWebhookConfiguration",
}
# Ten years, so that renewals of certificates need no new CA.
_CA_DURATION: Final = "87600h"


def make_webhook_service(options: DeploymentOptions, *, registers: bool = False) -> JsonObject:
    """Return the Service that the API server calls; for operators that register it, with the port of their server."""
    ports = {"webhooks": 443, **({"webhooks-url": WEBHOOK_PORT} if registers else {})}
    spec = {
        "selector": make_selector(options),
        "ports": [{"name": name, "port": port, "targetPort": "webhooks"} for name, port in ports.items()],
    }
    return make_object(options, "v1", "Service", suffix="-webhooks", spec=spec)


def make_certificates(options: DeploymentOptions) -> list[JsonObject]:
    """Return a CA and a certificate for the Service, which cert-manager keeps in a Secret of the Service's name."""
    key = {"algorithm": "ECDSA", "size": 256}
    authority = {
        "isCA": True,
        "commonName": f"{options.name}-ca",
        "secretName": f"{options.name}-ca",
        "duration": _CA_DURATION,
        "privateKey": key,
        "issuerRef": {"kind": "Issuer", "name": f"{options.name}-selfsigned"},
    }
    certificate = {
        "secretName": options.webhook_service,
        "dnsNames": [options.webhook_host, f"{options.webhook_host}.cluster.local"],
        "privateKey": {**key, "rotationPolicy": "Always"},
        "issuerRef": {"kind": "Issuer", "name": f"{options.name}-ca"},
    }
    return [
        make_object(options, _API, "Issuer", suffix="-selfsigned", spec={"selfSigned": {}}),
        make_object(options, _API, "Certificate", suffix="-ca", spec=authority),
        make_object(options, _API, "Issuer", suffix="-ca", spec={"ca": {"secretName": f"{options.name}-ca"}}),
        make_object(options, _API, "Certificate", suffix="-webhooks", spec=certificate),
    ]


def make_configurations(
    options: DeploymentOptions, handlers: Iterable[AdmissionHandler], resources: Collection[Resource]
) -> list[JsonObject]:
    """Return the webhook configurations of the handlers for the *resources* that they select.

    Raises UserCodeError if a selector function fails.
    """
    kinds = {handler: _select(handler, resources) for handler in handlers}
    name = f"{options.name}.{options.namespace}"
    metadata = {"name": name, "labels": make_selector(options), "annotations": _make_annotations(options)}
    configurations = [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": metadata,
            "webhooks": build_webhooks(kinds, _make_address(options), type=webhook_type, suffix=name),
        }
        for webhook_type, kind in _KINDS.items()
    ]
    return [configuration for configuration in configurations if configuration["webhooks"]]


def add_conversions(
    options: DeploymentOptions,
    definitions: Iterable[JsonObject],
    handlers: Iterable[ConversionHandler],
    *,
    resources: Collection[Resource],
    managed: bool = False,
) -> list[JsonObject]:
    """Return the CRDs, with the conversion webhook in those whose objects the handlers convert.

    With *managed*, the operator writes the CA, in place of cert-manager. Until then no object can be converted,
    but none is relabelled either, which would lose its fields. Raises UserCodeError if a selector function fails.
    """
    selected = [kind for handler in handlers for kind in _select(handler, resources)]
    names = {(kind.group, kind.plural) for kind in selected}
    return [
        _add_conversion(options, definition, managed=managed) if _get_name(definition) in names else definition
        for definition in definitions
    ]


def _get_name(definition: JsonObject) -> tuple[str, str]:
    return definition["spec"]["group"], definition["spec"]["names"]["plural"]


def _add_conversion(options: DeploymentOptions, definition: JsonObject, *, managed: bool) -> JsonObject:
    converted, address = copy.deepcopy(definition), _make_address(options)
    if managed:
        address["service"]["port"] = WEBHOOK_PORT  # the server's, which the operator writes
    else:
        converted["metadata"].setdefault("annotations", {}).update(_make_annotations(options))
    strategy = build_conversion_strategy(address)
    # In place of the URL of an operator that was run elsewhere, which would stay beside the Service otherwise.
    strategy["webhook"]["clientConfig"] = {"url": None, **strategy["webhook"]["clientConfig"]}
    converted["spec"]["conversion"] = strategy
    return converted


def _select(handler: AdmissionHandler | ConversionHandler, resources: Collection[Resource]) -> Collection[Resource]:
    selector = handler.selector
    return guard.call("The selector {}", selector, select_resources, selector, resources, watched=False).resources


def _make_address(options: DeploymentOptions) -> dict[str, Any]:
    return {"service": {"namespace": options.namespace, "name": options.webhook_service}}


def _make_annotations(options: DeploymentOptions) -> dict[str, str]:
    return {_INJECTION: f"{options.namespace}/{options.webhook_service}"}
