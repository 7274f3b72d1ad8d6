"""The ledger for people to read: why an object was reconciled, what ran for it, and which requests followed.

It contains names of fields, no values. Anybody who may write the object chooses these names, and those of managers:
their control characters are escaped, as in logs, so that they forge no lines.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import trio

from trioperator._concurrency.clock import wall_now
from trioperator._logs.formats import escape_controls
from trioperator._model.contention import Verdict
from trioperator._model.resource import Resource
from trioperator._runtime.ledger import Ledger
from trioperator._runtime.records import Call, Cause, Change, Page, Record, Request

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A reconcile of an object, or *times* in a row until *last*. ``omitted`` counts what is not on record."""

    time: datetime.datetime
    last: datetime.datetime
    times: int
    milliseconds: int
    causes: tuple[str, ...]
    changes: tuple[Change, ...]
    calls: tuple[Call, ...]
    requests: tuple[str, ...]
    omitted: int

    @property
    def is_idle(self) -> bool:
        """Whether it was a reconcile that found nothing to do."""
        return not (self.calls or self.requests)

    def __str__(self) -> str:
        return "\n".join(list_occurrence(self))


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The history of an object.

    ``writes`` are requests other than GET that have succeeded, of its handlers and of the framework; ``runs`` are
    reconciles in which a handler was called or a request was sent, ``idle`` those that found nothing to do. They are
    counted since the operator began, or since the object was no longer among those that are on record.
    ``contended`` are the fields that others change back, or that are written for nothing; ``occurrences`` are the
    newest ones.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    writes: int = 0
    runs: int = 0
    idle: int = 0
    contended: tuple[str, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()

    def __str__(self) -> str:
        where = f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"
        counts = f"{self.runs} reconciles, {self.idle} with nothing to do, {self.writes} writes"
        return "\n".join([f"{where}: {counts}", *self.contended, *map(str, self.occurrences)])


def build_json(history: History) -> dict[str, Any]:
    """Return a history as JSON, with the lines for people as ``text``."""
    occurrences = [
        {
            **msgspec.structs.asdict(each),
            "changes": list(map(msgspec.structs.asdict, each.changes)),
            "calls": list(map(msgspec.structs.asdict, each.calls)),
        }
        for each in history.occurrences
    ]
    return {**msgspec.structs.asdict(history), "occurrences": occurrences, "text": str(history).splitlines()}


def find_history(ledger: Ledger, name: str, *, kind: str = "", namespace: str = "") -> History | None:
    """Return what is on record of the object of a name, the most recently active one of several."""
    found = None
    for uid, page in ledger.pages():
        resource, place, own = page.subject
        if own == name and namespace in ("", place) and (not kind or matches_kind(resource, kind)):
            found = uid, page
    return None if found is None else describe_history(ledger, *found)


def matches_kind(resource: Resource, text: str) -> bool:
    """Check whether a kind is meant: by its plural, singular, kind or short name, with or without its group."""
    name, _, group = text.partition(".")
    known = {each.lower() for each in (resource.plural, resource.kind, resource.singular, *resource.shortcuts) if each}
    return name.lower() in known and group in ("", resource.group, f"{resource.version}.{resource.group}")


def describe_history(ledger: Ledger, uid: str, page: Page) -> History:
    """Return what is on the page of an object, with wall times."""
    resource, namespace, name = page.subject
    return History(
        kind=f"{resource.plural}.{resource.group}" if resource.group else resource.plural,
        namespace=namespace,
        name=name,
        uid=uid,
        writes=page.writes,
        runs=page.runs,
        idle=page.idle,
        contended=tuple(
            escape_controls(str(each)) for key in (uid, f"{uid}/children") for each in _find_contended(ledger, key)
        ),
        occurrences=tuple(map(_describe, page.records)),
    )


def _find_contended(ledger: Ledger, key: str) -> Iterable[Verdict]:
    return ledger.contended[key][1] if key in ledger.contended else ()


def _describe(record: Record) -> Occurrence:
    now, wall = trio.current_time(), wall_now()
    began = wall - datetime.timedelta(seconds=now - record.began)
    return Occurrence(
        time=began,
        last=wall - datetime.timedelta(seconds=now - record.last) if record.times > 1 else began,
        times=record.times,
        milliseconds=record.milliseconds,
        causes=tuple(map(_name_cause, record.causes)),
        changes=tuple(map(_name_change, record.changes)),
        calls=record.calls,
        requests=tuple(map(_name_request, record.requests)),
        omitted=record.omitted,
    )


def _name_change(change: Change) -> Change:
    manager = change.manager
    return Change(escape_controls(change.field), None if manager is None else escape_controls(manager))


def _name_cause(cause: Cause) -> str:
    return cause.what if cause.detail is None else f"{cause.what} {cause.detail}"


def _name_request(request: Request) -> str:
    """Return the verb, the resource and the status of a request."""
    verb = _VERBS.get(request.method) or ("get" if "/" in request.path else "list")
    return f"{verb} {request.path} {request.status or 'no response'}"


def list_occurrence(occurrence: Occurrence) -> Iterator[str]:
    """Yield the lines about what has happened once: when and why, then what followed."""
    causes = ", ".join(occurrence.causes) or "on its own"
    changes = f": {', '.join(_list_changes(occurrence.changes))}" if occurrence.changes else ""
    often = f" ({occurrence.times} times until {occurrence.last:%H:%M:%S})" if occurrence.times > 1 else ""
    nothing = " - nothing to do" if occurrence.is_idle else ""
    yield f"{occurrence.time:%Y-%m-%d %H:%M:%S}  {causes}{changes}{nothing}{often}"
    for call in occurrence.calls:
        yield f"    {call.handler} {call.result} in {call.milliseconds} ms"
    for request in occurrence.requests:
        yield f"    {request}"
    if occurrence.omitted:
        yield f"    and {occurrence.omitted} more"


def _list_changes(changes: Iterable[Change]) -> Iterator[str]:
    """Yield the fields that have changed, grouped by managers."""
    by_manager: dict[str | None, list[str]] = {}
    for change in changes:
        by_manager.setdefault(change.manager, []).append(change.field)
    for manager, fields in by_manager.items():
        yield f"{', '.join(filter(None, fields))}{'' if manager is None else f' by {manager}'}".strip()
