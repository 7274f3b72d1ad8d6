"""The defaults that the API fills into the built-in kinds which operators create most. Pure.

Kinds that are not here are stored as they are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .kinds import Kind

__all__ = ["fill_defaults"]

Object = dict[str, Any]


def fill_defaults(kind: Kind, body: Object) -> Object:
    """Return the body (an object without its head and metadata) with the defaults of its kind; never changes it."""
    fill = _FILLERS.get(kind.resource)
    spec = body.get("spec")
    if fill is not None and isinstance(spec, dict):
        return {**body, "spec": fill(spec)}
    return {**_TOP_LEVEL[kind.resource], **body} if kind.resource in _TOP_LEVEL else body


def _pod(spec: Object) -> Object:
    filled: Object = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        **spec,
    }
    for field in ("containers", "initContainers"):
        if isinstance(spec.get(field), list):
            filled[field] = [_container(item) if isinstance(item, dict) else item for item in spec[field]]
    return filled


def _own_pod(spec: Object) -> Object:
    return {"priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority", **_pod(spec)}


def _container(item: Object) -> Object:
    image = str(item.get("image") or "")
    tag = image.rpartition("/")[2].partition(":")[2]
    filled: Object = {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if tag in {"", "latest"} and "@" not in image else "IfNotPresent",
        **item,
    }
    if isinstance(item.get("ports"), list):
        filled["ports"] = [{"protocol": "TCP", **port} if isinstance(port, dict) else port for port in item["ports"]]
    return filled


def _templated(spec: Object, defaults: Mapping[str, Any]) -> Object:
    filled = {**defaults, **spec}
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        filled["template"] = {**template, "spec": _pod(template["spec"])}
    return filled


def _deployment(spec: Object) -> Object:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    defaults = {"replicas": 1, "strategy": rolling, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
    return _templated(spec, defaults)


def _stateful_set(spec: Object) -> Object:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    defaults = {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": rolling,
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }
    return _templated(spec, defaults)


def _daemon_set(spec: Object) -> Object:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    return _templated(spec, {"updateStrategy": rolling, "revisionHistoryLimit": 10})


def _job(spec: Object) -> Object:
    defaults: Object = {"backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False}
    if "completions" not in spec and "parallelism" not in spec:
        defaults |= {"completions": 1, "parallelism": 1}
    elif "parallelism" not in spec:
        defaults["parallelism"] = 1
    return _templated(spec, {**defaults, "podReplacementPolicy": "TerminatingOrFailed"})


def _cron_job(spec: Object) -> Object:
    defaults = {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    filled = {**defaults, **spec}
    template = spec.get("jobTemplate")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        filled["jobTemplate"] = {**template, "spec": _templated(template["spec"], {})}
    return filled


def _service(spec: Object) -> Object:
    filled: Object = {"sessionAffinity": "None", "type": "ClusterIP", **spec}
    if isinstance(spec.get("ports"), list):
        filled["ports"] = [
            {"protocol": "TCP", "targetPort": port.get("port"), **port} if isinstance(port, dict) else port
            for port in spec["ports"]
        ]
    if filled["type"] != "ExternalName":
        filled.setdefault("internalTrafficPolicy", "Cluster")
    return filled


def _volume(spec: Object) -> Object:
    return {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem", **spec}


def _network_policy(spec: Object) -> Object:
    return {"policyTypes": ["Ingress", *(["Egress"] if spec.get("egress") else [])], **spec}


def _claim(spec: Object) -> Object:
    return {"volumeMode": "Filesystem", **spec}


_TOP_LEVEL: Final[Mapping[tuple[str, str], Object]] = {
    ("", "secrets"): {"type": "Opaque"},
    ("scheduling.k8s.io", "priorityclasses"): {"preemptionPolicy": "PreemptLowerPriority"},
    ("storage.k8s.io", "storageclasses"): {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
}
_FILLERS: Final[Mapping[tuple[str, str], Callable[[Object], Object]]] = {
    ("", "pods"): _own_pod,
    ("", "services"): _service,
    ("", "persistentvolumeclaims"): _claim,
    ("", "persistentvolumes"): _volume,
    ("apps", "deployments"): _deployment,
    ("apps", "replicasets"): lambda spec: _templated(spec, {"replicas": 1}),
    ("apps", "statefulsets"): _stateful_set,
    ("apps", "daemonsets"): _daemon_set,
    ("batch", "jobs"): _job,
    ("batch", "cronjobs"): _cron_job,
    ("networking.k8s.io", "networkpolicies"): _network_policy,
}
