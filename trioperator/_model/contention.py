"""Contention: fields of an object that are written repeatedly, as others undo that, or for nothing. Pure.

Theory of operation
===================

What is known of a field begins with a write of the operator's own. If somebody else changes it then, it is *lost*; if
the operator writes it again, that is a *flip*. After some flips that follow each other closely, the field is
*contended*. So it is after many writes in a minute that have changed nothing, or too many that have.

==========================================  ============================================================
a contended field                           what happens
==========================================  ============================================================
is to be written                            once a minute, with jitter: until then, the write is held
is as wanted already                        nothing is to be written; but for what was written for nothing before,
                                            once a minute
was lost, and has been written since        it stays contended: the next flip is counted
was neither written nor lost for a minute,  it is contended no longer
and no write is held
was not lost for a minute since it was      it is contended no longer, if others had changed it: they let it be,
written, and a newer value is held          and what is held is stored
==========================================  ============================================================

Who has changed a field is for others to find out: what is not known to be somebody else's never counts as lost.
"""

from __future__ import annotations

import collections
import math
import random as _random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from trioperator._model.field_managers import format_field
from trioperator._model.fields import FieldPath

#: Seconds within which flips and writes are counted together.
WINDOW: Final = 60.0
#: The manager of a change where the server has recorded none.
UNKNOWN: Final = "unknown"
# Delays are longer by a random part of this fraction, so that two operators of this kind do not keep step.
_JITTER: Final = 0.2
# Why a field is contended that others change.
_BY_OTHERS: Final = "ChangedByOthers"
# Fields of an object that are known at a time, at most.
_MAX_FIELDS: Final = 64
# Changed fields whose managers are asked for, at most: an object may have 100,000 fields.
_MAX_EDITS: Final = 200


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """After how many flips, writes that change nothing, and other writes in a minute a field is contended."""

    flips: int = 3
    unchanged: int = 10
    writes: float = 120
    interval: float = 60.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """That a field is contended: why, and the other ``manager``, if there is one; or that this has ended.

    ``child`` is the child whose field it is, for people to read; empty if it is a field of the object itself.
    """

    path: FieldPath
    reason: str
    manager: str | None = None
    ended: bool = False
    child: str = ""

    @property
    def field(self) -> str:
        """The field for people to read."""
        field = format_field(self.path)
        return f"{field} of {self.child}" if self.child else field

    def __str__(self) -> str:
        if self.ended:
            return f"{self.field} is no longer contended"
        if self.reason == "NoEffect":
            return f"{self.field} is written repeatedly, and has that value already"
        if self.manager is None:
            return f"{self.field} is written more often than twice a second, and nobody else changes it"
        who = "somebody else, whom the API server does not name" if self.manager == UNKNOWN else self.manager
        return f"{self.field} is changed by {who} repeatedly, soon after it was written"


class _Field:
    """History of one field that the operator writes."""

    __slots__ = ("contended", "due", "flipped_at", "flips", "held", "lost", "managers", "touched_at", "writes")

    def __init__(self) -> None:
        self.lost = self.held = False
        self.flips = self.writes = 0
        self.flipped_at = self.touched_at = -math.inf
        self.due = -math.inf
        self.managers: collections.Counter[str] = collections.Counter()
        self.contended: Verdict | None = None

    @property
    def must_wait(self) -> bool:
        """Whether a write is held, and others have not let the last one be."""
        return self.held and (self.lost or self.contended is None or self.contended.reason != _BY_OTHERS)


