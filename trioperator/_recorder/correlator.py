"""Correlation of Kubernetes Events, with the rules and the figures of client-go's recorder. Pure.

- An event that is the same as an earlier one but for its time is counted: it updates the earlier one.
- Ten events of one object that differ only in their messages, none later than ten minutes after the one before it, are
  similar: from then on, they are combined into one event with the newest message.
- Of one object, 25 events are posted in a burst, and then one in five minutes. Events beyond that are counted only. Log
  messages, of which there may be many, have an allowance of their own, and so have the few events that say what keeps
  the operator from its work: neither crowds out anything else. (client-go has one for all.)

What is remembered is limited to the 4,096 objects, groups and series that were used last.
"""

from __future__ import annotations

import collections
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

# Events of one object in a burst, and seconds until another one is allowed.
BURST: Final = 25
REFILL: Final = 300.0
# Messages that differ are combined from this number on, if at most this many seconds are between them.
SIMILAR: Final = 10
WINDOW: Final = 600.0
COMBINED: Final = "(combined from similar events): "
MAX_ENTRIES: Final = 4096
#: The reason of events that are log messages, and the reasons of those that say what keeps the operator from its work.
LOGGING: Final = "Logging"
OBSTACLES: Final = frozenset({"Paused", "Resumed", "Contended", "ContentionEnded"})

_K = TypeVar("_K")
_V = TypeVar("_V")


class Occurrence(NamedTuple):
    """Something that has happened to an object, at a time of Trio's clock."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    message: str
    time: float


Key: TypeAlias = tuple[str, ...]


class Series(msgspec.Struct, eq=False):
    """Events that are the same or similar: one object in the cluster, once it is posted under its ``name``."""

    key: Key
    first: Occurrence
    last: Occurrence
    count: int = 0
    name: str | None = None


class _Group(msgspec.Struct):
    """Different messages of events that are otherwise the same, less than ten, and the time of the last event."""

    messages: dict[str, None]
    time: float


class _Allowance(msgspec.Struct):
    """How many events of an object may be posted, as of a time."""

    left: float
    time: float


class _Recent(Generic[_K, _V]):
    """The values that were used last."""

    def __init__(self) -> None:
        self._values: collections.OrderedDict[_K, _V] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _K) -> _V | None:
        """Return the value of a key, if there is one. It is used now."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def add(self, key: _K, value: _V) -> _V:
        """Add a value and return it. If there are too many, the one that was used first is removed."""
        self._values[key] = value
        if len(self._values) > MAX_ENTRIES:
            self._values.popitem(last=False)
        return value

    def forget(self, key: _K) -> None:
        """Remove the value of a key, if there is one."""
        self._values.pop(key, None)


class Correlator:
    """Correlator of the events of one operator."""

    def __init__(self) -> None:
        self._groups: _Recent[Key, _Group] = _Recent()
        self._series: _Recent[Key, Series] = _Recent()
        self._allowances: _Recent[Key, _Allowance] = _Recent()

    def __len__(self) -> int:
        return len(self._groups) + len(self._series) + len(self._allowances)

    def observe(self, occurrence: Occurrence) -> Series:
        """Count an occurrence, and return the series that it belongs to."""
        if self._is_combined(occurrence):
            occurrence = occurrence._replace(message=COMBINED + occurrence.message)
            key: Key = occurrence[:7]
        else:
            key = occurrence[:8]
        series = self._series.get(key) or self._series.add(key, Series(key, occurrence, occurrence))
        series.last = occurrence
        series.count += 1
        return series

    def admit(self, occurrence: Occurrence) -> bool:
        """Return whether another event of the object may be posted now. If so, it counts as posted."""
        now = occurrence.time
        key = (*occurrence[:5], _find_allowance(occurrence.reason))
        allowance = self._allowances.get(key) or self._allowances.add(key, _Allowance(BURST, now))
        left = min(float(BURST), allowance.left + max(0.0, now - allowance.time) / REFILL)
        if left < 1:
            return False
        allowance.left, allowance.time = left - 1, now
        return True

    def forget(self, series: Series) -> None:
        """Begin a new series with the next occurrence, as the event is not in the cluster."""
        self._series.forget(series.key)

    def _is_combined(self, occurrence: Occurrence) -> bool:
        now = occurrence.time
        key = occurrence[:7]
        group = self._groups.get(key) or self._groups.add(key, _Group({}, now))
        if now - group.time > WINDOW:
            group.messages.clear()
        group.messages[occurrence.message] = None
        group.time = now
        if len(group.messages) < SIMILAR:
            return False
        del group.messages[next(iter(group.messages))]
        return True


def _find_allowance(reason: str) -> str:
    """Return which of its allowances an event of an object uses up."""
    if reason == LOGGING:
        return reason
    return "obstacles" if reason in OBSTACLES else "others"
