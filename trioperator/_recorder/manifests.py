"""Kubernetes Events as they are posted, in the core group. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from trioperator._model.jsontypes import JsonObject
from trioperator._recorder.correlator import Occurrence, Series
from trioperator.settings.posting import PostingSettings

# Bytes that the API server accepts.
MAX_MESSAGE: Final = 1024
_MAX_LINE: Final = 128
_ELLIPSIS: Final = "..."

#: Converts a time of Trio's clock to a wall time.
ToWall: TypeAlias = Callable[[float], datetime.datetime]


def get_namespace(occurrence: Occurrence) -> str:
    """Return the namespace of the event: the object's. The API server wants "default" for others."""
    return occurrence.namespace or "default"


def events_path(namespace: str) -> str:
    """Return the path of the events in a namespace."""
    return f"/api/v1/namespaces/{namespace}/events"


def build_event(series: Series, posting: PostingSettings, *, identity: str, to_wall: ToWall) -> JsonObject:
    """Return the event of a series that is not in the cluster."""
    first = series.first
    reference = {
        "apiVersion": first.api_version,
        "kind": first.kind,
        "namespace": first.namespace,
        "name": first.name,
        "uid": first.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": get_namespace(first), "generateName": posting.event_name_prefix},
        "involvedObject": {key: value for key, value in reference.items() if value},
        "type": shorten(first.type, _MAX_LINE),
        "reason": shorten(first.reason, _MAX_LINE),
        "action": "Action?",
        "reportingComponent": posting.reporting_component,
        "reportingInstance": shorten(posting.reporting_instance or identity, _MAX_LINE),
        "source": {"component": posting.reporting_component},
        "firstTimestamp": _format(to_wall(first.time), "seconds"),
        "eventTime": _format(to_wall(first.time), "microseconds"),
        **build_update(series, to_wall=to_wall),
    }


def build_update(series: Series, *, to_wall: ToWall) -> JsonObject:
    """Return the fields of an event that change when it happens again, as a merge patch."""
    last = to_wall(series.last.time)
    update: dict[str, Any] = {
        "message": shorten(series.last.message, MAX_MESSAGE),
        "count": series.count,
        "lastTimestamp": _format(last, "seconds"),
    }
    if series.count > 1:
        update["series"] = {"count": series.count, "lastObservedTime": _format(last, "microseconds")}
    return update


def shorten(text: str, limit: int) -> str:
    """Return the text, without its middle if it has more than *limit* bytes in UTF-8."""
    if len(text) <= limit and text.isascii():
        return text
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    end = (limit - len(_ELLIPSIS)) // 2
    begin = limit - len(_ELLIPSIS) - end
    return data[:begin].decode(errors="ignore") + _ELLIPSIS + data[-end:].decode(errors="ignore")


def _format(moment: datetime.datetime, timespec: str) -> str:
    return moment.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec=timespec) + "Z"
