"""Validation of updates of built-in objects: immutable fields. Pure.

Each rule takes the new and the stored object. Messages are the real server's, without the Go structures (diffs
of specs, whole templates) that it adds.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from trioperator._model.quantities import quantity_value

from ...model.status_causes import StatusCause, invalid_value
from ..certificate_requests import CERTIFICATE_REQUESTS, check_change
from .common import forbidden_field, items

Object = Mapping[str, Any]
Check = Callable[[Object, Object], Iterable[StatusCause]]

_FIXED: Final = "field is immutable"
_ONCE: Final = "may not change once set"
_DATA_TEXT: Final = "field is immutable when `immutable` is set"
_POD_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_TOLERATIONS_TEXT: Final = "existing toleration can not be modified except its tolerationSeconds"
_CLAIM_TEXT: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_STATEFUL_SET_FIELDS: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_STATEFUL_SET_TEXT: Final = (
    "updates to statefulset spec for fields other than "
    f"{', '.join(repr(field) for field in _STATEFUL_SET_FIELDS[:-1])} and 'minReadySeconds' are forbidden"
)
# Mutable scheduling fields in the template of a suspended Job that has not started.
_SCHEDULING: Final = ("affinity", "nodeSelector", "schedulingGates", "tolerations")
_VOLUME_OPTIONS: Final = (
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
)


def _immutable(*paths: str) -> Check:
    """Return the rule that the values at these paths are immutable."""
    places = [(path, path.split(".")) for path in paths]

    def check(new: Object, old: Object) -> Iterable[StatusCause]:
        for path, names in places:
            value = _at(new, names)
            if value != _at(old, names):
                yield invalid_value(path, value, _FIXED)

    return check


def _at(obj: Any, names: Iterable[str]) -> Any:
    for name in names:
        obj = (obj or {}).get(name)
    return obj


def _without(spec: Object, *fields: str) -> dict[str, Any]:
    return {field: value for field, value in spec.items() if field not in fields}


# -- data ----------------------------------------------------------------------------------------------------------


def _check_data(new: Object, old: Object) -> Iterable[StatusCause]:
    """Check an update of an object that may be marked immutable."""
    if old.get("immutable"):
        if not new.get("immutable"):
            yield forbidden_field("immutable", _DATA_TEXT)
        for field in ("data", "binaryData"):
            if new.get(field) != old.get(field):
                yield forbidden_field(field, _DATA_TEXT)


def _check_secret(new: Object, old: Object) -> Iterable[StatusCause]:
    yield from _immutable("type")(new, old)
    yield from _check_data(new, old)


# -- workloads ----------------------------------------------------------------------------------------------------


def _check_pod(new: Object, old: Object) -> Iterable[StatusCause]:
    spec, before = new["spec"], old["spec"]
    for field in ("containers", "initContainers"):
        if len(spec.get(field) or ()) != len(before.get(field) or ()):
            yield forbidden_field(f"spec.{field}", "pod updates may not add or remove containers")
            return
    deadline, earlier = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if earlier is not None and deadline is None:
        text = "must not update from a positive integer to nil value"
        yield invalid_value("spec.activeDeadlineSeconds", None, text)
    elif earlier is not None and deadline > earlier:
        yield invalid_value("spec.activeDeadlineSeconds", deadline, "must be less than or equal to previous value")
    tolerations = [_without(item, "tolerationSeconds") for _, item in items(spec, "tolerations", "")]
    if any(_without(item, "tolerationSeconds") not in tolerations for _, item in items(before, "tolerations", "")):
        yield forbidden_field("spec.tolerations", _TOLERATIONS_TEXT)
    if _immutable_part(spec, before) != _immutable_part(before, before):
        yield forbidden_field("spec", _POD_TEXT)


def _immutable_part(spec: Object, before: Object) -> dict[str, Any]:
    """Return the immutable part of a Pod's spec; with scheduling gates, scheduling constraints may still change."""
    free = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    free += ["affinity", "nodeSelector"] if before.get("schedulingGates") else []
    if before.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        free.append("terminationGracePeriodSeconds")
    result = _without(spec, *free)
    for field in ("containers", "initContainers"):
        result[field] = [_without(item, "image") for _, item in items(spec, field, "")]
    return result


def _check_stateful_set(new: Object, old: Object) -> Iterable[StatusCause]:
    if _without(new["spec"], *_STATEFUL_SET_FIELDS) != _without(old["spec"], *_STATEFUL_SET_FIELDS):
        yield forbidden_field("spec", _STATEFUL_SET_TEXT)


