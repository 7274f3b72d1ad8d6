"""From outcomes to what is remembered: the state of each handler of an unfinished cause. Pure."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from trioperator.handling.handler import ChangeHandler, Reason
from trioperator.handling.outcome import Outcome, describe
from trioperator.handling.progress import ProgressRecord

__all__ = ["HandlerState", "add_seconds", "apply_outcome", "build_result_patch", "states_for_cause"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HandlerState:
    """Tell how far one handler has come with a cause.

    ``retries`` counts the attempts made; a handler that waits is due at ``delayed``; ``subrefs`` are the ids of all
    its sub-handlers, and of theirs.
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

    @property
    def finished(self) -> bool:
        """Tell whether there will be no other attempt."""
        return self.success or self.failure

    def is_due(self, now: datetime.datetime) -> bool:
        """Tell whether an attempt may be made at the time *now*."""
        return not self.finished and (self.delayed is None or self.delayed <= now)

    def seconds_until_due(self, now: datetime.datetime) -> float:
        """Tell for how many seconds from *now* on the next attempt has to wait."""
        return 0.0 if self.delayed is None else max(0.0, (self.delayed - now).total_seconds())

    def to_record(self) -> ProgressRecord:
        """Make the record that is stored, in Kopf's format."""
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
        }

    @classmethod
    def from_record(cls, record: ProgressRecord, *, now: datetime.datetime) -> HandlerState:
        """Read a stored record; what is unreadable in it counts as absent."""
        retries, purpose, message = record.get("retries"), record.get("purpose"), record.get("message")
        return cls(
            started=_parse_time(record.get("started")) or now,
            stopped=_parse_time(record.get("stopped")),
            delayed=_parse_time(record.get("delayed")),
            purpose=purpose if isinstance(purpose, str) else None,
            retries=retries if isinstance(retries, int) and not isinstance(retries, bool) else 0,
            success=record.get("success") is True,
            failure=record.get("failure") is True,
            message=message if isinstance(message, str) else None,
            subrefs=tuple(sorted({ref for ref in record.get("subrefs") or () if isinstance(ref, str)})),
        )

    def with_subrefs(self, ids: Iterable[str]) -> HandlerState:
        """Take in the ids of sub-handlers."""
        subrefs = tuple(sorted({*self.subrefs, *ids}))
        return self if subrefs == self.subrefs else dataclasses.replace(self, subrefs=subrefs)


def apply_outcome(state: HandlerState, outcome: Outcome, *, now: datetime.datetime) -> HandlerState:
    """Move the state of a handler on by one attempt."""
    message = None
    if outcome.error is not None:
        message = describe(outcome.error)[:1024]
    return dataclasses.replace(
        state,
        retries=state.retries + (not outcome.awaits_subhandlers),
        stopped=now if outcome.final else None,
        delayed=None if outcome.final else add_seconds(now, outcome.delay),
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
    """Give the states with which *handlers* go into a cause.

    What an unfinished cause has left behind is taken over: an unfinished handler goes on with its retries, at once;
    one that has ended for another reason begins anew, but for a resuming one, which runs once.
    """
    states: dict[str, HandlerState] = {}
    for handler in handlers:
        state = stored.get(handler.id)
        if state is None:
            state = HandlerState(started=now, purpose=reason.value)
        elif state.purpose not in (None, reason.value):
            if not state.finished:
                state = dataclasses.replace(state, purpose=reason.value, delayed=None)
            elif not handler.initial:
                state = HandlerState(started=now, purpose=reason.value, subrefs=state.subrefs)
        states[handler.id] = state
    return states


def build_result_patch(result: Any, *, handler_id: str) -> dict[str, Any]:
    """Make the merge patch that puts a handler's result into the object's status.

    None is no result. A mapping is merged under the handler's id, anything else is put there.
    """
    if result is None:
        return {}
    value = dict(result) if isinstance(result, Mapping) else result
    return {"status": {handler_id: value}}


def add_seconds(moment: datetime.datetime, seconds: float) -> datetime.datetime:
    """Tell the time that is *seconds* after an aware moment; what is beyond the calendar is its last moment."""
    try:
        return moment + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return datetime.datetime.max.replace(tzinfo=moment.tzinfo)


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
