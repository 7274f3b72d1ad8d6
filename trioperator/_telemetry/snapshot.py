"""A snapshot of a running operator: its tree of tasks, the calls of handlers in it, its queue and its watches.

It looks at the stacks of tasks, which costs those nothing. It contains names, no values: neither bodies nor arguments.
"""

from __future__ import annotations

import heapq
import os.path
import types
from collections.abc import Iterator, Mapping
from typing import Any, Final

import trio

from trioperator._concurrency.clock import steady_now, wall_now
from trioperator._handling.arguments.context import current_cause
from trioperator._handling.calls.invoke import Invoker
from trioperator._handling.handlers.handler import Handler
from trioperator._kube.api_client import ApiClient
from trioperator._logs import ObjectRef
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.reconciler.reconciler import Reconciler
from trioperator._runtime.workqueue import Lane, QueuedItem
from trioperator._telemetry.failures import Failure, mask_message
from trioperator._telemetry.inspector import Inspector

# Tasks, objects and watches in a snapshot, at most.
_MAX_TASKS: Final = 3000
_MAX_OBJECTS: Final = 200
_MAX_WATCHES: Final = 300

_INVOKE: Final = Invoker.invoke.__code__
_RECONCILE: Final = Reconciler.reconcile.__code__
_REQUEST: Final = (ApiClient._attempt.__code__, ApiClient._attempt_stream.__code__)
_FRAMEWORK: Final = frozenset({"trioperator", "trio", "outcome", "contextlib"})
# Packages whose tasks tell nothing, unless they have a name for people to read.
_INSIDES: Final = ("trio.", "trioperator.", "anyio.", "hypercorn.")


def take_snapshot(parts: Inspector, root: trio.lowlevel.Task, *, messages: bool = False) -> dict[str, Any]:
    """Return a snapshot of the operator whose tasks are *root* and those below, as JSON; with the *messages* of errors.

    These may contain anything.
    """
    tasks = Tasks(root)
    return {
        **describe_state(parts),
        "queue": describe_queue(parts, messages=messages),
        "timers": describe_timers(parts),
        "paused_objects": describe_paused(parts, messages=messages),
        "watches": list(describe_watches(parts)),
        "calls": tasks.calls,
        "tasks": tasks.tree,
        "omitted": tasks.omitted,
    }


def describe_state(parts: Inspector) -> dict[str, Any]:
    """Return whether the operator is ready, and why it is paused."""
    now = wall_now().isoformat(timespec="seconds")
    return {"time": now, "ready": parts.ready, "paused": list(parts.pauses.reasons)}


class Tasks:
    """The tasks below a root as a ``tree``, and the ``calls`` of handlers among them, those that run longest first.

    Tasks that are of no interest, such as those which accept connections, are left out; what is below them is not.
    """

    def __init__(self, root: trio.lowlevel.Task) -> None:
        self.calls: list[dict[str, Any]] = []
        self.omitted = 0  # tasks beyond the limit
        self._count = 0
        self._now = steady_now()
        self.tree = self._describe(root)
        self.calls.sort(key=lambda call: -call["seconds"])

    def _describe(self, task: trio.lowlevel.Task, *, is_called: bool = False) -> dict[str, Any]:
        """Describe a task and those below it; *is_called* is whether it belongs to a call of a handler."""
        self._count += 1
        node = self._describe_stack(task)
        is_called = is_called or "call" in node
        children: list[dict[str, Any]] = []
        for nursery in task.child_nurseries:
            for child in nursery.child_tasks:
                if self._count < _MAX_TASKS:
                    below = self._describe(child, is_called=is_called)
                    is_inside = not is_called and child.name.startswith(_INSIDES)
                    is_shown = not is_inside or {"call", "object", "request"} & below.keys()
                    children += [below] if is_shown else below.get("children", ())
                else:
                    self.omitted += 1
        if children:
            node["children"] = children
        return node

    def _describe_stack(self, task: trio.lowlevel.Task) -> dict[str, Any]:
        """Describe what a task does, by its frames from the outside in: the last of each sort tells the most."""
        node: dict[str, Any] = {"name": shorten_task(task.name)}
        own: tuple[types.FrameType, int] | None = None
        ours: tuple[types.FrameType, int] | None = None
        waits = ""
        for frame, line in task.iter_await_frames():
            code = frame.f_code
            if code is _INVOKE:
                node["call"] = self._describe_call(frame, task)
            elif code is _RECONCILE:
                node["object"] = name_object(frame.f_locals["state"].ref)
            elif code in _REQUEST:
                values = frame.f_locals
                node["request"] = f"{values.get('method', 'GET')} {values['target'].partition('?')[0]}"
            package = frame.f_globals.get("__name__", "").partition(".")[0]
            if package not in _FRAMEWORK:
                own, waits = (frame, line), ""
            elif own is None and package == "trioperator":
                ours, waits = (frame, line), ""
            elif not waits:
                waits = f"{package}.{code.co_name}"
        where = own or ours
        if where is not None:
            node["at"] = f"{os.path.basename(where[0].f_code.co_filename)}:{where[1]} in {where[0].f_code.co_name}"
        if waits:
            node["waits"] = waits
        if "call" in node:
            call = node["call"]
            call.update({key: node[key] for key in ("at", "waits", "request") if key in node})
        return node

    def _describe_call(self, frame: types.FrameType, task: trio.lowlevel.Task) -> dict[str, Any]:
        values = frame.f_locals
        handler: Handler = values["handler"]
        began = values.get("now", self._now)
        call: dict[str, Any] = {
            "handler": handler.id,
            "kind": str(handler).partition(" ")[0],
            "retry": values["attempt"].retry,
            "seconds": round((self._now - began).total_seconds(), 3),
        }
        cause = task.context.get(current_cause)
        reason = getattr(cause, "reason", None) or getattr(cause, "type", None)
        if reason is not None:
            call["cause"] = str(reason)
        if handler.timeout is not None:
            spent = (self._now - (values["attempt"].started or began)).total_seconds()
            call["deadline"] = round(handler.timeout - spent, 3)
        ref = values["logger"].object_ref
        if ref is not None:
            call["object"], call["uid"] = name_object(ref), ref["uid"]
        self.calls.append(call)
        return call


