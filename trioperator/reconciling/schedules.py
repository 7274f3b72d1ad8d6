"""Schedules of reconcile handlers: for each object and handler, why and when it is to be called next. Pure.

Nothing of that is stored: after a restart, each handler is called for each object.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from trioperator.backoff import Backoff
from trioperator.handling.reconciling import ReconcileHandler
from trioperator.model.resource import Resource

__all__ = ["Applied", "ChildKey", "HandlerSchedule", "ObjectSchedule"]

# After errors in a row. The first ones are often over at once: a conflict, a namespace that is being created.
_BACKOFF: Final = Backoff(initial=0.1, maximum=600.0)


class ChildKey(NamedTuple):
    """One child by its kind and name."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        kind = self.resource.kind or self.resource.plural
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"


class Applied(NamedTuple):
    """A child as it was applied: digests of what was sent, and of the fields that were the operator's after that."""

    uid: str
    desired: int
    fields: int | None


class HandlerSchedule:
    """When a handler is to be called for an object. Times are on Trio's clock.

    ``applied`` are the children as they were applied, by this process; ``desired`` all those that the handler has
    returned last, None if it has not returned yet. ``blocked`` are namespaces and names that others' objects have.
    """

    __slots__ = ("applied", "blocked", "desired", "digest", "due", "failures", "started", "triggered")

    def __init__(self) -> None:
        self.digest: int | None = None
        self.due: float | None = None
        self.triggered = True
        self.failures = 0
        self.started: datetime.datetime | None = None
        self.applied: dict[ChildKey, Applied] = {}
        self.desired: frozenset[ChildKey] | None = None
        self.blocked: set[tuple[str, str]] = set()

    def is_due(self, digest: int, now: float) -> bool:
        """Check whether to call the handler now, for a state of the object with this digest."""
        return self.triggered or self.digest != digest or (self.due is not None and self.due <= now)

    def wait(self) -> None:
        """Note that the handler cannot be called yet: it is due as soon as it can be."""
        self.triggered, self.due = True, None

    def begin(self, digest: int, now: datetime.datetime) -> None:
        """Note that the handler is called: what changes from now on is for the next call."""
        if self.digest != digest:
            self.failures, self.started = 0, None  # errors after a change are counted anew
        self.digest = digest
        self.triggered = False
        self.due = None
        if self.started is None:
            self.started = now

    def succeed(self, due: float | None) -> None:
        """Note that a call has succeeded, and when the next one is due if nothing changes."""
        self.failures, self.started, self.due = 0, None, due

    def fail(self, due: float | None) -> None:
        """Note that a call has failed, and when the next one is due; None if only after a change."""
        self.due = due
        if due is None:
            self.failures, self.started = 0, None
        else:
            self.failures += 1

    def get_backoff(self, handler: ReconcileHandler) -> float:
        """Return the delay in seconds after a failure of the call that has begun."""
        return _BACKOFF.delay(self.failures + 1) if handler.backoff is None else handler.backoff


class ObjectSchedule:
    """The schedules of all handlers that match an object."""

    __slots__ = ("_handlers",)

    def __init__(self) -> None:
        self._handlers: dict[ReconcileHandler, HandlerSchedule] = {}

    def match(self, handlers: Iterable[ReconcileHandler]) -> Mapping[ReconcileHandler, HandlerSchedule]:
        """Return the schedules of the handlers that match now, in their order; forget those of all others."""
        self._handlers = {handler: self._handlers.get(handler) or HandlerSchedule() for handler in handlers}
        return self._handlers

    def __iter__(self) -> Iterator[HandlerSchedule]:
        return iter(self._handlers.values())

    def trigger(self, handlers: Iterable[ReconcileHandler]) -> bool:
        """Let those of *handlers* be due that match. Returns whether any does."""
        found = [self._handlers[handler] for handler in handlers if handler in self._handlers]
        for schedule in found:
            schedule.triggered = True
        return bool(found)

    def unblock(self, namespace: str, name: str) -> bool:
        """Let the handlers be due for which another's object of this name was in the way. Returns whether any is."""
        found = [schedule for schedule in self if (namespace, name) in schedule.blocked]
        for schedule in found:
            schedule.triggered = True
        return bool(found)

    def expedite(self) -> None:
        """Let be due now what is due later."""
        for schedule in self:
            schedule.triggered = schedule.triggered or schedule.due is not None

    @property
    def due(self) -> float | None:
        """When the next handler is due, if nothing changes."""
        return min((schedule.due for schedule in self if schedule.due is not None), default=None)

    @property
    def has_failed(self) -> bool:
        """Whether a handler has failed, and is going to be called again for that."""
        return any(schedule.failures for schedule in self)

    def find_kept(self) -> frozenset[ChildKey] | None:
        """Return the children that any handler desires; None while that is not known of all of them."""
        kept: set[ChildKey] = set()
        for schedule in self:
            if schedule.desired is None:
                return None
            kept |= schedule.desired
        return frozenset(kept)
