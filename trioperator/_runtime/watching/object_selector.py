"""Object selectors: which objects of a kind all who read it require, in terms that the API server can evaluate. Pure.

One that is inferred is never narrower than what is required: the filters of handlers are evaluated in any case, too.
It can be wider, as a label selector is one conjunction: of handlers with different labels it has those that all of them
name. Where that loses conditions, two selections may lose less. Callbacks, annotations and most fields cannot be
evaluated by the server at all.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from trioperator._handling.handlers.filters import ABSENT, PRESENT
from trioperator._handling.handlers.handler import ChangeHandler, ResourceHandler
from trioperator._model.fields import parse_field, resolve

# Limit of the values of a label: more of them make URLs too long.
_MAX_VALUES: Final = 50
# Names and values of labels, and values of fields, that API servers accept: anything else would be an error.
_PART: Final = r"[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_PART}", re.ASCII)
_VALUE: Final = re.compile(rf"(?:{_PART})?", re.ASCII)
_FIELD_VALUE: Final = re.compile(r"[^,=!\\]+")
# Fields by which objects of all kinds can be selected.
_COMMON: Final = frozenset({"metadata.name", "metadata.namespace"})
# Limit of the sets of labels that are divided into two: for more, there are too many ways.
_MAX_SETS: Final = 6


class _Any(msgspec.Struct, frozen=True):
    """A label that exists, with any value."""


class _Absent(msgspec.Struct, frozen=True):
    """A label that does not exist."""


class _OneOf(msgspec.Struct, frozen=True):
    """A label with one of several values."""

    values: frozenset[str]


_Condition = _Any | _Absent | _OneOf


class ObjectSelector(msgspec.Struct, frozen=True):
    """Selection of a kind by the API server: the ``labels`` and ``fields`` of its selectors. Empty, it is all of it.

    ``shards`` is what is selected by the hashes of uids, which never change: no object enters or leaves that.
    """

    labels: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    shards: str = ""

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields or self.shards)

    def __str__(self) -> str:
        return ",".join((*self.labels, *self.fields))

    @property
    def can_be_left(self) -> bool:
        """Whether objects can enter and leave the selection."""
        return bool(self.labels or self.fields)

    def join(self, other: ObjectSelector) -> ObjectSelector:
        """Return the selection of what is in both."""
        shards = self.shards or other.shards
        return ObjectSelector((*self.labels, *other.labels), (*self.fields, *other.fields), shards)

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of lists and watches."""
        texts = {"labelSelector": self.labels, "fieldSelector": self.fields}
        joined = {name: ",".join(selectors) for name, selectors in texts.items() if selectors}
        return {**joined, "shardSelector": self.shards} if self.shards else joined


class Requirement(msgspec.Struct, frozen=True):
    """Requirements of one reader: conditions of labels, and values of fields. Empty, it reads all objects."""

    labels: Mapping[str, _Condition] = {}
    fields: Mapping[str, str] = {}

    @property
    def selector(self) -> ObjectSelector:
        """The selection of what is required."""
        labels = tuple(_write(key, condition) for key, condition in sorted(self.labels.items()))
        return ObjectSelector(labels, tuple(f"{key}={value}" for key, value in sorted(self.fields.items())))

    def is_met(self, body: Mapping[str, Any]) -> bool:
        """Check whether an object has what is required."""
        labels = body.get("metadata", {}).get("labels") or {}
        has_labels = all(_is_met(condition, labels.get(key)) for key, condition in self.labels.items())
        return has_labels and all(
            resolve(body, parse_field(key), None) == wanted for key, wanted in self.fields.items()
        )


#: The selector of a reader of all objects.
EVERYTHING: Final = Requirement()


def require_labels(labels: Iterable[tuple[str, str]]) -> Requirement:
    """Return the requirement of a reader of objects with these labels."""
    return Requirement(dict(_read_labels(dict(labels))))


def require(handler: ResourceHandler, selectable: Iterable[str] = ()) -> Requirement:
    """Return what a handler requires of an object to be called for it, as far as the server can evaluate that."""
    return Requirement(dict(_read_labels(handler.labels or {})), dict(_read_field(handler, selectable)))


