"""Events: other names for the fields in the group ``events.k8s.io``, and what an Event must say there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..model.kinds import Kind
from ..model.metadata import check_key
from ..model.status_causes import StatusCause, invalid_value, required
from .autoscaling import V1, to_v1

# Field names in the group events.k8s.io, and in the core group.
_TO_CORE: Final[Mapping[str, str]] = {
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
}
_FROM_CORE: Final[Mapping[str, str]] = {core: own for own, core in _TO_CORE.items()}


def to_core(event: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an Event of the group ``events.k8s.io`` to the core group."""
    return {_TO_CORE.get(field, field): value for field, value in event.items()}


def as_served(kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the stored built-in object in the group and version of the kind."""
    if kind.is_event_alias:
        own = {_FROM_CORE.get(field, field): value for field, value in obj.items()}
        return {**own, "apiVersion": kind.api_version}
    if (kind.api_version, kind.kind) == V1:
        return to_v1(obj)
    return obj if obj["apiVersion"] == kind.api_version else {**obj, "apiVersion": kind.api_version}


_LIMITS: Final = {"reportingInstance": 128, "action": 128, "reason": 128}
_MAX_NOTE: Final = 1024  # characters
_DEPRECATED: Final = ("firstTimestamp", "lastTimestamp", "count", "source")
_FIXED: Final = (
    *("involvedObject", "reason", "message", *_DEPRECATED, "type", "eventTime", "action"),
    *("related", "reportingComponent", "reportingInstance"),
)


def check_event(kind: Kind, obj: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterable[StatusCause]:
    """Yield the validation errors of a stored Event that is written through the group of the kind."""
    namespace = (obj.get("involvedObject") or {}).get("namespace") or ""
    homes = {"default", "kube-system"} if not namespace and obj.get("eventTime") else {namespace or "default"}
    if obj["metadata"].get("namespace") not in homes:
        yield invalid_value("involvedObject.namespace", namespace, "does not match event.namespace")
    if obj.get("eventTime"):
        yield from _check_report(obj)
    if kind.is_event_alias and old is None:
        yield from _check_series(obj.get("series"))
        yield from _check_creation(obj)
    elif kind.is_event_alias and old is not None:
        for field in _FIXED:
            if (obj.get(field) or None) != (old.get(field) or None):
                shown = "reportingController" if field == "reportingComponent" else field
                yield invalid_value(shown, obj.get(field), "field is immutable")
        if obj.get("series") != old.get("series"):
            yield from _check_series(obj.get("series"))


def _check_report(obj: Mapping[str, Any]) -> Iterable[StatusCause]:
    """Check what each Event with a time must say: who reports it, what happened and why."""
    controller = obj.get("reportingComponent") or ""
    if not controller:
        yield required("reportingController")
    yield from check_key("reportingController", controller)
    for field, limit in _LIMITS.items():
        value = obj.get(field) or ""
        if not value:
            yield required(field)
        elif len(value.encode()) > limit:
            yield invalid_value(field, "", f"can have at most {limit} characters")
    if len((obj.get("message") or "").encode()) > _MAX_NOTE:
        yield invalid_value("message", "", f"can have at most {_MAX_NOTE} characters")


def _check_creation(obj: Mapping[str, Any]) -> Iterable[StatusCause]:
    if not obj.get("eventTime"):
        yield required("eventTime")
    if (kind := obj.get("type") or "") not in {"Normal", "Warning"}:
        yield invalid_value("type", "", f"has invalid value: {kind}")
    for field in _DEPRECATED:
        if obj.get(field):
            yield invalid_value(field, "", "needs to be unset")


def _check_series(series: Mapping[str, Any] | None) -> Iterable[StatusCause]:
    if series is not None:
        if (series.get("count") or 0) < 2:
            yield invalid_value("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield required("series.lastObservedTime")