def shorten_task(name: str) -> str:
    """Return the name of a task: of a function without its modules and classes, or as it was given."""
    return name if "/" in name or " " in name else name.rpartition(".")[2]


def name_object(ref: ObjectRef) -> str:
    """Return the kind, namespace and name of an object."""
    return "/".join(str(part) for part in (ref["kind"], ref["namespace"], ref["name"]) if part)


def describe_queue(parts: Inspector, *, messages: bool = False) -> dict[str, Any]:
    """Return how many objects are running, queued and due later, and those that are reconciled next."""
    failures = find_failures(parts)
    items = list(parts.shards.items())
    now = trio.current_time()
    waiting = [item for item in items if not item.at_work]
    first = heapq.nsmallest(_MAX_OBJECTS, waiting, key=lambda item: _due(item, now))
    return {
        "queued": sum(item.lane is not None for item in waiting),
        "at_work": len(items) - len(waiting),
        "delayed": sum(item.lane is None for item in waiting),
        "limit": parts.settings.queueing.worker_limit,
        "objects": [
            {
                "object": name_object(item.item.ref),
                "uid": item.item.uid,
                "due": round(_due(item, now) - now, 3),
                **_describe_reason(parts, item, failures, messages=messages),
            }
            for item in first
        ],
    }


def find_failures(parts: Inspector) -> dict[tuple[str, str], Failure]:
    """Return the newest failure of each handler for each object, by uids and ids, as far as failures are kept."""
    live = None if parts.instruments is None else parts.instruments.live
    return {} if live is None else {(failure.uid, failure.handler): failure for failure in live.failures}


def _describe_reason(
    parts: Inspector,
    item: QueuedItem[ObjectState],
    failures: Mapping[tuple[str, str], Failure],
    *,
    messages: bool,
) -> dict[str, Any]:
    """Return why an object is due, and if something is tried again for it, the last error."""
    reconciler = parts.shards.find_reconciler(item.item)
    is_retry = reconciler is not None and reconciler.status.is_retrying(item.item)
    if not is_retry:
        return {"why": "requeue" if item.lane is None else "first list" if item.lane is Lane.INITIAL else "change"}
    last = None if reconciler is None else reconciler.status.find_error(item.item)
    if last is None:
        return {"why": "retry"}
    named = {} if last.handler is None else {"handler": last.handler}
    failure = failures.get((item.item.uid, last.handler or ""))
    error = last.error or ("an earlier error" if failure is None else failure.error)
    text = f"{error}: {mask_message(last.message)}" if messages and last.message else error
    return {"why": "retry", **named, "retry": last.retry, "error": text}


def describe_timers(parts: Inspector) -> list[dict[str, Any]]:
    """Return the timers and daemons that are called next, with in how many seconds that is."""
    now = trio.current_time()
    found = ((due - now, state, handler) for state, handler, due in parts.shards.daemons.schedule() if due is not None)
    return [
        {
            "object": name_object(state.ref),
            "uid": state.uid,
            "kind": str(handler).partition(" ")[0],
            "id": handler.id,
            "due": round(max(seconds, 0.0), 3),
        }
        for seconds, state, handler in heapq.nsmallest(_MAX_OBJECTS, found, key=lambda each: each[0])
    ]


def describe_paused(parts: Inspector, *, messages: bool = True) -> dict[str, Any]:
    """Return how many objects are paused by their annotations, and some of them, those that are over first.

    The reasons are *messages*.
    """
    paused = parts.shards.paused
    first = heapq.nsmallest(_MAX_OBJECTS, paused.items(), key=lambda item: str(item[1].until or "~"))
    shown = [
        {
            "object": name_object(state.ref),
            "uid": state.uid,
            "paused": mask_message(str(pause if messages else pause.mute())),
        }
        for state, pause in first
    ]
    return {"count": len(paused), "objects": shown}


def _due(item: QueuedItem[Any], now: float) -> float:
    """Return when an object is to be reconciled: now if it is queued."""
    return now if item.lane is not None or item.due is None else item.due


def describe_watches(parts: Inspector) -> Iterator[dict[str, Any]]:
    """Yield all watches, with their states: of what is handled, of related objects, of CRDs and namespaces."""
    watches = () if parts.watches is None else parts.watches.watched()
    for number, (name, purpose, objects, reflector) in enumerate(watches):
        if number == _MAX_WATCHES:
            return
        state = "watching" if reflector.status.is_synced else "not listed"
        if reflector.status.trouble is not None:
            state = "interrupted" if reflector.status.is_synced else "not watched"
        yield {
            "resource": name,
            "purpose": purpose,
            "path": reflector.path,
            "selector": reflector.selector,
            "state": state,
            "objects": objects,
            "events": reflector.status.received,
            "idle": round(trio.current_time() - reflector.status.progressed_at, 3),
        }
