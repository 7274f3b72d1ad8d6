"""Cells of Pods: the readiness of their containers, and the status that follows from their states. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from .column_values import find

Object: TypeAlias = Mapping[str, Any]


def pod_ready(obj: Object, now: datetime.datetime) -> str:
    """Return how many containers are ready."""
    statuses = find(obj, "status.containerStatuses") or ()
    ready = sum(bool(s.get("ready")) and "running" in (s.get("state") or {}) for s in statuses)
    return f"{ready}/{len(find(obj, 'spec.containers') or ())}"


def pod_restarts(obj: Object, now: datetime.datetime) -> str:
    """Return how often containers were restarted."""
    return str(sum(s.get("restartCount") or 0 for s in find(obj, "status.containerStatuses") or ()))


def pod_status(obj: Object, now: datetime.datetime) -> str:
    """Return the phase, or the reason why a container is not running."""
    status = obj.get("status") or {}
    shown = str(status.get("reason") or status.get("phase") or "")
    if any(c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in _conditions(obj)):
        shown = "SchedulingGated"
    init_status = _init_status(obj)
    if init_status is not None:
        shown = init_status
    else:
        shown = _container_status(obj, shown)
    if "deletionTimestamp" in obj["metadata"]:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in {"Succeeded", "Failed"}:
            return "Terminating"
    return shown


def _init_status(obj: Object) -> str | None:
    """Return the progress of the init containers, or None if all have completed."""
    statuses: Sequence[Object] = find(obj, "status.initContainerStatuses") or ()
    for index, status in enumerate(statuses):
        state = status.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if terminated is not None:
            return f"Init:{terminated.get('reason') or _exit_reason(terminated)}"
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(find(obj, 'spec.initContainers') or ())}"
    return None


def _container_status(obj: Object, shown: str) -> str:
    """Return the state of the first container that waits or has terminated; otherwise *shown*."""
    has_running = False
    for status in reversed(find(obj, "status.containerStatuses") or ()):
        state = status.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            shown = waiting["reason"]
        elif terminated is not None:
            shown = terminated.get("reason") or _exit_reason(terminated)
        elif status.get("ready") and "running" in state:
            has_running = True
    if shown == "Completed" and has_running:
        is_ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in _conditions(obj))
        return "Running" if is_ready else "NotReady"
    return shown


def _exit_reason(terminated: Object) -> str:
    return (
        f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode') or 0}"
    )


def _conditions(obj: Object) -> Sequence[Object]:
    return find(obj, "status.conditions") or ()
