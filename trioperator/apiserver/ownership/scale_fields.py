"""Managed fields of the scale subresource: the manager of the number of replicas. Pure.

A ``Scale`` has managed fields only while it is written: the entries of the object that own the replicas are converted
before the write, and converted back afterwards, with the subresource ``scale``. As on the real server, converted
entries lose their times, and updates of objects without any entries are not tracked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .field_sets import FieldSet, Path, contains, difference, insert
from .managed_fields import Entry, Manager, sort_entries

SCALE_VERSION: Final = "autoscaling/v1"
_REPLICAS: Final[Path] = ("f:spec", "f:replicas")


def path_of_replicas(jsonpath: str) -> Path:
    """Return the field path of a simple JSONPath: ``.spec.replicas``."""
    return tuple(f"f:{name}" for name in jsonpath.strip(".").split("."))


def entries_of_scale(entries: Iterable[Entry], path: Path) -> list[Entry]:
    """Return the entries of the ``Scale``: those that own the replicas of the object."""
    return [
        {**entry, "apiVersion": SCALE_VERSION, "fieldsV1": _only(_REPLICAS)}
        for entry in _last_by_manager(entries)
        if contains(entry["fieldsV1"], path)
    ]


def entries_of_object(
    entries: Sequence[Entry], scale_entries: Iterable[Entry], path: Path, api_version: str
) -> list[Entry]:
    """Return the entries of the object after a write of its ``Scale``."""
    scaled = {_manager(entry): entry for entry in scale_entries}
    times = {_manager(entry): entry.get("time") for entry in entries}
    result = []
    for entry in _last_by_manager(entries):
        fields = entry["fieldsV1"]
        if contains(fields, path) and scaled.pop(_manager(entry), None) is None:
            fields = difference(fields, _only(path))
        if fields:
            result.append(entry if fields is entry["fieldsV1"] else {**entry, "fieldsV1": fields})
    for manager, entry in scaled.items():
        if contains(entry["fieldsV1"], _REPLICAS):
            result.append(manager._replace(api_version=api_version).entry(_only(path), times.get(manager)))
    return sort_entries(result)


def _last_by_manager(entries: Iterable[Entry]) -> list[Entry]:
    """Return the last entry of each manager."""
    return list({_manager(entry): entry for entry in entries}.values())


def _manager(entry: Entry) -> Manager:
    """Return the manager of the entry, for appliers without the version."""
    version = entry["apiVersion"] if entry["operation"] == "Update" else ""
    return Manager(entry.get("manager", ""), entry["operation"], version, entry.get("subresource", ""))


def _only(path: Path) -> FieldSet:
    return insert({}, path)
