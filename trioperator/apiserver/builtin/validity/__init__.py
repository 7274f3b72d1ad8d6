"""Validation of built-in objects beyond their types: the common rules of the real server. Pure.

Messages and order are the same as on the real server. Rules that are not here are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ...model.kinds import Kind
from ...model.status_causes import StatusCause
from ..certificate_requests import CERTIFICATE_REQUESTS, check_conditions
from . import configuration, networking, pods, workloads
from .changes import CHANGES, check_changed_addresses

Object = Mapping[str, Any]

_CHECKS: Final[Mapping[tuple[str, str], Callable[[Object], Iterable[StatusCause]]]] = {
    ("", "configmaps"): configuration.check_config_map,
    ("", "namespaces"): configuration.check_namespace,
    ("", "persistentvolumeclaims"): configuration.check_claim,
    ("", "pods"): pods.check_pod,
    ("", "replicationcontrollers"): workloads.check_replication_controller,
    ("", "secrets"): configuration.check_secret,
    ("", "services"): networking.check_service,
    ("apps", "daemonsets"): workloads.check_daemon_set,
    ("apps", "deployments"): workloads.check_deployment,
    ("apps", "replicasets"): workloads.check_replica_set,
    ("apps", "statefulsets"): workloads.check_stateful_set,
    ("autoscaling", "horizontalpodautoscalers"): workloads.check_autoscaler,
    ("batch", "cronjobs"): workloads.check_cron_job,
    ("batch", "jobs"): workloads.check_job,
    CERTIFICATE_REQUESTS: check_conditions,
    ("coordination.k8s.io", "leases"): configuration.check_lease,
    ("networking.k8s.io", "ingresses"): networking.check_ingress,
    ("networking.k8s.io", "networkpolicies"): networking.check_network_policy,
    ("policy", "poddisruptionbudgets"): workloads.check_disruption_budget,
    ("storage.k8s.io", "storageclasses"): configuration.check_storage_class,
}


def check_builtin(kind: Kind, obj: Object, old: Object | None) -> Iterable[StatusCause]:
    """Return the validation errors of a built-in object and its update, without its metadata."""
    if old is not None and kind.resource == ("", "services"):
        yield from check_changed_addresses(obj, old)
    if (check := _CHECKS.get(kind.resource)) is not None:
        yield from check(obj)
    if old is not None and (change := CHANGES.get(kind.resource)) is not None:
        yield from change(obj, old)
