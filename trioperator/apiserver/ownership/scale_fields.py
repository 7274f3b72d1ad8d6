"""Who manages the number of replicas when it is written through the scale subresource. Pure.

A ``Scale`` has entries of its own only while it is written: those of its object whose managers have the replicas go
into them before, and what becomes of them goes back afterwards, as entries with the subresource ``scale``. As on the
real server, the times of entries that come back are lost, and without any entry to begin with, updates are not tracked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .field_sets import FieldSet, Path, contains, difference, insert
from .managed_fields import Entry, Manager, in_order

__all__ = ["SCALE_VERSION", "entries_of_object", "entries_of_scale", "path_of_replicas"]

SCALE_VERSION: Final = "autoscaling/v1"
_REPLICAS: Final[Path] = ("f:spec", "f:replicas")


def path_of_replicas(jsonpath: str) -> Path:
    """Return the path of fields for a simple JSON path: ``.spec.replicas``."""
    return tuple(f"f:{name}" for name in jsonpath.strip(".").split("."))


def entries_of_scale(entries: Iterable[Entry], path: Path) -> list[Entry]:
    """Return the entries of the ``Scale``: those that have the replicas of the object."""
    return [
        {**entry, "apiVersion": SCALE_VERSION, "fieldsV1": _only(_REPLICAS)}
        for entry in _known(entries)
        if contains(entry["fieldsV1"], path)
    ]


def entries_of_object(
    entries: Sequence[Entry], scale_entries: Iterable[Entry], path: Path, api_version: str
) -> list[Entry]:
    """Return the entries of the object after its ``Scale`` was written."""
    scaled = {_manager(entry): entry for entry in scale_entries}
    times = {_manager(entry): entry.get("time") for entry in entries}
    result = []
    for entry in _known(entries):
        fields = entry["fieldsV1"]
        if contains(fields, path) and scaled.pop(_manager(entry), None) is None:
            fields = difference(fields, _only(path))
        if fields:
            result.append(entry if fields is entry["fieldsV1"] else {**entry, "fieldsV1": fields})
    for manager, entry in scaled.items():
        if contains(entry["fieldsV1"], _REPLICAS):
            result.append(manager._replace(api_version=api_version).entry(_only(path), times.get(manager)))
    return in_order(result)


def _known(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries, of those with the same manager only the last one."""
    return list({_manager(entry): entry for entry in entries}.values())


def _manager(entry: Entry) -> Manager:
    """Return the manager of the entry; appliers are the same in all versions."""
    version = entry["apiVersion"] if entry["operation"] == "Update" else ""
    return Manager(entry.get("manager", ""), entry["operation"], version, entry.get("subresource", ""))


def _only(path: Path) -> FieldSet:
    return insert({}, path)