class Contention:
    """The fields of one object that the operator writes. Times are in seconds, and never go back."""

    __slots__ = ("_fields", "_limits", "_others", "_random", "_since", "_unchanged", "_writes")

    def __init__(self, limits: Limits, *, random: Callable[[], float] = _random.random) -> None:
        self._limits = limits
        self._random = random
        self._fields: dict[FieldPath, _Field] = {}
        self._others: collections.Counter[str] = collections.Counter()
        self._since = -math.inf
        self._writes = self._unchanged = 0

    def wrote(self, paths: Iterable[FieldPath], now: float, *, changed: bool, counts: bool = True) -> list[Verdict]:
        """Note an own write of fields, and return those that are contended from now on.

        It has *changed* the object or not. A timer's does not count as one of too many, whatever its interval.
        """
        if now - self._since > WINDOW:
            self._since, self._writes, self._unchanged = now, 0, 0
            self._others.clear()
        self._writes += counts and changed
        self._unchanged += not changed
        verdicts = [self._wrote(path, now) for path in paths if path in self._fields or len(self._fields) < _MAX_FIELDS]
        return [verdict for verdict in verdicts if verdict is not None]

    def _wrote(self, path: FieldPath, now: float) -> Verdict | None:
        field = self._fields.setdefault(path, _Field())
        if field.lost:
            field.flips = 1 if now - field.flipped_at > WINDOW and field.contended is None else field.flips + 1
            field.flipped_at = now
        field.lost = field.held = False
        field.touched_at = now
        field.due = now + self._limits.interval * (1 + _JITTER * self._random())
        if field.contended is not None:
            return None
        field.contended = self._judge(path, field)
        return field.contended

    def _judge(self, path: FieldPath, field: _Field) -> Verdict | None:
        if field.flips >= self._limits.flips:
            return Verdict(path=path, reason=_BY_OTHERS, manager=_most(field.managers) or UNKNOWN)
        if self._unchanged >= self._limits.unchanged:
            return Verdict(path=path, reason="NoEffect")
        if self._writes >= self._limits.writes:
            return Verdict(path=path, reason="TooManyWrites", manager=_most(self._others))
        return None

    def changed(self, edits: Iterable[tuple[FieldPath, str]], now: float) -> None:
        """Note which fields others have changed, with their managers."""
        for path, manager in edits:
            self._others[manager] += 1
            for known, field in self._fields.items():
                if are_related(known, path):
                    field.lost = True
                    field.managers[manager] += 1
                    field.touched_at = now

    def choose(self, paths: Iterable[FieldPath]) -> Iterator[FieldPath]:
        """Yield which changed fields matter: those that are known first, then others, a limited number of each."""
        known, others = FieldSet(self._fields), list[FieldPath]()
        left = _MAX_EDITS
        for path in paths:
            if known.is_related(path):
                if left > 0:
                    yield path
                left -= 1
            elif len(others) < _MAX_EDITS:
                others.append(path)
        yield from others

    def is_contended(self, path: FieldPath) -> bool:
        """Check whether a field is contended."""
        return path in self._fields and self._fields[path].contended is not None

    def hold(self, path: FieldPath, now: float) -> bool:
        """Check whether a write of a field has to wait, and note that it does."""
        field = self._fields.get(path)
        if field is None or field.contended is None:
            return False
        field.held = now < field.due
        return field.held

    def release(self) -> None:
        """Note that no write is held any longer."""
        for field in self._fields.values():
            field.held = False

    def omit(self, path: FieldPath, now: float) -> bool:
        """Check whether a write of a field is left out that has the value already, and note that it is wanted.

        A field that is written for nothing stays contended as long as it is wanted, and is written now and then.
        """
        field = self._fields.get(path)
        if field is None or field.contended is None:
            return False
        if field.contended.reason != "NoEffect":
            return True
        field.touched_at = now
        return now < field.due

    @property
    def due(self) -> float:
        """When a write that is held may be made, or a field may be contended no longer; infinite if never."""
        return min((self._next(field) for field in self._fields.values()), default=math.inf)

    def _next(self, field: _Field) -> float:
        if field.contended is None:
            return math.inf
        return field.due if field.must_wait else field.touched_at + self._limits.interval

    def calm_down(self, now: float) -> list[Verdict]:
        """Return which fields are contended no longer, and forget what is long over."""
        ended = []
        for path, field in list(self._fields.items()):
            if field.contended is not None and not field.must_wait and now >= field.touched_at + self._limits.interval:
                ended.append(msgspec.structs.replace(field.contended, ended=True))
                del self._fields[path]
            elif field.contended is None and now - field.touched_at > WINDOW:
                del self._fields[path]
        return ended

    @property
    def contended(self) -> list[Verdict]:
        """The fields that are contended."""
        return [field.contended for field in self._fields.values() if field.contended is not None]

    @property
    def is_over(self) -> bool:
        """Whether nothing is known of any field."""
        return not self._fields


class FieldSet:
    """A set of fields, which tells of another one without a look at each whether any is it, or a part of it."""

    __slots__ = ("_parents", "_paths")

    def __init__(self, paths: Iterable[FieldPath]) -> None:
        self._paths = frozenset(paths)
        self._parents = {path[:length] for path in self._paths for length in range(len(path))}

    def is_related(self, path: FieldPath) -> bool:
        """Check whether any of the fields is this one, or a part of it, or has it as a part."""
        if path in self._parents:
            return True
        return any(path[:length] in self._paths for length in range(len(path) + 1))


def are_related(one: FieldPath, other: FieldPath) -> bool:
    """Check whether a field is another one, or a part of it."""
    length = min(len(one), len(other))
    return one[:length] == other[:length]


def list_leaves(patch: Mapping[str, Any]) -> dict[FieldPath, Any]:
    """Return the fields that a merge patch sets, with their values; None for those that it removes."""
    leaves: dict[FieldPath, Any] = {}
    stack: list[tuple[FieldPath, Mapping[str, Any]]] = [((), patch)]
    while stack:
        path, values = stack.pop()
        for key, value in values.items():
            if isinstance(value, Mapping) and value:
                stack.append(((*path, key), value))
            else:
                leaves[*path, key] = value
    return leaves


def _most(managers: collections.Counter[str]) -> str | None:
    """Return the most frequent manager; one that is known, if there is any."""
    known = [manager for manager, _ in managers.most_common() if manager != UNKNOWN]
    return next(iter((*known, *managers)), None)
