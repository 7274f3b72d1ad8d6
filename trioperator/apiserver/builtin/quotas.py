"""ResourceQuotas: what objects count as, and whether one more fits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from trioperator._model.quantities import format_quantity, parse_quantity, quantity_value

from ..model.kinds import Kind

Amounts: TypeAlias = dict[str, Decimal]
Node: TypeAlias = Mapping[str, Any]

QUOTAS: Final = ("", "resourcequotas")
_BY_NAME: Final = frozenset(
    {"configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"}
)
_COMPUTE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
# Resources that each container must set if a quota limits them.
_DEMANDED: Final = {
    **{name: ("requests", name) for name in ("cpu", "memory")},
    **{f"{part}.{name}": (part, name) for part in ("requests", "limits") for name in ("cpu", "memory")},
}


def usage_of(kind: Kind, obj: Node) -> Amounts:
    """Return the amount of each resource that the object counts as."""
    found = {f"count/{kind.qualified}": Decimal(1)}
    if kind.group or kind.plural not in _BY_NAME:
        return found
    if kind.plural == "pods" and (obj.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return found
    found[kind.plural] = Decimal(1)
    spec: Node = obj.get("spec") or {}
    if kind.plural == "pods":
        return found | _of_pod(spec)
    if kind.plural == "services":
        return found | _of_service(spec)
    return found | _of_claim(spec) if kind.plural == "persistentvolumeclaims" else found


def _of_pod(spec: Node) -> Amounts:
    found: Amounts = {}
    for part in ("requests", "limits"):
        for name, amount in _sum_of_containers(spec, part).items():
            if part == "limits" and name not in _COMPUTE:
                continue
            found[f"{part}.{name}"] = amount
            if part == "requests" and name in _COMPUTE:
                found[name] = amount
    return found


def _sum_of_containers(spec: Node, part: str) -> Amounts:
    """Return what the containers need together, or an init container alone if that is more."""
    total: Amounts = {}
    for container in (*(spec.get("containers") or ()), {"resources": {part: spec.get("overhead") or {}}}):
        for name, text in ((container.get("resources") or {}).get(part) or {}).items():
            total[name] = total.get(name, Decimal(0)) + quantity_value(text)
    for container in spec.get("initContainers") or ():
        for name, text in ((container.get("resources") or {}).get(part) or {}).items():
            total[name] = max(total.get(name, Decimal(0)), quantity_value(text))
    return total


def _of_service(spec: Node) -> Amounts:
    kind, ports = spec.get("type"), spec.get("ports") or ()
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = [port for port in ports if port.get("nodePort")]
    has_ports = kind in {"NodePort", "LoadBalancer"}
    return {
        "services.nodeports": Decimal(len(ports) if has_ports else 0),
        "services.loadbalancers": Decimal(kind == "LoadBalancer"),
    }


def _of_claim(spec: Node) -> Amounts:
    size = quantity_value(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))
    found = {"requests.storage": size}
    if name := spec.get("storageClassName"):
        prefix = f"{name}.storageclass.storage.k8s.io"
        found |= {f"{prefix}/requests.storage": size, f"{prefix}/persistentvolumeclaims": Decimal(1)}
    return found


def matches_scopes(quota: Node, kind: Kind, obj: Node) -> bool:
    """Return whether the object has the scopes of the quota, which only Pods have."""
    spec = quota["spec"]
    wanted = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    wanted += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return not wanted or (kind.resource == ("", "pods") and all(_has_scope(obj["spec"], scope) for scope in wanted))


def _has_scope(spec: Node, scope: Node) -> bool:
    match scope["scopeName"]:
        case "Terminating" | "NotTerminating" as name:
            return bool(("activeDeadlineSeconds" in spec) == (name == "Terminating"))
        case "BestEffort" | "NotBestEffort" as name:
            parts = [_sum_of_containers(spec, part) for part in ("requests", "limits")]
            return bool(any(part.keys() & {"cpu", "memory"} for part in parts) == (name == "NotBestEffort"))
        case "PriorityClass":
            name, values = spec.get("priorityClassName") or "", scope.get("values") or ()
            operator = scope["operator"]
            if operator in {"Exists", "DoesNotExist"}:
                return bool(bool(name) == (operator == "Exists"))
            return bool((name in values) == (operator == "In"))
    return False


def used_of(quota: Node, objects: Iterable[tuple[Kind, Node]]) -> dict[str, str]:
    """Return the ``used`` of the quota's status, of the objects in its namespace."""
    hard = quota["spec"].get("hard") or {}
    used = dict.fromkeys(hard, Decimal(0))
    for kind, obj in objects:
        if matches_scopes(quota, kind, obj):
            for name, amount in usage_of(kind, obj).items():
                if name in used:
                    used[name] += amount
    return {name: _format(amount, hard[name]) for name, amount in used.items()}


def problem_of(quota: Node, kind: Kind, obj: Node, used: Mapping[str, str]) -> str:
    """Return why the object would exceed the quota, given what is used of it; empty if it would not."""
    hard: Mapping[str, str] = (quota.get("status") or {}).get("hard") or {}
    if not matches_scopes(quota, kind, obj):
        return ""
    name = quota["metadata"]["name"]
    if kind.resource == ("", "pods") and (missing := _not_said(hard, obj["spec"])):
        return f"failed quota: {name}: must specify {missing}"
    asked = {each: amount for each, amount in usage_of(kind, obj).items() if amount and each in hard}
    over = sorted(
        each for each in asked if quantity_value(used.get(each, "0")) + asked[each] > quantity_value(hard[each])
    )
    if not over:
        return ""
    parts = (
        ("requested", {each: _format(asked[each], hard[each]) for each in over}),
        ("used", used),
        ("limited", hard),
    )
    texts = (f"{part}: {','.join(f'{each}={amounts[each]}' for each in over)}" for part, amounts in parts)
    return f"exceeded quota: {name}, {', '.join(texts)}"


def _not_said(hard: Mapping[str, str], spec: Node) -> str:
    """Return for which containers the Pod does not say what it has to."""
    found = []
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for name in sorted(_DEMANDED.keys() & hard.keys()):
        part, resource = _DEMANDED[name]
        lacking = [each["name"] for each in containers if resource not in (each.get("resources") or {}).get(part, {})]
        if lacking:
            found.append(f"{name} for: {','.join(sorted(lacking))}")
    return "; ".join(found)


def _format(amount: Decimal, like: str) -> str:
    return format_quantity(amount, parse_quantity(like)[1])
