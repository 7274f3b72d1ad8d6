"""Causes: what has happened, together with all that handlers may want to know of it.

Detection is pure. A cause computes its arguments only when somebody asks for them, and once.
"""

from __future__ import annotations

import dataclasses
import datetime
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trioperator.handling.handler import Activity, Reason, ResourceHandler
from trioperator.handling.indexing import Indices
from trioperator.model.body import Body
from trioperator.model.diff import Diff, diff, reduce_diff
from trioperator.model.fields import FieldPath, resolve
from trioperator.model.patch import Patch
from trioperator.model.resource import Resource

if TYPE_CHECKING:
    from trioperator.logs import Logger
    from trioperator.settings import OperatorSettings

__all__ = [
    "ACTIVITY_KWARGS",
    "ATTEMPT_KWARGS",
    "CHANGE_KWARGS",
    "DAEMON_KWARGS",
    "EVENT_KWARGS",
    "INDEX_KWARGS",
    "ActivityCause",
    "ChangeCause",
    "DaemonCause",
    "EventCause",
    "ObjectCause",
    "attempt_kwargs",
    "detect_reason",
]

_COMMON_KWARGS = frozenset({"logger", "memo"})
_OBJECT_KWARGS = frozenset(
    "resource patch body spec meta status uid name namespace labels annotations".split()  # noqa: SIM905 -- one line reads better
)
_NO_INDICES: Indices = types.MappingProxyType({})
ATTEMPT_KWARGS = frozenset({"param", "retry", "started", "runtime"})  # for handlers, and not for their filters
ACTIVITY_KWARGS = ATTEMPT_KWARGS | _COMMON_KWARGS | {"activity", "settings"}
INDEX_KWARGS = ATTEMPT_KWARGS | _COMMON_KWARGS | _OBJECT_KWARGS
DAEMON_KWARGS = ATTEMPT_KWARGS | _COMMON_KWARGS | _OBJECT_KWARGS | {"stopped"}
EVENT_KWARGS = ATTEMPT_KWARGS | _COMMON_KWARGS | _OBJECT_KWARGS | {"type", "event"}
CHANGE_KWARGS = ATTEMPT_KWARGS | _COMMON_KWARGS | _OBJECT_KWARGS | {"reason", "diff", "old", "new"}


def detect_reason(body: Mapping[str, Any], *, finalized: bool, handled: bool, changed: bool, initial: bool) -> Reason:
    """Name what has happened to an object that exists.

    *finalized*: our finalizer is on it; *handled*: it has a last-handled state, and *changed* says whether that differs
    from the present one; *initial*: it existed before the operator, which has not handled it since it started.
    """
    if (body.get("metadata") or {}).get("deletionTimestamp"):
        return Reason.DELETE if finalized else Reason.FREE
    if not handled:
        return Reason.CREATE
    if changed:
        return Reason.UPDATE
    return Reason.RESUME if initial else Reason.NOOP


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class ActivityCause:
    """Be the start or the end of the operator, or a probe."""

    activity: Activity
    settings: OperatorSettings
    memo: Any
    logger: Logger
    indices: Indices = dataclasses.field(default_factory=lambda: _NO_INDICES)

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Give the keyword arguments that every handler of this cause may take."""
        own = {"activity": self.activity, "settings": self.settings, "memo": self.memo, "logger": self.logger}
        return {**own, **self.indices}


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class ObjectCause:
    """Be anything that happens to an object, or just its being seen.

    ``raw`` is the object as it was received; ``body`` is the view of it that handlers get: it is moved on when
    handlers of this cause store something, so that later handlers see it. ``indices`` are arguments, too, and hide
    those of the same name.
    """

    resource: Resource
    raw: Mapping[str, Any]
    get_memo: Callable[[], Any]
    logger: Logger
    indices: Indices = dataclasses.field(default_factory=lambda: _NO_INDICES)
    body: Body = dataclasses.field(init=False)
    _kwargs: dict[str, Any] | None = dataclasses.field(init=False, default=None)

    def __post_init__(self) -> None:
        self.body = Body(self.raw)

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Give the keyword arguments that every handler and filter of this cause may take."""
        if self._kwargs is None:
            self._kwargs = {**self._make_kwargs(), **self.indices}
        return self._kwargs

    def kwargs_for(self, handler: ResourceHandler, patch: Patch) -> Mapping[str, Any]:
        """Give the arguments of one handler, with the patch that it fills."""
        return {**self.kwargs, "patch": patch, **self.indices}

    def _make_kwargs(self) -> dict[str, Any]:
        body = self.body
        meta = body.meta
        return {
            "resource": self.resource,
            "patch": Patch(),  # a handler gets one of its own
            "memo": self.get_memo(),
            "logger": self.logger,
            "body": body,
            "spec": body.spec,
            "meta": meta,
            "status": body.status,
            "uid": meta.uid,
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": meta.labels,
            "annotations": meta.annotations,
        }


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class DaemonCause(ObjectCause):
    """Be the existence of an object: what its daemons and timers run for.

    It lasts as long as they do: ``raw`` is always the newest state, and ``body`` shows it together with what they want
    stored and is not yet.
    """


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class EventCause(ObjectCause):
    """Be one event of the watch stream: ``type`` is None for objects that were there already."""

    type: str | None

    def _make_kwargs(self) -> dict[str, Any]:
        # Not super(): a dataclass with slots is another class than the one that the method was written in.
        kwargs = ObjectCause._make_kwargs(self)
        kwargs["type"] = self.type
        kwargs["event"] = {"type": self.type, "object": self.raw}
        return kwargs


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class ChangeCause(ObjectCause):
    """Be a detected change: ``old`` and ``new`` are the object's essences, ``old`` is None at creation."""

    reason: Reason
    initial: bool
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None
    _diff: Diff | None = dataclasses.field(init=False, default=None)

    @property
    def diff(self) -> Diff:
        """Give the differences from ``old`` to ``new``."""
        if self._diff is None:
            self._diff = diff(self.old, self.new)
        return self._diff

    def _make_kwargs(self) -> dict[str, Any]:
        kwargs = ObjectCause._make_kwargs(self)
        kwargs.update(reason=self.reason, old=self.old, new=self.new, diff=self.diff)
        return kwargs

    def narrowed_to(self, field: FieldPath | None) -> ChangeCause:
        """Give the cause as the handlers of a field see it, with the same view of the object."""
        if not field:
            return self
        narrowed = dataclasses.replace(self, old=resolve(self.old or {}, field), new=resolve(self.new or {}, field))
        narrowed.body = self.body
        narrowed._diff = reduce_diff(self.diff, field)
        return narrowed

    def kwargs_for(self, handler: ResourceHandler, patch: Patch) -> Mapping[str, Any]:
        """Give the arguments of one handler: those of a field handler are narrowed to its field."""
        if not handler.field:
            return ObjectCause.kwargs_for(self, handler, patch)
        return {
            **self.kwargs,
            "patch": patch,
            "old": resolve(self.old or {}, handler.field),
            "new": resolve(self.new or {}, handler.field),
            "diff": reduce_diff(self.diff, handler.field),
            **self.indices,
        }


def attempt_kwargs(*, param: Any, retry: int, started: datetime.datetime, now: datetime.datetime) -> dict[str, Any]:
    """Give the keyword arguments that tell of the attempt."""
    return {"param": param, "retry": retry, "started": started, "runtime": now - started}
