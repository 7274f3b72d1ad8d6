"""Schedules of reconcile handlers: for each object and handler, why and when it is to be called next. Pure.

Nothing of that is stored: after a restart, each handler is called for each object.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from trioperator._concurrency.backoff import Backoff
from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.handlers.children import Desired
from trioperator._handling.handlers.outcome import Outcome
from trioperator._model.resource import Resource
from trioperator._reconciling.loop_guard import LoopGuard

# Delays after consecutive errors. Some are over at once: a conflict, or a namespace that is being created.
_BACKOFF: Final = Backoff(initial=0.1, maximum=600.0)


# If others repeatedly change or delete a child right after it was applied, it is applied only about once a minute after
# this many times.
_FREE_REPAIRS: Final = 5
_REPAIRS: Final = Backoff(initial=66.0, maximum=66.0, jitter=1 / 11)
# A child that comes back after it was deleted is deleted a few times more: an old replica may still be stopping.
_DELETIONS: Final = Backoff(initial=10.0, maximum=3600.0, factor=4.0)
_MAX_DELETIONS: Final = 4
# Resyncs are earlier by up to this fraction, at random, so that objects that began together spread out.
_SPREAD: Final = 0.1


#: Group, plural, namespace and name of a child.
Place: TypeAlias = tuple[str, str, str, str]


class ChildKey(NamedTuple):
    """One child by its kind and name."""

    resource: Resource
    namespace: str
    name: str

    @property
    def place(self) -> Place:
        """The key of the child, whatever version of its kind it is written in."""
        return self.resource.group, self.resource.plural, self.namespace, self.name

    def __str__(self) -> str:
        kind = self.resource.kind or self.resource.plural
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"


class Applied(NamedTuple):
    """A child as it was applied: digests of what was sent, and of the fields that were the operator's after that."""

    uid: str
    desired: int
    fields: int | None


class Report(msgspec.Struct, frozen=True):
    """Outcome of the last call of a handler: whether its children are applied, and why not.

    ``outlook`` is whether that is all; whether it goes on, by itself or after an error; or only after a change.
    """

    outlook: Literal["done", "progressing", "retrying", "failed"]
    reason: str
    message: str = ""

    @property
    def is_applied(self) -> bool:
        """Whether all children are as the handler has returned them, whether or not they are ready."""
        return self.outlook == "done" or self.reason == "Applied"


class Reported(NamedTuple):
    """The last report: for which generation of the object, and in which version of it that is stored."""

    generation: int | None
    report: Report
    version: int


class DesiredChildren:
    """Children of an object by one handler: those that it desires, and how far they are there.

    ``applied`` are the children as they were applied, by this process; ``desired`` all those that the handler has
    returned last, None if it has not returned yet. Until these are all there, ``kept`` has those before, too, and
    ``settled`` is false. ``missing`` are children that are not there yet, ``unready`` those that are, and are not ready
    as their ``ready=`` says. ``released`` are the places of undesired children that need not wait until those that fail
    are there. ``unclaimed`` are the uids of children that an earlier release has applied. ``blocked`` are namespaces
    and names that others' objects have, ``unserved`` namespaces that the operator does not serve.
    """

    __slots__ = (
        "applied",
        "blocked",
        "desired",
        "kept",
        "missing",
        "released",
        "repairs",
        "settled",
        "unclaimed",
        "unready",
        "unserved",
    )

    def __init__(self) -> None:
        self.applied: dict[ChildKey, Applied] = {}
        self.desired: frozenset[ChildKey] | None = None
        self.kept: frozenset[ChildKey] = frozenset()
        self.released: frozenset[Place] = frozenset()
        self.settled = False
        self.missing: tuple[ChildKey, ...] = ()
        self.unready: tuple[ChildKey, ...] = ()
        self.unclaimed: frozenset[str] | None = None
        self.blocked: set[tuple[str, str]] = set()
        self.unserved: frozenset[str] = frozenset()
        self.repairs = LoopGuard(free=_FREE_REPAIRS, backoff=_REPAIRS)

    def desire(self, children: frozenset[ChildKey]) -> None:
        """Note what the handler has returned: what it returned before is kept until these are there."""
        self.desired = children
        self.kept |= children
        self.settled, self.released = False, frozenset()
        self.applied = {key: applied for key, applied in self.applied.items() if key in children}
        self.repairs.keep(children)
        self.blocked.clear()
        self.unserved = frozenset()

    def settle(self, missing: tuple[ChildKey, ...] = (), *, moving: Collection[ChildKey] = ()) -> None:
        """Note that all desired children are there, but for those that are *missing*.

        Nobody waits for those that are *moving*: other objects have them until they are deleted there, and may wait for
        what this one is about to delete.
        """
        assert self.desired is not None
        self.missing = missing
        self.settled = set(missing) <= set(moving)
        if self.settled:
            self.kept = self.desired

    def release(self, places: frozenset[Place]) -> None:
        """Note undesired children that need not wait until those that fail are there."""
        self.released = places
        self.kept = frozenset(key for key in self.kept if key.place not in places)

    def has_settled_without(self, place: Place) -> bool:
        """Check whether an undesired child is no longer needed by what the handler desires."""
        return self.settled or place in self.released


