"""The division of a kind's objects by the API server: which ranges of hashes a watch asks for, and which it has.

Theory of operation
===================

A replica *wants* the ranges of the shards that it handles. As these move, its watch goes on from the version where it
is: without a range that is released, and with one that is acquired after the objects of that range were listed.

============================= ====================================================================================
the ranges                    what they are
============================= ====================================================================================
``wanted``                    ranges of the shards that are handled here, for now
``covered``                   those whose objects have been listed, and are watched since: what is seen is complete
``asked``                     ranges of the last request; the server should send nothing else
============================= ====================================================================================

What is no longer wanted is forgotten at once, so it is no longer covered, either: a shard that comes back is listed
again, even if nothing else has happened in between. Until then, nothing of it counts that is still on its way from
before: an object may be gone since, and its deletion is older than the new list. The list of an acquired range is newer
than the version where the watch goes on. So events of that range that are not newer than its list were handled by
others, and are passed over (the *floors*: shards may be acquired one after the other, while the watch lags behind all
of their lists).

An API server that does not know shard selectors ignores them. That shows as soon as it sends an object that was not
asked for: then the division is given up for good. All objects are listed and watched, and other replicas' objects are
followed. Before that, nothing is wrong: what was not asked for is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from trioperator._concurrency.pulse import Pulse
from trioperator._kube.objects import RawObject
from trioperator._model.shard_ranges import NOTHING, ShardRanges, hash_text

_EVERYTHING: Final[Mapping[str, str]] = {}


class Division:
    """The ranges of one watch. *on_end* is called when the division is given up, as the server does not divide."""

    def __init__(self, wanted: ShardRanges, on_end: Callable[[], None]) -> None:
        self.is_given_up = False
        self._on_end = on_end
        self._wanted = wanted
        self._covered = ShardRanges()
        self._listing = ShardRanges()
        self._asked = ShardRanges()
        self._floors: list[tuple[int, ShardRanges]] = []
        self._has_everything = False
        self._completed = Pulse()

    def __str__(self) -> str:
        return "" if self.is_given_up else str(self._wanted or NOTHING)

    @property
    def is_complete(self) -> bool:
        """Whether all objects that are wanted are covered."""
        return self._has_everything if self.is_given_up else not self._wanted - self._covered

    async def wait_complete(self) -> None:
        """Wait until all objects that are wanted are covered. For one task only."""
        while not self.is_complete:
            await self._completed.wait()

    def select(self, wanted: ShardRanges) -> bool:
        """Want other ranges from now on. Returns whether the watch has to be opened again."""
        self._wanted = wanted
        self._covered &= wanted
        self._listing &= wanted
        return not self.is_given_up

    def give_up(self) -> None:
        """List and watch all objects from now on."""
        if not self.is_given_up:
            self.is_given_up = True
            self._on_end()

    # Requests.

    def begin_list(self, *, whole: bool) -> Mapping[str, str]:
        """Return the parameters of a list of what is wanted, or with *whole* False of what is missing."""
        if whole:
            self._covered, self._has_everything = ShardRanges(), False
        self._listing = self._wanted - self._covered
        return self._ask(self._listing)

    def end_list(self, version: str, *, whole: bool) -> None:
        """Record that a list is complete, and of which version it was."""
        if not whole:
            self._floors.append((int(version), self._listing))
        else:
            self._floors.clear()
        self._covered |= self._listing
        self._has_everything = self.is_given_up
        self._completed.set()

    def begin_watch(self) -> Mapping[str, str]:
        """Return the parameters of a watch."""
        return self._ask(self._wanted)

    def _ask(self, ranges: ShardRanges) -> Mapping[str, str]:
        if self.is_given_up:
            return _EVERYTHING
        text = str(ranges or NOTHING)
        self._asked = ShardRanges.parse(text)  # it may be more than what is wanted
        return {"shardSelector": text}

    # Responses.

    def is_expected(self, obj: RawObject) -> bool:
        """Check whether an object was asked for."""
        return self.is_given_up or hash_text(obj.key) in self._asked

    def is_listed(self, obj: RawObject) -> bool:
        """Check whether an object of a list is in a range that has been wanted ever since the list began."""
        return self.is_given_up or hash_text(obj.key) in self._listing

    def is_old(self, obj: RawObject) -> bool:
        """Check whether an event is not newer than the list of its range, even if that list is still to come."""
        if self.is_given_up:
            return False
        if hash_text(obj.key) not in self._covered:
            return True
        if not self._floors:
            return False
        version = int(obj.resource_version) if obj.resource_version.isdecimal() else math.inf
        self._floors = [floor for floor in self._floors if version <= floor[0]]  # versions only grow
        return any(hash_text(obj.key) in ranges for _, ranges in self._floors)
