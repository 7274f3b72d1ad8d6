"""Who manages which fields of an object: the entries of ``metadata.managedFields``. Pure.

An entry is kept as it is served. Entries are never changed: a write makes others, and shares what it leaves alone.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from .comparison import OWNERLESS, Comparison
from .field_sets import FieldSet, Path, difference, intersection, normalize, path_text, paths, union

__all__ = [
    "ANCIENT",
    "BEFORE_APPLY",
    "Conflict",
    "Entry",
    "Manager",
    "conflicts_with",
    "parse_entries",
    "same_but_for_times",
    "take_by_apply",
    "take_by_update",
]

ANCIENT: Final = "ancient-changes"  # has what too many managers had
BEFORE_APPLY: Final = "before-first-apply"  # has what nobody was noted for
_UPDATERS_LIMIT: Final = 10

Entry = dict[str, Any]


class Manager(NamedTuple):
    """Who writes, how, and in which version."""

    name: str
    operation: str  # Update or Apply
    api_version: str
    subresource: str = ""

    def has(self, entry: Entry) -> bool:
        """Return whether the entry is this manager's: an applier has one for all versions."""
        return bool(
            entry.get("manager") == self.name
            and entry["operation"] == self.operation
            and entry.get("subresource", "") == self.subresource
            and (self.operation == "Apply" or entry["apiVersion"] == self.api_version)
        )

    def entry(self, fields: FieldSet, time: str | None) -> Entry:
        """Make the manager's entry."""
        entry: Entry = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
        if time is None:
            del entry["time"]
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


@dataclasses.dataclass(frozen=True, slots=True)
class Conflict:
    """A field that somebody wants to set to another value than its manager has set it to."""

    entry: Entry
    path: Path

    @property
    def field(self) -> str:
        """Return the path of the field as messages show it."""
        return path_text(self.path)

    @property
    def manager(self) -> str:
        """Return the manager as messages show it."""
        shown = f'"{self.entry.get("manager", "")}"'
        if subresource := self.entry.get("subresource"):
            shown += f' with subresource "{subresource}"'
        return f"{shown} using {self.entry['apiVersion']}" if self.entry["operation"] == "Update" else shown


# -- what clients send ---------------------------------------------------------------------------------------------


def parse_entries(sent: Iterable[Any]) -> list[Entry]:
    """Bring the entries that a client has sent into the form of entries; raise ValueError if they make no sense."""
    return [_parse_entry(at, entry) for at, entry in enumerate(sent)]


def _parse_entry(at: int, sent: Any) -> Entry:
    if not isinstance(sent, dict) or sent.get("operation") not in {"Apply", "Update"}:
        raise ValueError("operation must be `Apply` or `Update`")
    if not sent.get("apiVersion"):
        raise ValueError("apiVersion must not be empty")
    if sent.get("fieldsType") != "FieldsV1":
        kind = sent.get("fieldsType")
        raise ValueError(
            f'invalid fieldsType "{kind}" in managed fields entry {at}'
            if kind
            else f"missing fieldsType in managed fields entry {at}"
        )
    _check_time(sent.get("time"))
    manager = Manager(
        name=str(sent.get("manager") or ""),
        operation=sent["operation"],
        api_version=str(sent["apiVersion"]),
        subresource=str(sent.get("subresource") or ""),
    )
    return manager.entry(normalize(sent.get("fieldsV1") or {}), sent.get("time"))


def _check_time(time: Any) -> None:
    if time is not None:
        if not isinstance(time, str):
            raise ValueError("time must be a text")
        datetime.datetime.fromisoformat(time)


# -- what writes do ------------------------------------------------------------------------------------------------


def take_by_update(entries: Sequence[Entry], manager: Manager, comparison: Comparison, time: str) -> list[Entry]:
    """Return the entries after a create, update or patch: what was changed is the manager's alone."""
    changed, removed = comparison.changed, comparison.removed
    if not changed and not removed:
        return list(entries)
    result: list[Entry] = []
    own: FieldSet = changed
    for entry in entries:
        fields = difference(entry["fieldsV1"], removed)
        if changed and manager.has(entry):
            own = union(fields, changed)
        else:
            _add_lessened(result, entry, difference(fields, changed))
    if changed:
        result.append(manager.entry(own, time))
    return in_order(_capped(result))


def take_by_apply(
    entries: Sequence[Entry], manager: Manager, wanted: FieldSet, comparison: Comparison, time: str | None
) -> list[Entry]:
    """Return the entries after an apply: the manager has what it wants, beside others where the values are the same.

    *time* is None where the apply has changed nothing: then the manager's entry keeps its time.
    """
    result: list[Entry] = []
    for entry in entries:
        if manager.has(entry):
            time = time or entry.get("time")
        else:
            fields = difference(entry["fieldsV1"], comparison.changed)
            _add_lessened(result, entry, difference(fields, comparison.removed))
    own = difference(wanted, OWNERLESS)
    if own:
        result.append(manager.entry(own, time))
    return in_order(result)


def _add_lessened(result: list[Entry], entry: Entry, fields: FieldSet) -> None:
    if fields is entry["fieldsV1"]:
        result.append(entry)
    elif fields:
        result.append({**entry, "fieldsV1": fields})


def conflicts_with(entries: Iterable[Entry], manager: Manager, comparison: Comparison) -> list[Conflict]:
    """Return what the changes would take from other managers."""
    return [
        Conflict(entry, path)
        for entry in entries
        if not manager.has(entry)
        for path in paths(intersection(entry["fieldsV1"], comparison.changed))
    ]


def same_but_for_times(one: Sequence[Entry], other: Sequence[Entry]) -> bool:
    """Return whether the entries differ in nothing but their times."""
    return len(one) == len(other) and all(
        left is right or {**left, "time": None} == {**right, "time": None}
        for left, right in zip(one, other, strict=True)
    )


# -- order and number ----------------------------------------------------------------------------------------------


def in_order(entries: list[Entry]) -> list[Entry]:
    return entries if len(entries) < 2 else sorted(entries, key=_rank)


def _rank(entry: Entry) -> tuple[str, str, str, str, str]:
    """Return the sorting key: appliers first, then by time; the texts of times in UTC sort as the times do."""
    name, version = entry.get("manager", ""), entry["apiVersion"]
    return entry["operation"], entry.get("time", ""), name, version, entry.get("subresource", "")


def _capped(entries: list[Entry]) -> list[Entry]:
    """Return the entries with the oldest updates put together, for each version, until there are few enough."""
    if len(entries) <= _UPDATERS_LIMIT:
        return entries
    updates = [entry for entry in entries if entry["operation"] == "Update"]
    surplus = len(updates) - _UPDATERS_LIMIT
    if surplus <= 0:
        return entries
    buckets: dict[str, Entry] = {}
    gone: list[Entry] = []
    for entry in sorted(updates, key=_rank):
        if surplus <= 0:
            break
        version = entry["apiVersion"]
        if version in buckets:
            fields = union(buckets[version]["fieldsV1"], entry["fieldsV1"])
            ancient = Manager(name=ANCIENT, operation="Update", api_version=version)
            buckets[version] = ancient.entry(fields, entry.get("time"))
            surplus -= 1
        else:
            buckets[version] = entry
        gone.append(entry)
    kept = [entry for entry in entries if not any(entry is other for other in gone)]
    return kept + list(buckets.values())
