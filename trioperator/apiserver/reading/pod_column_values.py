"""What tables tell of Pods: their status is not their phase, but what their containers make of it. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from .column_values import find

__all__ = ["pod_ready", "pod_status"]

Object: TypeAlias = Mapping[str, Any]


def pod_ready(obj: Object, now: datetime.datetime) -> str:
    """Show how many containers are ready."""
    statuses = find(obj, "status.containerStatuses") or ()
    ready = sum(bool(s.get("ready")) and "running" in (s.get("state") or {}) for s in statuses)
    return f"{ready}/{len(find(obj, 'spec.containers') or ())}"


def pod_status(obj: Object, now: datetime.datetime) -> str:
    """Show the phase, or the reason why a container is not running."""
    status = obj.get("status") or {}
    shown = str(status.get("reason") or status.get("phase") or "")
    if any(c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in _conditions(obj)):
        shown = "SchedulingGated"
    initializing = _initializing(obj)
    if initializing is not None:
        shown = initializing
    else:
        shown = _running(obj, shown)
    if "deletionTimestamp" in obj["metadata"]:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in {"Succeeded", "Failed"}:
            return "Terminating"
    return shown


def _initializing(obj: Object) -> str | None:
    """Tell how far the init containers have come, if they have not ended."""
    statuses: Sequence[Object] = find(obj, "status.initContainerStatuses") or ()
    for index, status in enumerate(statuses):
        state = status.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and not ended.get("exitCode"):
            continue
        if ended is not None:
            return f"Init:{ended.get('reason') or _how(ended)}"
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(find(obj, 'spec.initContainers') or ())}"
    return None


def _running(obj: Object, shown: str) -> str:
    """Tell what the first container with something to say says."""
    has_running = False
    for status in reversed(find(obj, "status.containerStatuses") or ()):
        state = status.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            shown = waiting["reason"]
        elif ended is not None:
            shown = ended.get("reason") or _how(ended)
        elif status.get("ready") and "running" in state:
            has_running = True
    if shown == "Completed" and has_running:
        is_ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in _conditions(obj))
        return "Running" if is_ready else "NotReady"
    return shown


def _how(ended: Object) -> str:
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode') or 0}"


def _conditions(obj: Object) -> Sequence[Object]:
    return find(obj, "status.conditions") or ()