class HandlerSchedule:
    """When a handler is to be called for an object, and its ``children``. Times are on Trio's clock.

    ``early`` is by how many seconds a call is earlier than its errors alone would have it, as something has triggered
    it; 0 if it is not. ``recheck`` is when children are to be looked at again. ``error`` is the error of the last call.
    ``report`` is what has become of that call; None if that is not known, as it was interrupted, or has said nothing of
    children. ``logged`` is the last error in the log with its time.
    """

    __slots__ = (
        "children",
        "digest",
        "due",
        "early",
        "error",
        "failures",
        "logged",
        "recheck",
        "report",
        "started",
        "triggered",
    )

    def __init__(self) -> None:
        self.children = DesiredChildren()
        self.digest: int | None = None
        self.due: float | None = None
        self.early = 0.0
        self.triggered = True
        self.failures = 0
        self.started: datetime.datetime | None = None
        self.report: Report | None = None
        self.error: BaseException | None = None
        self.logged: tuple[str, float] = ("", 0.0)
        self.recheck: float | None = None

    def is_due(self, digest: int, now: float) -> bool:
        """Check whether to call the handler now, for a state of the object with this digest."""
        return self.triggered or self.digest != digest or (self.due is not None and self.due <= now)

    def wait(self, why: Report | None = None) -> None:
        """Note that the handler cannot be called yet, and why, if that may last: it is due as soon as it can be."""
        self.triggered, self.due = True, None
        if why is not None:
            self.digest, self.report = None, why

    def find_report(self, digest: int) -> Report | None:
        """Return the report for a state of the object with this digest; None if the handler is to be called for it."""
        is_current = self.digest is None or (self.digest == digest and not self.triggered)
        return self.report if is_current else None

    def begin(self, digest: int, now: datetime.datetime, *, at: float = math.inf) -> None:
        """Note that the handler is called: what changes from now on is for the next call. *at* is on Trio's clock."""
        if self.digest != digest:
            self.failures, self.started = 0, None  # errors after a change are counted from zero
        self.early = max(0.0, self.due - at) if self.failures and self.due is not None else 0.0
        self.digest = digest
        self.triggered = False
        self.due = self.recheck = None
        if self.started is None:
            self.started = now

    def end(self, handler: ReconcileHandler, outcome: Outcome, *, now: float) -> None:
        """Note when the handler is due again, by the outcome of its call."""
        if outcome.interrupted:
            self.due = now + self.get_backoff(handler)
        elif outcome.succeeded:
            after = outcome.result.after if isinstance(outcome.result, Desired) else None
            resync = None if handler.resync is None else handler.resync * (1 - _SPREAD * random.random())
            times = [now + seconds for seconds in (after, resync) if seconds is not None]
            times += [] if self.recheck is None else [self.recheck]
            self.succeed(min(times, default=None))
        else:
            self.fail(None if outcome.final else now + outcome.delay)
            if outcome.final and handler.resync is not None:
                self.due = now + handler.resync

    def succeed(self, due: float | None) -> None:
        """Note that a call has succeeded, and when the next one is due if nothing changes."""
        self.failures, self.started, self.due = 0, None, due

    def fail(self, due: float | None) -> None:
        """Note that a call has failed, and when the next one is due; None if only after a change."""
        self.due = due
        if due is None:
            self.failures, self.started = 0, None
        elif not self.early:  # events elsewhere, which may be many at once, are no reason to wait longer
            self.failures += 1

    def get_backoff(self, handler: ReconcileHandler) -> float:
        """Return the delay in seconds after a failure of the call that has begun.

        A failure of a call that was early changes nothing: the next one is due when it was.
        """
        if self.early:
            return self.early
        return _BACKOFF.delay(self.failures + 1) if handler.backoff is None else handler.backoff