def _check_job(new: Object, old: Object) -> Iterable[StatusCause]:
    spec, before = new["spec"], old["spec"]
    is_elastic = before.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not is_elastic:
        yield from _immutable("spec.completions")(new, old)
    yield from _immutable("spec.selector")(new, old)
    is_waiting = before.get("suspend") and "startTime" not in (old.get("status") or {})
    if _template(spec, is_waiting=is_waiting) != _template(before, is_waiting=is_waiting):
        yield invalid_value("spec.template", spec["template"], _FIXED)
    fields = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
    yield from _immutable(*(f"spec.{field}" for field in fields))(new, old)


def _template(spec: Object, *, is_waiting: bool) -> Object:
    template: Object = spec["template"]
    if not is_waiting:
        return template
    return {"spec": _without(template.get("spec") or {}, *_SCHEDULING)}


# -- storage, services, nodes --------------------------------------------------------------------------------------


def _check_claim(new: Object, old: Object) -> Iterable[StatusCause]:
    spec, before, status = new["spec"], old["spec"], old.get("status") or {}
    free = [field for field in ("storageClassName", "volumeName") if not before.get(field)]
    is_bound = status.get("phase") == "Bound"
    if is_bound:
        free += ["resources", "volumeAttributesClassName"]
    other_resources = is_bound and _without_size(spec) != _without_size(before)
    if other_resources or _without(spec, *free) != _without(before, *free):
        yield forbidden_field("spec", _CLAIM_TEXT)
    size, capacity = _size(spec), quantity_value((status.get("capacity") or {}).get("storage", "0"))
    if size < _size(before) and size <= capacity:
        yield forbidden_field("spec.resources.requests.storage", "field can not be less than status.capacity")


def _size(spec: Object) -> decimal.Decimal:
    return quantity_value(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))


def _without_size(spec: Object) -> Object:
    """Return the resources of a claim, apart from the requested storage."""
    resources = spec.get("resources") or {}
    return {**resources, "requests": _without(resources.get("requests") or {}, "storage")}


def _check_volume(new: Object, old: Object) -> Iterable[StatusCause]:
    if _without(new["spec"], *_VOLUME_OPTIONS) != _without(old["spec"], *_VOLUME_OPTIONS):
        text = "spec.persistentvolumesource is immutable after creation"
        yield forbidden_field("spec.persistentvolumesource", text)
    if (mode := new["spec"].get("volumeMode")) != old["spec"].get("volumeMode"):
        yield invalid_value("volumeMode", mode, _FIXED)


def check_changed_addresses(new: Object, old: Object) -> Iterable[StatusCause]:
    """Check the addresses of an updated Service, which the real server does first."""
    spec, before = new["spec"], old["spec"]
    has_addresses = "ExternalName" not in {spec["type"], before["type"]}
    if has_addresses and (address := before.get("clusterIP")) and spec.get("clusterIP") != address:
        yield invalid_value("spec.clusterIPs[0]", [spec.get("clusterIP")], _ONCE)
    balancer = before.get("loadBalancerClass")
    if before["type"] == spec["type"] == "LoadBalancer" and spec.get("loadBalancerClass") != balancer:
        yield invalid_value("spec.loadBalancerClass", spec.get("loadBalancerClass"), _ONCE)


def _check_node(new: Object, old: Object) -> Iterable[StatusCause]:
    for field, path in (("podCIDR", "podCIDRs"), ("providerID", "providerID")):
        before = (old.get("spec") or {}).get(field)
        if before and (new.get("spec") or {}).get(field) != before:
            text = f'node updates may not change {field} except from "" to valid'
            yield forbidden_field(f"spec.{path}", text)


def _check_priority_class(new: Object, old: Object) -> Iterable[StatusCause]:
    if new.get("value") != old.get("value"):
        yield forbidden_field("value", "may not be changed in an update.")
    yield from _immutable("preemptionPolicy")(new, old)


CHANGES: Final[Mapping[tuple[str, str], Check]] = {
    ("", "configmaps"): _check_data,
    ("", "nodes"): _check_node,
    ("", "persistentvolumeclaims"): _check_claim,
    ("", "persistentvolumes"): _check_volume,
    ("", "pods"): _check_pod,
    ("", "secrets"): _check_secret,
    ("apps", "controllerrevisions"): _immutable("data"),
    ("apps", "daemonsets"): _immutable("spec.selector"),
    ("apps", "deployments"): _immutable("spec.selector"),
    ("apps", "replicasets"): _immutable("spec.selector"),
    ("apps", "statefulsets"): _check_stateful_set,
    ("batch", "jobs"): _check_job,
    CERTIFICATE_REQUESTS: check_change,
    ("discovery.k8s.io", "endpointslices"): _immutable("addressType"),
    ("networking.k8s.io", "ingressclasses"): _immutable("spec.controller"),
    ("node.k8s.io", "runtimeclasses"): _immutable("handler"),
    ("scheduling.k8s.io", "priorityclasses"): _check_priority_class,
    ("storage.k8s.io", "storageclasses"): _immutable("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
}