def unite(requirements: Iterable[Requirement]) -> Requirement:
    """Return the narrowest requirement that all objects meet which any of the readers requires; empty without any."""
    first, *others = (*requirements,) or (EVERYTHING,)
    labels, fields = dict(first.labels), dict(first.fields)
    for other in others:
        joined = ((key, _join(labels[key], other.labels[key])) for key in labels.keys() & other.labels.keys())
        labels = {key: condition for key, condition in joined if condition is not None}
        fields = {key: value for key, value in fields.items() if other.fields.get(key) == value}
    return Requirement(labels, fields)


def divide(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """Return two requirements, of which each object meets one that any of the readers requires, if that says more.

    It does if one requirement would lack conditions of readers that these two have. Otherwise nothing is returned.
    """
    sets = _group(requirements)
    if not 2 <= len(sets) <= _MAX_SETS:
        return ()
    whole = unite(itertools.chain(*sets))
    best, least = tuple[Requirement, ...](), _count_lost(sets, whole)
    for chosen in range(1, 2 ** (len(sets) - 1)):
        parts = tuple([group for number, group in enumerate(sets) if chosen >> number & 1 == side] for side in (0, 1))
        united = tuple(unite(itertools.chain(*part)) for part in parts)
        lost = sum(map(_count_lost, parts, united))
        if lost < least and all(one.selector and one != whole for one in united):
            best, least = united, lost
    return best


def _group(requirements: Iterable[Requirement]) -> list[list[Requirement]]:
    """Return the requirements in groups: of one name the same labels, and the same values of fields."""
    groups: dict[frozenset[tuple[str, object]], list[Requirement]] = {}
    for each in requirements:
        labels = ((key, isinstance(condition, _Absent)) for key, condition in each.labels.items())
        groups.setdefault(frozenset((*labels, *each.fields.items())), []).append(each)
    return list(groups.values())


def _count_lost(groups: Collection[Collection[Requirement]], united: Requirement) -> int:
    """Return how many conditions of readers are not conditions of all of them."""
    return sum(
        len(each.labels.keys() - united.labels.keys()) + len(each.fields.keys() - united.fields.keys())
        for group in groups
        for each in group
    )


def _read_labels(labels: Mapping[str, Any]) -> Iterator[tuple[str, _Condition]]:
    for key, wanted in labels.items():
        if not (isinstance(key, str) and _KEY.fullmatch(key)):
            continue
        if wanted is PRESENT:
            yield key, _Any()
        elif wanted is ABSENT or wanted is None:
            yield key, _Absent()
        elif isinstance(wanted, str) and _VALUE.fullmatch(wanted):
            yield key, _OneOf(frozenset({wanted}))


def _read_field(handler: ResourceHandler, selectable: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the field that a handler requires to have a value.

    The requirements of a handler of changes may hold for the object before a change, or for its stored configuration.
    """
    field, wanted = ".".join(handler.field or ()), handler.value
    if not isinstance(wanted, str) or not _FIELD_VALUE.fullmatch(wanted):
        return
    if isinstance(handler, ChangeHandler):
        if not handler.needs_change and field in selectable and field.startswith("spec."):
            yield field, wanted
    elif field in _COMMON or field in selectable:
        yield field, wanted


def _join(one: _Condition, other: _Condition) -> _Condition | None:
    """Return the condition for what meets either of two; None if no selector can say that."""
    match one, other:
        case _OneOf(), _OneOf():
            values = one.values | other.values
            return _OneOf(values) if len(values) <= _MAX_VALUES else _Any()
        case _Absent(), _Absent():
            return one
        case (_Absent(), _) | (_, _Absent()):
            return None
        case _:
            return _Any()


def _is_met(condition: _Condition, value: str | None) -> bool:
    match condition:
        case _Any():
            return value is not None
        case _Absent():
            return value is None
        case _OneOf(values):
            return value in values


def _write(key: str, condition: _Condition) -> str:
    match condition:
        case _Any():
            return key
        case _Absent():
            return f"!{key}"
        case _OneOf(values):
            first, *others = sorted(values)
            return f"{key} in ({','.join((first, *others))})" if others else f"{key}={first}"
