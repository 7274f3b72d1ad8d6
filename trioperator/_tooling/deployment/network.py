"""Connections to the pods of a deployment: the NetworkPolicy, and how Prometheus finds them. Pure."""

from __future__ import annotations

from typing import Any, Final

from trioperator._model.jsontypes import JsonObject
from trioperator._tooling.deployment.options import METRICS_PORT, DeploymentOptions, make_object, make_selector

#: Suffix of the name of the Service of metrics.
METRICS_SUFFIX: Final = "-metrics"


def make_network_policy(options: DeploymentOptions, *, serves_webhooks: bool = False) -> JsonObject:
    """Return a policy that admits Prometheus and the API server to their ports, and nothing else.

    The kubelet may always connect. An API server connects to webhooks from addresses that no selector selects.
    """
    ingress: list[dict[str, Any]] = []
    if options.prometheus is not None:
        source = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": options.prometheus}}}
        ingress.append({"from": [source], "ports": [{"port": "metrics"}]})
    if serves_webhooks:
        ingress.append({"ports": [{"port": "webhooks"}]})
    spec: JsonObject = {"podSelector": {"matchLabels": make_selector(options)}, "policyTypes": ["Ingress"]}
    if ingress:
        spec["ingress"] = ingress
    return make_object(options, "networking.k8s.io/v1", "NetworkPolicy", spec=spec)


def make_metrics_service(options: DeploymentOptions) -> JsonObject:
    """Return the Service of the metrics, standbys included; without a ServiceMonitor, with annotations.

    Prometheus is often configured to discover Services by these.
    """
    spec = {
        "clusterIP": "None",
        "selector": make_selector(options),
        "publishNotReadyAddresses": True,
        "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}],
    }
    service = make_object(options, "v1", "Service", suffix=METRICS_SUFFIX, spec=spec)
    service["metadata"]["labels"] = _make_labels(options)
    if not options.service_monitor:
        found = {"scrape": "true", "port": str(METRICS_PORT), "path": "/metrics"}
        service["metadata"]["annotations"] = {f"prometheus.io/{key}": value for key, value in found.items()}
    return service


def make_service_monitor(options: DeploymentOptions) -> JsonObject:
    """Return the ServiceMonitor, a kind of the Prometheus Operator."""
    spec = {
        "selector": {"matchLabels": _make_labels(options)},
        "endpoints": [{"port": "metrics", "path": "/metrics", "interval": "30s"}],
    }
    return make_object(options, "monitoring.coreos.com/v1", "ServiceMonitor", spec=spec)


def _make_labels(options: DeploymentOptions) -> dict[str, str]:
    """Return the labels of the Service: the one of webhooks must not match them."""
    return {**make_selector(options), "app.kubernetes.io/component": "metrics"}
