"""Entries of ``metadata.managedFields``. Pure.

Entries are stored as they are served, and never changed in place.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from .comparison import UNMANAGED, Comparison
from .field_sets import FieldSet, Path, difference, intersection, normalize, path_text, paths, union, union_of

ANCIENT: Final = "ancient-changes"  # owns the fields of merged entries
BEFORE_APPLY: Final = "before-first-apply"  # owns the fields of objects without managers
_UPDATERS_LIMIT: Final = 10

Entry = dict[str, Any]


class Manager(NamedTuple):
    """Field manager: name, operation and version."""

    name: str
    operation: str  # Update or Apply
    api_version: str
    subresource: str = ""

    def owns(self, entry: Entry) -> bool:
        """Return whether the entry belongs to this manager; an applier has one entry for all versions."""
        return bool(
            entry.get("manager") == self.name
            and entry["operation"] == self.operation
            and entry.get("subresource", "") == self.subresource
            and (self.operation == "Apply" or entry["apiVersion"] == self.api_version)
        )

    def entry(self, fields: FieldSet, time: str | None) -> Entry:
        """Return the entry of this manager."""
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
    """Field whose new value differs from the one that its manager has set."""

    entry: Entry
    path: Path

    @property
    def field(self) -> str:
        """The path of the field as formatted in messages."""
        return path_text(self.path)

    @property
    def manager(self) -> str:
        """The manager as formatted in messages."""
        shown = f'"{self.entry.get("manager", "")}"'
        if subresource := self.entry.get("subresource"):
            shown += f' with subresource "{subresource}"'
        return f"{shown} using {self.entry['apiVersion']}" if self.entry["operation"] == "Update" else shown


# -- parsing ------------------------------------------------------------------------------------------------------


def parse_entries(sent: Iterable[Any]) -> list[Entry]:
    """Parse the entries from a client. Raises ValueError if they are invalid."""
    return [_parse_entry(at, entry) for at, entry in enumerate(sent)]


def _parse_entry(at: int, sent: Any) -> Entry:
    if not isinstance(sent, dict) or sent.get("operation") not in ("Apply", "Update"):
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
            raise ValueError("time must be a string")
        datetime.datetime.fromisoformat(time)


# -- writes -------------------------------------------------------------------------------------------------------


def entries_after_update(entries: Sequence[Entry], manager: Manager, comparison: Comparison, time: str) -> list[Entry]:
    """Return the entries after a create, update or patch: changed fields belong to this manager only."""
    changed, removed = comparison.changed, comparison.removed
    if not changed and not removed:
        return list(entries)
    result: list[Entry] = []
    own: FieldSet = changed
    for entry in entries:
        fields = difference(entry["fieldsV1"], removed)
        if changed and manager.owns(entry):
            own = union(fields, changed)
        else:
            _append_reduced(result, entry, difference(fields, changed))
    if changed:
        result.append(manager.entry(own, time))
    return sort_entries(_limit_updates(result))


def entries_after_apply(
    entries: Sequence[Entry], manager: Manager, applied: FieldSet, comparison: Comparison, time: str | None
) -> list[Entry]:
    """Return the entries after an apply: the manager owns the applied fields, shared if the values are unchanged.

    *time* is None if the apply has changed nothing: then the manager's entry keeps its time.
    """
    result: list[Entry] = []
    for entry in entries:
        if manager.owns(entry):
            time = time or entry.get("time")
        else:
            fields = difference(entry["fieldsV1"], comparison.changed)
            _append_reduced(result, entry, difference(fields, comparison.removed))
    own = difference(applied, UNMANAGED)
    if own:
        result.append(manager.entry(own, time))
    return sort_entries(result)


def _append_reduced(result: list[Entry], entry: Entry, fields: FieldSet) -> None:
    if fields is entry["fieldsV1"]:
        result.append(entry)
    elif fields:
        result.append({**entry, "fieldsV1": fields})


def conflicts_with(entries: Iterable[Entry], manager: Manager, comparison: Comparison) -> list[Conflict]:
    """Return the changed fields that belong to other managers."""
    return [
        Conflict(entry, path)
        for entry in entries
        if not manager.owns(entry)
        for path in paths(intersection(entry["fieldsV1"], comparison.changed))
    ]


def equal_except_times(one: Sequence[Entry], other: Sequence[Entry]) -> bool:
    """Return whether the entries are equal except for their times."""
    return len(one) == len(other) and all(
        left is right or {**left, "time": None} == {**right, "time": None}
        for left, right in zip(one, other, strict=True)
    )


# -- order and limit -----------------------------------------------------------------------------------------------


def sort_entries(entries: list[Entry]) -> list[Entry]:
    return entries if len(entries) < 2 else sorted(entries, key=_rank)


def _rank(entry: Entry) -> tuple[str, str, str, str, str]:
    """Return the sort key: appliers first, then by time, as UTC times sort as strings."""
    name, version = entry.get("manager", ""), entry["apiVersion"]
    return entry["operation"], entry.get("time", ""), name, version, entry.get("subresource", "")


def _limit_updates(entries: list[Entry]) -> list[Entry]:
    """Merge the oldest updates of each version until the limit is met."""
    if len(entries) <= _UPDATERS_LIMIT:
        return entries
    updates = [entry for entry in entries if entry["operation"] == "Update"]
    surplus = len(updates) - _UPDATERS_LIMIT
    if surplus <= 0:
        return entries
    buckets: dict[str, list[Entry]] = {}
    merged = set[int]()
    for entry in sorted(updates, key=_rank):
        if surplus <= 0:
            break
        bucket = buckets.setdefault(entry["apiVersion"], [])
        surplus -= bool(bucket)
        bucket.append(entry)
        merged.add(id(entry))
    kept = [entry for entry in entries if id(entry) not in merged]
    return kept + [_merge_entries(version, bucket) for version, bucket in buckets.items()]


def _merge_entries(version: str, entries: list[Entry]) -> Entry:
    """Return one entry for all of these, which are of the same version and sorted by time."""
    if len(entries) == 1:
        return entries[0]
    fields = union_of([entry["fieldsV1"] for entry in entries])
    return Manager(name=ANCIENT, operation="Update", api_version=version).entry(fields, entries[-1].get("time"))
