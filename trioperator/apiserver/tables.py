"""Tables, as ``kubectl get`` asks for them: columns and cells of the built-in kinds and of custom ones. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from .jsonpath import find_all
from .kinds import Column, Kind

__all__ = ["columns_of", "human_duration", "render_table"]

Object = Mapping[str, Any]
Cell = Callable[[Object], Any]


def render_table(
    kind: Kind,
    objects: Iterable[Object],
    *,
    meta: Object,
    now: datetime.datetime,
    include: str = "Metadata",
    head: bool = True,
) -> dict[str, Any]:
    """Make the ``Table`` of the objects; *include* says what comes with each row: Metadata, Object or None."""
    names, cells = columns_of(kind, now)
    rows = []
    for obj in objects:
        row: dict[str, Any] = {"cells": [cell(obj) for cell in cells]}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = partial(obj)
        rows.append(row)
    columns = [_definition(column) for column in names] if head else []
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(meta),
        "columnDefinitions": columns,
        "rows": rows,
    }


def partial(obj: Object) -> dict[str, Any]:
    """Return the ``PartialObjectMetadata`` of the object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def columns_of(kind: Kind, now: datetime.datetime) -> tuple[list[Column], list[Cell]]:
    """Return the columns of the kind and how their cells are filled."""
    columns = [Column(name="Name", type="string", format="name", description="Name of the object.", path="")]
    cells: list[Cell] = [lambda obj: obj["metadata"]["name"]]
    if kind.custom is not None:
        for column in kind.custom.columns:
            text = column.description or f"Custom resource definition column (in JSONPath format): {column.path}"
            columns.append(
                Column(
                    name=column.name,
                    type=column.type,
                    format=column.format,
                    path=column.path,
                    description=text,
                    priority=column.priority,
                )
            )
            cells.append(_custom_cell(column, now))
        return columns, cells
    for name, cell in _BUILTIN.get(kind.resource, ()):
        columns.append(Column(name=name, type="string", path=""))
        cells.append(cell)
    if kind.resource == _DEFINITIONS:
        columns.append(Column(name="Created At", type="date", path=""))
        cells.append(lambda obj: obj["metadata"]["creationTimestamp"])
    else:
        columns.append(Column(name="Age", type="string", path=""))
        cells.append(lambda obj: age(obj["metadata"].get("creationTimestamp"), now))
    return columns, cells


def _custom_cell(column: Column, now: datetime.datetime) -> Cell:
    def cell(obj: Object) -> Any:
        found = find_all(obj, column.path)
        if not found:
            return None
        value = found[0]
        if column.type == "date":
            return age(value, now) if isinstance(value, str) else None
        if column.type in {"integer", "number", "boolean"}:
            return value if isinstance(value, (int, float)) else None
        if len(found) > 1:
            return ",".join(_text(item) for item in found)
        return _text(value)

    return cell


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        import msgspec

        return msgspec.json.encode(value).decode()
    return "" if value is None else str(value)


def age(timestamp: Any, now: datetime.datetime) -> str:
    """Return how long ago the API's timestamp was, as people read it."""
    try:
        moment = datetime.datetime.fromisoformat(str(timestamp).replace("Z", "+00:00"))
    except ValueError:
        return "<unknown>"
    return human_duration((now - moment).total_seconds())


def human_duration(seconds: float) -> str:
    """Write a duration with two or three significant digits, as kubectl does: 42s, 7m9s, 3h5m, 2d4h, 400d, 3y40d."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    total = max(total, 0)
    if total < 120:
        return f"{total}s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big}{big_unit}{small}{small_unit}" if small else f"{big}{big_unit}"


# -- the cells of built-in kinds ------------------------------------------------------------------------------------


def _at(*path: str, default: Any = "") -> Cell:
    def cell(obj: Object) -> Any:
        value: Any = obj
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        return default if value is None else value

    return cell


def _size(field: str) -> Cell:
    return lambda obj: len(obj.get(field) or ())


def _ratio(done: Cell, wanted: Cell) -> Cell:
    return lambda obj: f"{done(obj)}/{wanted(obj)}"


def _pod_ready(obj: Object) -> str:
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    return f"{sum(bool(item.get('ready')) for item in statuses)}/{len((obj.get('spec') or {}).get('containers') or ())}"


def _pod_status(obj: Object) -> str:
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    status = obj.get("status") or {}
    return str(status.get("reason") or status.get("phase") or "")


def _pod_restarts(obj: Object) -> str:
    statuses = (obj.get("status") or {}).get("containerStatuses") or ()
    return str(sum(int(item.get("restartCount") or 0) for item in statuses))


def _ports(obj: Object) -> str:
    ports = (obj.get("spec") or {}).get("ports") or ()
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


def _involved(obj: Object) -> str:
    involved = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{str(involved.get('kind') or '').lower()}/{involved.get('name') or ''}"


_DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
_REPLICAS: Final = _at("spec", "replicas", default=0)
_READY: Final = _at("status", "readyReplicas", default=0)
_BUILTIN: Final[Mapping[tuple[str, str], Sequence[tuple[str, Cell]]]] = {
    ("", "configmaps"): (("Data", _size("data")),),
    ("", "events"): (
        ("Type", _at("type")),
        ("Reason", _at("reason")),
        ("Object", _involved),
        ("Message", lambda obj: obj.get("message") or obj.get("note") or ""),
    ),
    ("", "namespaces"): (("Status", _at("status", "phase")),),
    ("", "nodes"): (("Version", _at("status", "nodeInfo", "kubeletVersion")),),
    ("", "persistentvolumeclaims"): (("Status", _at("status", "phase")), ("Volume", _at("spec", "volumeName"))),
    ("", "pods"): (("Ready", _pod_ready), ("Status", _pod_status), ("Restarts", _pod_restarts)),
    ("", "secrets"): (("Type", _at("type")), ("Data", _size("data"))),
    ("", "serviceaccounts"): (("Secrets", _size("secrets")),),
    ("", "services"): (
        ("Type", _at("spec", "type")),
        ("Cluster-IP", _at("spec", "clusterIP", default="<none>")),
        ("External-IP", lambda obj: "<none>"),
        ("Port(s)", _ports),
    ),
    ("apps", "daemonsets"): (
        ("Desired", _at("status", "desiredNumberScheduled", default=0)),
        ("Ready", _at("status", "numberReady", default=0)),
    ),
    ("apps", "deployments"): (
        ("Ready", _ratio(_READY, _REPLICAS)),
        ("Up-to-date", _at("status", "updatedReplicas", default=0)),
        ("Available", _at("status", "availableReplicas", default=0)),
    ),
    ("apps", "replicasets"): (
        ("Desired", _REPLICAS),
        ("Current", _at("status", "replicas", default=0)),
        ("Ready", _READY),
    ),
    ("apps", "statefulsets"): (("Ready", _ratio(_READY, _REPLICAS)),),
    ("batch", "cronjobs"): (("Schedule", _at("spec", "schedule")), ("Suspend", _at("spec", "suspend", default=False))),
    ("batch", "jobs"): (
        ("Completions", _ratio(_at("status", "succeeded", default=0), _at("spec", "completions", default=1))),
    ),
    ("coordination.k8s.io", "leases"): (("Holder", _at("spec", "holderIdentity")),),
}