class ObjectSchedule:
    """The schedules of all handlers that match an object. What those that have matched desire is kept, too."""

    __slots__ = ("_former", "_handlers", "deletions", "report_at", "reported")

    def __init__(self) -> None:
        self._handlers: dict[ReconcileHandler, HandlerSchedule] = {}
        self._former: dict[ReconcileHandler, frozenset[ChildKey]] = {}
        self.reported: Reported | None = None
        self.report_at: float | None = None  # when what could not be reported is due again
        self.deletions = LoopGuard(free=0, backoff=_DELETIONS, limit=_MAX_DELETIONS)

    def match(self, handlers: Iterable[ReconcileHandler]) -> Mapping[ReconcileHandler, HandlerSchedule]:
        """Return the schedules of the handlers that match now, in their order; forget the schedules of all others."""
        before = self._handlers
        self._handlers = {handler: before.get(handler) or HandlerSchedule() for handler in handlers}
        left = {handler: own for handler, own in before.items() if handler not in self._handlers}
        self._former.update({handler: own.children.kept for handler, own in left.items()})
        self._former = {handler: kept for handler, kept in self._former.items() if handler not in self._handlers}
        return self._handlers

    def __iter__(self) -> Iterator[HandlerSchedule]:
        return iter(self._handlers.values())

    def get(self, handler: ReconcileHandler) -> HandlerSchedule | None:
        """Return the schedule of a handler; None if it does not match."""
        return self._handlers.get(handler)

    @property
    def handlers(self) -> tuple[ReconcileHandler, ...]:
        """The handlers that match."""
        return tuple(self._handlers)

    def trigger(self, handlers: Iterable[ReconcileHandler]) -> bool:
        """Let the *handlers* that match be due. Returns whether any does."""
        return _trigger([self._handlers[handler] for handler in handlers if handler in self._handlers])

    def unblock(self, namespace: str, name: str) -> bool:
        """Let the handlers be due for which another's object of this name was in the way. Returns whether any is."""
        return _trigger([schedule for schedule in self if (namespace, name) in schedule.children.blocked])

    def retry_unserved(self) -> bool:
        """Let the handlers be due that have children in namespaces that were not served. Returns whether any is."""
        return _trigger([schedule for schedule in self if schedule.children.unserved])

    def expedite(self) -> None:
        """Let be due now what is due later."""
        for schedule in self:
            schedule.triggered = schedule.triggered or schedule.due is not None

    @property
    def due(self) -> float | None:
        """When the next handler or the report is due, if nothing changes."""
        times = (*(schedule.due for schedule in self), self.report_at)
        return min((due for due in times if due is not None), default=None)

    def has_reported(self, generation: int | None, report: Report, *, version: int) -> bool:
        """Check whether this was reported last, and the object has not gone back since, as by a restore of etcd.

        Until its new version is known, it is -1.
        """
        last = self.reported
        return last is not None and last[:2] == (generation, report) and 0 <= last.version <= version

    def postpone_report(self, until: float) -> None:
        """Note that nothing could be reported, and when it is due again."""
        self.reported, self.report_at = None, until

    @property
    def has_failed(self) -> bool:
        """Whether a handler has failed, and is going to be called again for that."""
        return any(schedule.failures for schedule in self)

    def list_failed(self) -> Iterator[tuple[ReconcileHandler, HandlerSchedule]]:
        """Yield the handlers that have failed, and are going to be called again for that."""
        return ((handler, schedule) for handler, schedule in self._handlers.items() if schedule.failures)

    def find_kept(self) -> frozenset[ChildKey]:
        """Return the children that any handler desires, or has desired when it matched."""
        return frozenset().union(*(schedule.children.kept for schedule in self), *self._former.values())


def _trigger(schedules: Collection[HandlerSchedule]) -> bool:
    for schedule in schedules:
        schedule.triggered = True
    return bool(schedules)
