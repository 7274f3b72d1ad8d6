"""Columns of the built-in kinds in ``kubectl get``: name, readiness, status and age; for Events, what happened. Pure.

Names, types and values of the columns are the same as on the real server, which has others besides.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ..model.kinds import Column
from .column_values import age, find, since
from .pod_column_values import pod_ready, pod_restarts, pod_status

Object: TypeAlias = Mapping[str, Any]
Cell: TypeAlias = Callable[[Object, datetime.datetime], Any]
BuiltinColumn: TypeAlias = tuple[Column, Cell]


def builtin_columns(resource: tuple[str, str]) -> tuple[BuiltinColumn, ...]:
    """Return the columns of a built-in kind (group and plural name), with the functions that compute the cells."""
    if resource in {("", "events"), ("events.k8s.io", "events")}:
        return _EVENT
    return (_NAME, *_COLUMNS.get(resource, ()), _AGE)


def _column(name: str, cell: Cell, type: str = "string", *, format: str = "") -> BuiltinColumn:
    return Column(name=name, type=type, format=format, path=""), cell


def _count(name: str, path: str, type: str = "integer") -> BuiltinColumn:
    return _column(name, lambda obj, now: find(obj, path) or 0, type)


def _ready_replicas(obj: Object, now: datetime.datetime) -> str:
    return f"{find(obj, 'status.readyReplicas') or 0}/{find(obj, 'spec.replicas') or 0}"


def _node_status(obj: Object, now: datetime.datetime) -> str:
    ready = next((c for c in find(obj, "status.conditions") or () if c.get("type") == "Ready"), None)
    status = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if find(obj, "spec.unschedulable") else status


def _phase(obj: Object, now: datetime.datetime) -> str:
    """Return the phase of an object, or that it is being deleted."""
    return "Terminating" if "deletionTimestamp" in obj["metadata"] else str(find(obj, "status.phase") or "")


def _job_status(obj: Object, now: datetime.datetime) -> str:
    """Return the most significant condition of a Job."""
    order = {"Complete": 0, "Failed": 0, "Suspended": 1, "FailureTarget": 2, "SuccessCriteriaMet": 3}
    found = [c["type"] for c in find(obj, "status.conditions") or () if c.get("status") == "True"]
    known = sorted((kind for kind in found if kind in order), key=lambda kind: order[kind])
    if known:
        return str(known[0])
    return "Terminating" if "deletionTimestamp" in obj["metadata"] else "Running"


def _last_seen(obj: Object, now: datetime.datetime) -> str:
    """Return how long ago an Event happened last."""
    return since(find(obj, "series.lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime"), now)


def _regarding(obj: Object, now: datetime.datetime) -> str:
    regarding = obj.get("involvedObject") or {}
    return f"{str(regarding.get('kind') or '').lower()}/{regarding.get('name') or ''}"


def _data_count(obj: Object, now: datetime.datetime) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _text(field: str) -> Cell:
    return lambda obj, now: str(obj.get(field) or "").strip()


_NAME: Final = _column("Name", lambda obj, now: obj["metadata"]["name"], format="name")
_AGE: Final = _column("Age", age)
_READY: Final = _column("Ready", _ready_replicas)
_SCALED: Final = (
    _count("Desired", "spec.replicas"),
    _count("Current", "status.replicas"),
    _count("Ready", "status.readyReplicas"),
)
_DATA: Final = _column("Data", _data_count)
_PHASE: Final = _column("Status", _phase)
_EVENT: Final = (  # in the vocabulary of the core group, in which all Events are stored
    _column("Last Seen", _last_seen),
    _column("Type", _text("type")),
    _column("Reason", _text("reason")),
    _column("Object", _regarding),
    _column("Message", _text("message")),
)

_COLUMNS: Final[Mapping[tuple[str, str], tuple[BuiltinColumn, ...]]] = {
    ("", "configmaps"): (_DATA,),
    ("", "namespaces"): (_PHASE,),
    ("", "nodes"): (_column("Status", _node_status),),
    ("", "persistentvolumeclaims"): (_PHASE,),
    ("", "persistentvolumes"): (_PHASE,),
    ("", "pods"): (
        _column("Ready", pod_ready),
        _column("Status", pod_status),
        _column("Restarts", pod_restarts),
    ),
    ("", "replicationcontrollers"): _SCALED,
    ("", "secrets"): (_column("Type", _text("type")), _DATA),
    ("apps", "daemonsets"): (_count("Ready", "status.numberReady"),),
    ("apps", "deployments"): (
        _READY,
        _count("Up-to-date", "status.updatedReplicas", "string"),
        _count("Available", "status.availableReplicas", "string"),
    ),
    ("apps", "replicasets"): _SCALED,
    ("apps", "statefulsets"): (_READY,),
    ("batch", "jobs"): (_column("Status", _job_status),),
}
