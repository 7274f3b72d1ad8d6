"""Managers of the fields of an object, by its ``metadata.managedFields``. Pure.

The server records for each manager which fields it has set, with the time of its last change, in whole seconds. A field
that is changed belongs to whoever has changed it; one that is removed belongs to nobody. So the manager of a removal is
only known where it has changed something else, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias

from trioperator._model.diff import Diff, find_differences
from trioperator._model.fields import FieldPath, resolve

Entries: TypeAlias = list[Mapping[str, Any]]

# Fields that the server changes with each write.
_SERVER_FIELDS: Final = frozenset({"managedFields", "resourceVersion", "generation", "selfLink"})


def entries_of(body: Mapping[str, Any]) -> Entries:
    """Return the entries of an object's managers; none where it has no, or no readable ones."""
    found = (body.get("metadata") or {}).get("managedFields")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list | tuple) else []


def _iterate_entries(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from entries_of(body)


def find_changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[FieldPath]:
    """Yield the fields that differ between two states of an object, as :func:`iterate_fields` does."""
    return iterate_fields(find_differences(before, after))


def iterate_fields(differences: Diff) -> Iterator[FieldPath]:
    """Yield the fields that differ between two states of an object, but those that the server changes with each write.

    Lists are fields as a whole. A mapping that is new or gone counts as its fields.
    """
    for item in differences:
        if _is_of_server(item.field):
            continue
        for path in _leaves(item.field, item.old if item.new is None else item.new):
            if not _is_of_server(path):
                yield path


def _is_of_server(path: FieldPath) -> bool:
    return len(path) > 1 and path[0] == "metadata" and path[1] in _SERVER_FIELDS


def _leaves(path: FieldPath, value: Any) -> Iterator[FieldPath]:
    if len(path) < 3 and isinstance(value, Mapping) and value:  # deeper ones are named by where they begin
        for key in value:
            yield from _leaves((*path, key), value[key])
    else:
        yield path


class Attribution:
    """The managers of what differs between two states of an object.

    *own* are names of managers that are not meant unless they are the only ones that can be.
    """

    __slots__ = ("_after", "_known", "_later", "_own")

    def __init__(
        self, before: Mapping[str, Any], after: Mapping[str, Any], *, own: Collection[str] = frozenset()
    ) -> None:
        self._after, self._own = after, own
        self._known = {_key(entry): entry for entry in entries_of(before)}
        later = entries_of(after)
        if self._known:
            later = [entry for entry in later if self._known.get(_key(entry)) != entry]
        self._later = _sort(later, own)

    def find(self, path: FieldPath) -> str | None:
        """Return the manager that has changed a field; None if that is not known."""
        if resolve(self._after, path) is not None:
            return self._find_setter(path)
        # It is removed: who has lost it has no newer time.
        newer = (entry for entry in self._later if _time(entry) > _time(self._known.get(_key(entry), {})))
        return next((_name(entry) for entry in newer if not _follow(entry, path)), None) if self._known else None

    def _find_setter(self, path: FieldPath) -> str | None:
        """Return the manager that has set a field last.

        Who has lost a field to others may be left with an empty ``f:spec``, as if it had that as a whole: then the
        others count, but not the operator itself, which may have undone what that one has done since.
        """
        # In the same second, an entry may stay as it was.
        entries = itertools.chain(self._later, _iterate_entries(self._after))
        found = ((_name(entry), keys) for entry in entries if (keys := _follow(entry, path)))
        first, keys = next(found, (None, 0))
        if keys in (0, len(path)):
            return first
        return next((name for name, keys in found if keys == len(path) and name not in self._own), first)


def find_last_manager(body: Mapping[str, Any]) -> str | None:
    """Return the manager of the last change of an object, to the second; None if that is not known."""
    return next(map(_name, _sort(entries_of(body), ())), None)


def format_field(path: FieldPath) -> str:
    """Return a field for people to read: ``metadata.labels[app.kubernetes.io/name]``."""
    return "".join(f"[{key}]" if "." in key or "/" in key else f".{key}" for key in path).removeprefix(".")


def _sort(entries: Entries, own: Collection[str]) -> Entries:
    """Return the entries, the newest first; of several in the same second, others' first."""
    if len(entries) < 2:
        return entries
    return sorted(entries, key=lambda entry: (_time(entry), entry.get("manager") not in own), reverse=True)


def _name(entry: Mapping[str, Any]) -> str | None:
    manager = entry.get("manager")
    return manager if isinstance(manager, str) and manager else None


def _key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    get = entry.get
    return str(get("manager")), str(get("operation")), str(get("apiVersion")), str(get("subresource"))


def _time(entry: Mapping[str, Any]) -> str:
    return str(entry.get("time") or "")


def _follow(entry: Mapping[str, Any], path: FieldPath) -> int:
    """Return how many keys of a field an entry names: all, those of what it is a part of as a whole, or 0."""
    fields = entry.get("fieldsV1")
    for number, key in enumerate(path):
        if not isinstance(fields, Mapping) or f"f:{key}" not in fields:
            return 0
        fields = fields[f"f:{key}"]
        if not fields:
            return number + 1
    return len(path)
