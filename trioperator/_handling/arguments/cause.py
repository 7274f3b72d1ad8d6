"""Causes: why handlers are called, with the keyword arguments that they get.

Detection is pure. The keyword arguments of a cause are computed on first use, and once.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from trioperator._handling.arguments.indexing import Indices
from trioperator._handling.handlers.handler import Activity, Reason, ResourceHandler
from trioperator._model.body import Annotations, Body, Labels, Meta, Spec, Status
from trioperator._model.diff import Diff, diff, reduce_diff
from trioperator._model.fields import FieldPath, resolve
from trioperator._model.jsontypes import copy_json
from trioperator._model.lazy_object import LazyObject, decode_json, rest_huge
from trioperator._model.patch import Patch
from trioperator._model.resource import Resource

if TYPE_CHECKING:
    from trioperator._logs import Logger
    from trioperator.settings import OperatorSettings

_COMMON_KWARGS = frozenset({"logger", "memo"})
_OBJECT_KWARGS = frozenset(
    "resource patch body spec meta status uid name namespace labels annotations".split()  # noqa: SIM905 -- one line reads better
)
_NO_INDICES: Indices = types.MappingProxyType({})
_NO_BODY = Body({})
ATTEMPT_KWARGS = frozenset({"client", "param", "retry", "started", "runtime"})  # for handlers, not for their filters
ACTIVITY_KWARGS = ATTEMPT_KWARGS | _COMMON_KWARGS | {"activity", "settings"}
INDEX_KWARGS = ATTEMPT_KWARGS | _COMMON_KWARGS | _OBJECT_KWARGS
DAEMON_KWARGS = ATTEMPT_KWARGS | _COMMON_KWARGS | _OBJECT_KWARGS | {"stopped"}
EVENT_KWARGS = ATTEMPT_KWARGS | _COMMON_KWARGS | _OBJECT_KWARGS | {"type", "event"}
CHANGE_KWARGS = ATTEMPT_KWARGS | _COMMON_KWARGS | _OBJECT_KWARGS | {"reason", "diff", "old", "new"}


def detect_reason(body: Mapping[str, Any], *, finalized: bool, handled: bool, changed: bool, initial: bool) -> Reason:
    """Return the reason to handle an object that exists.

    *finalized*: the object has the operator's finalizer. *handled*: it has a last-handled configuration. *changed*:
    that differs from the current one. *initial*: the object existed before the operator started, and was not handled
    since.
    """
    if (body.get("metadata") or {}).get("deletionTimestamp"):
        return Reason.DELETE if finalized else Reason.FREE
    if not handled:
        return Reason.CREATE
    if changed:
        return Reason.UPDATE
    return Reason.RESUME if initial else Reason.NOOP


class ActivityCause(msgspec.Struct, kw_only=True, eq=False):
    """Start or end of the operator, or a probe."""

    activity: Activity
    settings: OperatorSettings
    memo: Any
    logger: Logger
    indices: Indices = _NO_INDICES

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Keyword arguments for all handlers of this cause."""
        own = {"activity": self.activity, "settings": self.settings, "memo": self.memo, "logger": self.logger}
        return {**own, **self.indices}


