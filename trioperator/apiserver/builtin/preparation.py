"""Server-set fields of individual built-in kinds, on creation and on update. Pure.

Functions change the new object in place, but only at its top level: nested values may be shared, and are replaced.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Final

from ..custom.definition_status import initial_status
from ..model.errors import invalid
from ..model.kinds import Kind
from ..model.status_causes import StatusCause, invalid_value
from ..model.unmarshal import new_status
from .validity.workloads import CONTROLLER_UID

Object = dict[str, Any]

# Kinds that keep the status of the create request.
_STATUS_ON_CREATE: Final = frozenset({("", "nodes")})
_TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION: Final = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


def prepare_new(kind: Kind, obj: Object) -> None:
    """Set the server-set fields of a new object, which already has its name and uid."""
    if "status" in kind.subresources and kind.resource not in _STATUS_ON_CREATE:
        obj["status"] = new_status(kind)
    prepare = _NEW.get(kind.resource)
    if prepare is not None:
        prepare(obj)


def prepare_changed(kind: Kind, new: Object, old: Mapping[str, Any]) -> None:
    """Set the server-set fields of an updated object."""
    prepare = _CHANGED.get(kind.resource)
    if prepare is not None:
        prepare(new, old)


# -- namespaces, definitions, secrets -------------------------------------------------------------------------------


def _new_namespace(obj: Object) -> None:
    found = (obj.get("spec") or {}).get("finalizers") or []
    obj["spec"] = {"finalizers": found if "kubernetes" in found else [*found, "kubernetes"]}


def _new_definition(obj: Object) -> None:
    obj["status"] = initial_status(obj)


def _changed_definition(new: Object, old: Mapping[str, Any]) -> None:
    """Remember a new storage version at once, as objects may be stored in it from now on."""
    status = old.get("status") or {}
    stored = [*(status.get("storedVersions") or ())]
    added = [name for name in initial_status(new)["storedVersions"][:1] if name not in stored]
    if added:
        new["status"] = {**status, "storedVersions": [*stored, *added]}


def encode_secret(obj: Object) -> None:
    """Move ``stringData`` of a Secret to its ``data``."""
    texts = obj.pop("stringData", None) or {}
    if texts:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in texts.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


# -- workloads ----------------------------------------------------------------------------------------------------


def _new_pod(obj: Object) -> None:
    _complete_pod(obj, {"spec": {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}})
    obj["status"] = {**obj["status"], "qosClass": _quality(obj["spec"])}


def _complete_pod(new: Object, old: Mapping[str, Any]) -> None:
    """Set the fields of Pods that built-in admission sets, which have no field manager."""
    kept = {field: old["spec"][field] for field in ("priority", "preemptionPolicy") if field in old["spec"]}
    tolerations = new["spec"].get("tolerations") or []
    tolerated = {item.get("key") for item in tolerations}
    added = [{"key": key, **_TOLERATION} for key in _TOLERATED if not {key, None, ""} & tolerated]
    new["spec"] = {**kept, **new["spec"], "tolerations": [*tolerations, *added]}


def _quality(spec: Mapping[str, Any]) -> str:
    resources = [item.get("resources") or {} for item in spec.get("containers") or ()]
    resources += [item.get("resources") or {} for item in spec.get("initContainers") or ()]
    wanted = [{word: _compute(item.get(word)) for word in ("limits", "requests")} for item in resources]
    if not any(item["limits"] or item["requests"] for item in wanted):
        return "BestEffort"
    is_guaranteed = all(len(item["limits"]) == 2 and item["limits"] == item["requests"] for item in wanted)
    return "Guaranteed" if is_guaranteed else "Burstable"


def _compute(amounts: Mapping[str, str] | None) -> dict[str, str]:
    return {name: amount for name, amount in (amounts or {}).items() if name in {"cpu", "memory"} and amount != "0"}


def _new_daemon_set(obj: Object) -> None:
    _annotate(obj, {_TEMPLATE_GENERATION: "1"})


def _changed_daemon_set(new: Object, old: Mapping[str, Any]) -> None:
    generation = int((old["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION, "1"))
    is_other = new["spec"].get("template") != old["spec"].get("template")
    _annotate(new, {_TEMPLATE_GENERATION: str(generation + is_other)})


def _annotate(obj: Object, annotations: Mapping[str, str]) -> None:
    obj["metadata"]["annotations"] = {**(obj["metadata"].get("annotations") or {}), **annotations}


def _new_job(obj: Object) -> None:
    """Set the selector of a Job, its uid, unless ``manualSelector`` is set."""
    spec, meta = dict(obj["spec"]), obj["metadata"]
    obj["spec"] = spec
    if not spec.setdefault("manualSelector", False):
        by_uid = {CONTROLLER_UID: meta["uid"]}
        names = {"batch.kubernetes.io/job-name": meta.get("name", "")}
        legacy = {"controller-uid": meta["uid"], "job-name": meta.get("name", "")}
        template = dict(spec.get("template") or {})
        template_meta = template.get("metadata") or {}
        labels = {**(template_meta.get("labels") or {}), **by_uid, **names, **legacy}
        template["metadata"] = {**template_meta, "labels": labels}
        spec["template"] = template
        selector = spec.get("selector") or {}
        spec["selector"] = {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **by_uid}}
    shown = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if shown and not meta.get("labels"):
        meta["labels"] = shown


# -- services ------------------------------------------------------------------------------------------------------

# Fields of some types of Services: dropped when the type changes, unless they are changed at the same time.
_BALANCED: Final = frozenset({"LoadBalancer"})
_OUTSIDE: Final = frozenset({"LoadBalancer", "NodePort"})
_NODE_PORTS: Final = range(30000, 32768)
_OUT_OF_RANGE: Final = (
    f"provided port is not in the valid range. The range of valid ports is {_NODE_PORTS[0]}-{_NODE_PORTS[-1]}"
)
_INSIDE: Final = _OUTSIDE | {"ClusterIP"}
_BY_TYPE: Final[Mapping[str, frozenset[str]]] = {
    "allocateLoadBalancerNodePorts": _BALANCED,
    "clusterIP": _INSIDE,
    "clusterIPs": _INSIDE,
    "externalName": frozenset({"ExternalName"}),
    "externalTrafficPolicy": _OUTSIDE,
    "internalTrafficPolicy": _INSIDE,
    "ipFamilies": _INSIDE,
    "ipFamilyPolicy": _INSIDE,
    "loadBalancerClass": _BALANCED,
}


def _changed_service(new: Object, old: Mapping[str, Any]) -> None:
    """Keep assigned addresses and ports that the new content omits."""
    spec, before = dict(new["spec"]), old["spec"]
    new["spec"] = spec
    for field, types in _BY_TYPE.items():
        if spec["type"] not in types and before["type"] in types and spec.get(field) == before.get(field):
            spec.pop(field, None)
    if spec["type"] != "LoadBalancer":
        new["status"] = {**(new.get("status") or {}), "loadBalancer": {}}
    if spec["type"] == "ExternalName":
        return
    if "clusterIP" not in spec and "clusterIP" in before:
        spec["clusterIP"], spec["clusterIPs"] = before["clusterIP"], before["clusterIPs"]
    taken = {(port.get("port"), port.get("protocol")): port.get("nodePort") for port in before.get("ports") or ()}
    if spec["type"] in {"LoadBalancer", "NodePort"} and "ports" in spec:
        spec["ports"] = [
            {**port, "nodePort": port.get("nodePort") or taken.get((port.get("port"), port.get("protocol")))}
            for port in spec["ports"]
        ]
    elif "ports" in spec:
        given = set(taken.values())
        spec["ports"] = [
            {field: value for field, value in port.items() if field != "nodePort" or value not in given}
            for port in spec["ports"]
        ]


def assign_addresses(service: Object, others: Iterable[Mapping[str, Any]]) -> None:
    """Assign the lowest free cluster IP and node ports to the Service, where they are required and missing.

    Raises ApiError (422) for a node port that another Service has, or that is out of range.
    """
    spec = dict(service["spec"])
    service["spec"] = spec
    if spec["type"] == "ExternalName":
        return
    uid = service["metadata"]["uid"]
    specs = [other["spec"] for other in others if other["metadata"]["uid"] != uid]
    if not spec.get("clusterIP"):
        taken = {other.get("clusterIP") for other in specs}
        spec["clusterIP"] = next(address for address in _addresses() if address not in taken)
        spec["clusterIPs"] = [spec["clusterIP"]]
    if spec["type"] in _OUTSIDE and spec.get("ports"):
        others_ports = {number for other in specs if other["type"] in _OUTSIDE for _, number in _node_ports(other)}
        for cause in _check_node_ports(spec, others_ports):
            raise invalid("Service", "", service["metadata"].get("name") or "", [cause])
        taken_ports = others_ports.union(number for _, number in _node_ports(spec))
        free = (number for number in _NODE_PORTS if number not in taken_ports)
        spec["ports"] = [{**port, "nodePort": port.get("nodePort") or next(free)} for port in spec["ports"]]


def _node_ports(spec: Mapping[str, Any]) -> list[tuple[str | None, int | None]]:
    return [(port.get("protocol"), port.get("nodePort")) for port in spec.get("ports") or ()]


def _check_node_ports(spec: Mapping[str, Any], others: Container[int | None]) -> Iterable[StatusCause]:
    """Yield the errors of node ports that cannot be allocated; those of a Service may differ by their protocols."""
    own = _node_ports(spec)
    for at, (protocol, number) in enumerate(own):
        if number and number not in _NODE_PORTS:
            yield invalid_value(f"spec.ports[{at}].nodePort", number, _OUT_OF_RANGE)
        elif number and (number in others or (protocol, number) in own[:at]):
            yield invalid_value(f"spec.ports[{at}].nodePort", number, "provided port is already allocated")


def _addresses() -> Iterable[str]:
    for high in range(256):
        for low in range(256):
            if (high, low) not in {(0, 0), (0, 1)}:  # the network address, and the API server
                yield f"10.96.{high}.{low}"


_NEW: Final[Mapping[tuple[str, str], Callable[[Object], None]]] = {
    ("", "namespaces"): _new_namespace,
    ("", "pods"): _new_pod,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _new_definition,
    ("apps", "daemonsets"): _new_daemon_set,
    ("batch", "jobs"): _new_job,
}
_CHANGED: Final[Mapping[tuple[str, str], Callable[[Object, Mapping[str, Any]], None]]] = {
    ("", "pods"): _complete_pod,
    ("", "services"): _changed_service,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _changed_definition,
    ("apps", "daemonsets"): _changed_daemon_set,
}
