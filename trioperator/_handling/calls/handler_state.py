"""States of handlers: the progress of each handler of a cause, computed from the outcomes of its attempts. Pure."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from trioperator._handling.handlers.handler import ChangeHandler, Reason
from trioperator._handling.handlers.outcome import Outcome, describe
from trioperator._handling.storages.progress import ProgressRecord

#: Limit of the sub-handlers in a stored record, more than fit into annotations. Each of them is looked up, and users
#: who may write to the status of objects could list 100,000.
MAX_SUBREFS: Final = 2000
#: Limit of the characters of their ids, by which the names of their annotations are cached.
MAX_ID: Final = 1024


class HandlerState(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of one handler with a cause. Its times are steady in memory, and wall times in stored records.

    ``retries`` is the number of attempts made. ``delayed`` is when the next attempt is due, None if it is due now;
    ``attempted`` is when the last one ended, if another one follows.
    ``subrefs`` are the ids of all sub-handlers, nested ones included.
    """

    started: datetime.datetime
    purpose: str | None = None
    stopped: datetime.datetime | None = None
    delayed: datetime.datetime | None = None
    retries: int = 0
    success: bool = False
    failure: bool = False
    message: str | None = None
    subrefs: tuple[str, ...] = ()
    attempted: datetime.datetime | None = None

    @property
    def finished(self) -> bool:
        """Whether the handler has succeeded or failed, so that no further attempt is made."""
        return self.success or self.failure

    def is_due(self, now: datetime.datetime) -> bool:
        """Return whether the next attempt is due at the time *now*."""
        return not self.finished and (self.delayed is None or self.delayed <= now)

    def seconds_until_due(self, now: datetime.datetime) -> float:
        """Return the seconds from *now* until the next attempt is due, 0 if it is overdue."""
        return 0.0 if self.delayed is None else max(0.0, (self.delayed - now).total_seconds())

    def to_record(self) -> ProgressRecord:
        """Return the record to be stored, in Kopf's format, with ``attempted`` in addition."""
        return {
            "started": _format_time(self.started),
            "stopped": _format_time(self.stopped),
            "delayed": _format_time(self.delayed),
            "purpose": self.purpose,
            "retries": self.retries,
            "success": self.success,
            "failure": self.failure,
            "message": self.message,
            "subrefs": list(self.subrefs) or None,
            "attempted": _format_time(self.attempted),
        }

    @classmethod
    def from_record(cls, record: ProgressRecord, *, now: datetime.datetime) -> HandlerState:
        """Parse a stored record. Invalid fields count as absent, and so do sub-handlers beyond the limits.

        If what has happened seems to lie in the future, the wall clock was set back since. All times are moved back by
        as much, so that the next attempt is never due later than after its full delay from *now*.
        """
        retries, purpose, message = record.get("retries"), record.get("purpose"), record.get("message")
        subrefs = itertools.islice(record.get("subrefs") or (), MAX_SUBREFS)
        started, attempted = _parse_time(record.get("started")) or now, _parse_time(record.get("attempted"))
        found = cls(
            started=started,
            stopped=_parse_time(record.get("stopped")),
            delayed=_parse_time(record.get("delayed")),
            purpose=purpose if isinstance(purpose, str) else None,
            retries=retries if isinstance(retries, int) and not isinstance(retries, bool) else 0,
            success=record.get("success") is True,
            failure=record.get("failure") is True,
            message=message if isinstance(message, str) else None,
            subrefs=tuple(sorted({ref for ref in subrefs if isinstance(ref, str) and len(ref) <= MAX_ID})),
            attempted=attempted,
        )
        return found.shift(min(0.0, (now - max(started, attempted or started)).total_seconds()))

    def shift(self, seconds: float) -> HandlerState:
        """Return the state with all times moved by the difference between two clocks, in seconds."""
        if not seconds:
            return self
        times = {name: getattr(self, name) for name in ("started", "stopped", "delayed", "attempted")}
        moved = {name: add_seconds(time, seconds) for name, time in times.items() if time is not None}
        return msgspec.structs.replace(self, **moved)

    def with_subrefs(self, ids: Iterable[str]) -> HandlerState:
        """Return the state with the ids of further sub-handlers."""
        subrefs = tuple(sorted({*self.subrefs, *ids}))
        return self if subrefs == self.subrefs else msgspec.structs.replace(self, subrefs=subrefs)


def apply_outcome(state: HandlerState, outcome: Outcome, *, now: datetime.datetime) -> HandlerState:
    """Return the state of a handler after an attempt with this outcome."""
    message = None
    if outcome.error is not None:
        message = describe(outcome.error)[:1024]
    return msgspec.structs.replace(
        state,
        retries=state.retries + (not outcome.awaits_subhandlers),
        stopped=now if outcome.final else None,
        delayed=None if outcome.final else add_seconds(now, outcome.delay),
        attempted=None if outcome.final else now,
        success=outcome.succeeded,
        failure=outcome.final and not outcome.succeeded,
        message=message,
    )


def states_for_cause(
    handlers: Iterable[ChangeHandler],
    stored: Mapping[str, HandlerState],
    *,
    reason: Reason,
    now: datetime.datetime,
) -> dict[str, HandlerState]:
    """Return the initial states of *handlers* for a cause, continuing the *stored* states of an unfinished cause.

    Unfinished handlers keep their retries, and are due at once if the reason has changed. Handlers that have finished
    for another reason start over, except resuming ones, which run once.
    """
    states: dict[str, HandlerState] = {}
    for handler in handlers:
        state = stored.get(handler.id)
        if state is None:
            state = HandlerState(started=now, purpose=reason.value)
        elif state.purpose not in (None, reason.value):
            if not state.finished:
                state = msgspec.structs.replace(state, purpose=reason.value, delayed=None)
            elif not handler.initial:
                state = HandlerState(started=now, purpose=reason.value, subrefs=state.subrefs)
        states[handler.id] = state
    return states


def build_result_patch(result: Any, *, handler_id: str) -> dict[str, Any]:
    """Return the merge patch that stores a handler's result in the object's status, under the handler's id.

    A mapping is merged into what is there, any other value replaces it. For None the patch is empty.
    """
    if result is None:
        return {}
    value = dict(result) if isinstance(result, Mapping) else result
    return {"status": {handler_id: value}}


def add_seconds(moment: datetime.datetime, seconds: float) -> datetime.datetime:
    """Return *moment* plus *seconds*, or the end of the calendar that this exceeds. *moment* must be aware."""
    try:
        return moment + datetime.timedelta(seconds=seconds)
    except OverflowError:
        limit = datetime.datetime.max if seconds > 0 else datetime.datetime.min
        return limit.replace(tzinfo=moment.tzinfo)


def _format_time(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="microseconds")


def _parse_time(text: object) -> datetime.datetime | None:
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
