"""A web app: a Deployment, a Service, an Ingress and an autoscaler from one spec, which stay as that says."""

from collections.abc import Iterator
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
    maximum = spec.get("maxReplicas")
    replicas = {} if maximum else {"replicas": spec.get("replicas", 1)}  # else, they are the autoscaler's
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {
            **replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "spec": {"selector": labels, "ports": [{"port": 80}]},
    }
    if host := spec.get("host"):
        backend = {"service": {"name": name, "port": {"number": 80}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
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
            "spec": {"scaleTargetRef": target, "minReplicas": spec.get("replicas", 1), "maxReplicas": maximum},
        }

    deployment = children["deployments"].get(name, {})
    patch.status["ready"] = deployment.get("status", {}).get("readyReplicas", 0)