class ObjectCause(msgspec.Struct, kw_only=True, eq=False):
    """Cause that concerns one object.

    ``raw`` is the object as received. ``body`` is the view of it that handlers get, who cannot change ``raw`` through
    it, nor through anything else that they get; it also shows what earlier handlers of this cause have put into their
    patches. ``indices`` are keyword arguments too, and take precedence over others.
    """

    resource: Resource
    raw: Mapping[str, Any]
    get_memo: Callable[[], Any]
    logger: Logger
    indices: Indices = _NO_INDICES
    body: Body = _NO_BODY  # this one and the next: derived
    _kwargs: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.body = Body(self.raw, True)

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Keyword arguments for all handlers and filters of this cause."""
        if self._kwargs is None:
            self._kwargs = self._make_kwargs()
            self._kwargs.update(self.indices)
        return self._kwargs

    def kwargs_for(self, handler: ResourceHandler, patch: Patch) -> Mapping[str, Any]:
        """Return the keyword arguments of one handler, with its own patch."""
        return {**self.kwargs, "patch": patch, **self.indices}

    def _make_kwargs(self) -> dict[str, Any]:
        body, metadata = self.body, self.body._raw.get("metadata") or {}
        return {
            "resource": self.resource,
            "patch": Patch(),  # for filters; each handler gets its own
            "memo": self.get_memo(),
            "logger": self.logger,
            "body": body,
            "spec": Spec(body),
            "meta": Meta(body),
            "status": Status(body),
            "uid": metadata.get("uid"),
            "name": metadata.get("name"),
            "namespace": metadata.get("namespace"),
            "labels": Labels(body),
            "annotations": Annotations(body),
        }


class DaemonCause(ObjectCause, kw_only=True, eq=False):
    """Cause of an object's daemons and timers, for as long as any of them runs.

    ``raw`` is always the newest state; ``body`` shows it with the pending changes of the daemons and timers applied.
    """


class EventCause(ObjectCause, kw_only=True, eq=False):
    """One watch event. ``type`` is None for objects from the initial list. Handlers get ``raw`` itself in ``event``."""

    type: str | None

    def _make_kwargs(self) -> dict[str, Any]:
        kwargs = super()._make_kwargs()
        kwargs["type"] = self.type
        kwargs["event"] = {"type": self.type, "object": self.raw}
        return kwargs


class ChangeCause(ObjectCause, kw_only=True, eq=False):
    """Detected change of an object. ``old`` and ``new`` are its essences; ``old`` is None at creation.

    ``encoded`` is ``new`` as JSON, if that is known: whoever gets a copy gets what is decoded from it.
    Where these are large, what is made of them is forgotten, and made again, when whoever uses it waits.
    """

    reason: Reason
    initial: bool
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None
    encoded: bytes | None = None
    _diff: Diff | None = None
    _copies: tuple[Any, Any, Diff] | None = None

    @property
    def diff(self) -> Diff:
        """Differences from ``old`` to ``new``."""
        found = self._diff
        if found is None:
            found = self._diff = diff(self.old, self.new)
            self._forget_soon()
        return found

    def _make_kwargs(self) -> dict[str, Any]:
        kwargs = super()._make_kwargs()
        old, new, difference = self.given()
        kwargs.update(reason=self.reason, old=old, new=new, diff=difference)
        return kwargs

    def given(self) -> tuple[Any, Any, Diff]:
        """Return what handlers get of the change: copies of ``old`` and ``new``, and their differences."""
        found = self._copies
        if found is None:
            new = self._copy_new()
            old = new if self.old is self.new else _copy(self.old)
            found = self._copies = old, new, diff(old, new)
            self._forget_soon()
        return found

    def _copy_new(self) -> Any:
        return _copy(self.new) if self.encoded is None or type(self.new) is not dict else decode_json(self.encoded)

    def _forget_soon(self) -> None:
        if type(self.new) is LazyObject:
            self.new.call_soon(self._forget)

    def rest(self) -> None:
        """Forget what a handler got of a huge object: others may get theirs before anybody waits."""
        if type(self.new) is LazyObject and self.new.is_huge:
            self._forget()
            rest_huge(self.body._own)

    def _forget(self) -> None:
        self._kwargs = self._diff = self._copies = None

    def narrowed_to(self, field: FieldPath | None) -> ChangeCause:
        """Return the cause with ``old``, ``new`` and ``diff`` reduced to a field; ``body`` stays the same."""
        if not field:
            return self
        change = reduce_diff(self.diff, field)
        old, new = resolve(self.old or {}, field), resolve(self.new or {}, field)
        narrowed = msgspec.structs.replace(
            self, old=old, new=new, encoded=None, _diff=change, _copies=None, _kwargs=None
        )
        narrowed.body = self.body
        return narrowed

    def kwargs_for(self, handler: ResourceHandler, patch: Patch) -> Mapping[str, Any]:
        """Return the keyword arguments of one handler, reduced to its field if it has one."""
        if not handler.field:
            return super().kwargs_for(handler, patch)
        old, new, difference = self.given()
        return {
            **self.kwargs,
            "patch": patch,
            "old": resolve(old or {}, handler.field),
            "new": resolve(new or {}, handler.field),
            "diff": reduce_diff(difference, handler.field),
            **self.indices,
        }


def _copy(essence: Mapping[str, Any] | None) -> Any:
    """Return a copy of an essence for handlers. A huge one is decoded on first access."""
    return essence.copy() if type(essence) is LazyObject and essence.is_huge else copy_json(essence)
