"""A web app: a Deployment, a Service, an Ingress and an autoscaler from one spec, which stay as that says."""

from collections.abc import Iterator, Mapping
from typing import Any

import trioperator


@trioperator.on.reconcile(
    "kopfexamples",
    owns=[
        trioperator.Owned("deployments.apps", bodies=True),
        "services",
        "ingresses.networking.k8s.io",
        "horizontalpodautoscalers.autoscaling",
    ],
    condition="Applied",
)
def web_app(name: str, spec: trioperator.Spec, children: Any, patch: trioperator.Patch) -> Iterator[dict[str, Any]]:
    labels = {"app": name}
    container = {"name": "web", "image": spec.get("image", "nginx")}
    deployment = children["deployments"].get(name, {})
    replicas = spec.get("replicas", 1)
    maximum = spec.get("maxReplicas") if replicas else None  # what is scaled to zero is not scaled automatically
    minimum = min(replicas, maximum) if maximum else None
    own = find_replicas(deployment, minimum) if minimum else replicas
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {
            **({} if own is None else {"replicas": own}),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    yield {"apiVersion": "v1", "kind": "Service", "spec": {"selector": labels, "ports": [{"port": 80}]}}
    if host := spec.get("host"):
        paths = [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": 80}}}}]
        yield {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "spec": {"rules": [{"host": host, "http": {"paths": paths}}]},
        }
    if maximum:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        yield {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "spec": {"scaleTargetRef": target, "minReplicas": minimum, "maxReplicas": maximum},
        }

    patch.status["ready"] = deployment.get("status", {}).get("readyReplicas", 0)


def find_replicas(deployment: Mapping[str, Any], default: int) -> int | None:
    """Return the replicas beside an autoscaler: None once they are its own. Fields of nobody fall to their defaults."""
    managers = deployment.get("metadata", {}).get("managedFields", ())
    if any("f:replicas" in m["fieldsV1"].get("f:spec", {}) for m in managers if m["manager"] != "trioperator"):
        return None
    return deployment.get("spec", {}).get("replicas") or default
