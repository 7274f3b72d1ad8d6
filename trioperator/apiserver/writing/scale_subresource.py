"""The scale subresource: a view of a few fields of objects that have replicas. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..custom.jsonpath import find_first, put_at
from ..model.errors import internal_error, invalid
from ..model.kinds import Kind
from ..model.status_causes import StatusCause
from ..store.storage import Stored

_BUILTIN_PATHS = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": "",
}


def _paths(kind: Kind) -> Mapping[str, str]:
    if kind.custom is not None:
        return kind.custom.scale or {}
    return _BUILTIN_PATHS


def replicas_path(kind: Kind) -> str:
    """Return the JSON path of the desired number of replicas."""
    return _paths(kind).get("specReplicasPath", ".spec.replicas")


def require_replicas(kind: Kind, stored: Stored) -> None:
    """Raise 500 if a custom object has no value at the path of its replicas."""
    path = replicas_path(kind)
    if kind.custom is not None and find_first(stored.obj, path, None) is None:
        raise internal_error(f'the spec replicas field "{path}" does not exist')


def read_scale(kind: Kind, stored: Stored) -> dict[str, Any]:
    """Return the ``Scale`` of the object."""
    paths, obj = _paths(kind), stored.obj
    meta = obj["metadata"]
    wanted = find_first(obj, paths.get("specReplicasPath", ""), 0)
    status: dict[str, Any] = {"replicas": find_first(obj, paths.get("statusReplicasPath", ""), 0)}
    selector = _selector(kind, obj, paths)
    if selector:
        status["selector"] = selector
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in shown if key in meta},
        "spec": {"replicas": wanted} if wanted else {},
        "status": status,
    }


def _selector(kind: Kind, obj: Mapping[str, Any], paths: Mapping[str, str]) -> str:
    if kind.custom is not None:
        path = paths.get("labelSelectorPath")
        return str(find_first(obj, path, "") or "") if path else ""
    selector = (obj.get("spec") or {}).get("selector") or {}
    if kind.plural == "replicationcontrollers":
        selector = {"matchLabels": selector}
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    terms += [(each["key"], _format_term(each)) for each in selector.get("matchExpressions") or ()]
    return ",".join(term for _, term in sorted(terms))


def _format_term(expression: Mapping[str, Any]) -> str:
    """Return one of the ``matchExpressions`` of a selector as the server's clients write it."""
    key, operator = expression["key"], expression["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return key if operator == "Exists" else f"!{key}"
    return f"{key} {operator.lower()} ({','.join(sorted(expression.get('values') or ()))})"


def with_scale(kind: Kind, stored: Stored, scale: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with the replicas of the ``Scale``. Raises InvalidError."""
    name = stored.obj["metadata"]["name"]
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        cause = StatusCause("spec.replicas", f"Invalid value: {replicas}: must be greater than or equal to 0")
        raise invalid("Scale", "autoscaling", name, [cause])
    obj = put_at(stored.obj, replicas_path(kind), replicas)
    meta = dict(stored.obj["metadata"])
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version is not None:
        meta["resourceVersion"] = version
    return {**obj, "metadata": meta}
