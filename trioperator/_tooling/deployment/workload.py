"""The pods of a deployment: the Deployment, its service account and its disruption budget. Pure."""

from __future__ import annotations

from typing import Final

from trioperator._model.jsontypes import JsonObject
from trioperator._tooling.deployment.options import (
    HEALTH_PORT,
    METRICS_PORT,
    WEBHOOK_PORT,
    DeploymentOptions,
    make_arguments,
    make_object,
    make_selector,
)

#: Where the certificate of webhooks is in the container.
CERTIFICATES: Final = "/certificates"
_VOLUME: Final = "certificates"
_USER: Final = 65532
# Longer than settings.process.grace, 25 by default.
_GRACE: Final = 30


def make_namespace(options: DeploymentOptions) -> JsonObject:
    """Return the namespace of the pods, with the strictest of the standards of pod security."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": options.namespace, "labels": labels}}


def make_service_account(options: DeploymentOptions) -> JsonObject:
    """Return the service account of the pods."""
    return make_object(options, "v1", "ServiceAccount")


def make_deployment(
    options: DeploymentOptions,
    *,
    serves_webhooks: bool = False,
    mounts_certificate: bool = False,
    ca_secret: str | None = None,
) -> JsonObject:
    """Return the Deployment.

    With *mounts_certificate*, the pods have the Secret of the webhooks' certificate; with *ca_secret*, they make one by
    the CA in this Secret.
    """
    pod = _make_pod(options)
    [container] = pod["containers"]
    if serves_webhooks:
        container["ports"].append({"name": "webhooks", "containerPort": WEBHOOK_PORT})
    if mounts_certificate:
        container["volumeMounts"] = [{"name": _VOLUME, "mountPath": CERTIFICATES, "readOnly": True}]
        pod["volumes"] = [{"name": _VOLUME, "secret": {"secretName": options.webhook_service}}]
        container["env"] += _make_webhook_environment(options, CERTIFICATES=CERTIFICATES)
    elif serves_webhooks and ca_secret is not None:
        container["env"] += _make_webhook_environment(options, CA_SECRET=ca_secret)
    # Without a lease, two pods would handle everything twice.
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    spec = {
        "replicas": options.replicas,
        "strategy": rolling if options.has_lease else {"type": "Recreate"},
        "selector": {"matchLabels": make_selector(options)},
        "template": {"metadata": {"labels": make_selector(options)}, "spec": pod},
    }
    return make_object(options, "apps/v1", "Deployment", spec=spec)


def _make_pod(options: DeploymentOptions) -> JsonObject:
    pod: JsonObject = {
        "serviceAccountName": options.name,
        "terminationGracePeriodSeconds": _GRACE,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    if options.replicas > 1:
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        pod["topologySpreadConstraints"] = [{**spread, "labelSelector": {"matchLabels": make_selector(options)}}]
    pod["containers"] = [_make_container(options)]
    return pod


def _make_container(options: DeploymentOptions) -> JsonObject:
    ports = {"health": HEALTH_PORT}
    if options.prometheus is not None:
        ports["metrics"] = METRICS_PORT
    return {
        "name": "operator",
        "image": options.image,
        "args": make_arguments(options),
        # The identity in Leases and peering objects.
        "env": [{"name": "POD_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "livenessProbe": {**_make_probe("/livez"), "initialDelaySeconds": 10, "periodSeconds": 10},
        "readinessProbe": {**_make_probe("/readyz"), "periodSeconds": 5},
        # No limit for the CPU: it would throttle bursts, and delay the probes with them.
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _make_webhook_environment(options: DeploymentOptions, **certificate: str) -> list[JsonObject]:
    """Return the variables by which ``WebhookAutoServer`` serves behind the Service."""
    values = {"HOST": options.webhook_host, "PORT": str(WEBHOOK_PORT), **certificate}
    return [{"name": f"TRIOPERATOR_WEBHOOKS_{key}", "value": value} for key, value in values.items()]


def _make_probe(path: str) -> JsonObject:
    return {"httpGet": {"path": path, "port": "health"}, "timeoutSeconds": 5}


def make_disruption_budget(options: DeploymentOptions) -> JsonObject:
    """Return a budget by which drains of nodes evict one of the pods at a time."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": make_selector(options)}}
    return make_object(options, "policy/v1", "PodDisruptionBudget", spec=spec)
