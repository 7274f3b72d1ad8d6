"""Members: the replicas of an operator that divide its objects into shards, and the share of each. Pure.

A member shows that it is alive by an annotation of a Lease, which it renews repeatedly. As with leases, a member
is dead when its record has not changed for its duration by the clock of who looks, so that clocks are never compared.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec

_PREFIX: Final = "members.trioperator.dev/"
# Number of lease durations for which the record of a dead member is kept, so that all others notice that it is dead.
_KEPT: Final = 5


class Member(msgspec.Struct, frozen=True):
    """One member, as its record shows it, from its joining until it leaves or has failed to renew the record.

    ``shards`` is the number of shards that it divides all objects into, ``duration`` the seconds for which it is alive
    after a renewal. ``renewal`` changes with each of these. ``order`` is when it has joined, as a resource version, so
    that no clock matters; None until it is known.

    The number is negative where the shards are ranges of hashes. Members of earlier versions, which divide by another
    hash, have a positive one: so both see that the other divides the objects differently.
    """

    identity: str
    shards: int
    duration: float
    renewal: str = ""
    order: int | None = None

    @property
    def count(self) -> int:
        """The number of shards."""
        return abs(self.shards)


class Sighting(msgspec.Struct, frozen=True):
    """A member as it was seen last, and when its record has last changed. ``present`` is whether it still exists."""

    member: Member
    changed_at: float
    present: bool = True

    @property
    def expires_at(self) -> float:
        """When the member is dead unless its record changes."""
        return self.changed_at + self.member.duration


def make_key(identity: str) -> str:
    """Return the annotation for the record of a member."""
    return _PREFIX + hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:16]


def parse_members(annotations: Mapping[str, str]) -> list[Member]:
    """Return the members whose records are among the annotations of a Lease. Those that are invalid are passed over."""
    members = []
    for key, text in annotations.items():
        if key.startswith(_PREFIX):
            with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
                members.append(msgspec.json.decode(text, type=Member))
    return members


def observe(before: Mapping[str, Sighting], members: Iterable[Member], *, now: float) -> dict[str, Sighting]:
    """Return what is known of members by their identities after they were read.

    One whose record is gone counts as long as before when it is about what it owned: the record may have been removed
    by anybody.
    """
    seen = {}
    for member in members:
        known = before.get(member.identity)
        changed_at = now if known is None or known.member != member else known.changed_at
        seen[member.identity] = Sighting(member, changed_at)
    for identity, known in before.items():
        if identity not in seen and now < known.changed_at + _KEPT * known.member.duration:
            seen[identity] = msgspec.structs.replace(known, present=False)
    return seen


def list_alive(sightings: Mapping[str, Sighting], *, now: float) -> list[Member]:
    """Return the members that are alive."""
    return [seen.member for seen in sightings.values() if seen.present and now < seen.expires_at]


def list_stale(sightings: Mapping[str, Sighting], *, now: float) -> list[str]:
    """Return the identities of members that have been dead for so long that their records can be removed."""
    return [
        identity
        for identity, seen in sightings.items()
        if seen.present and now >= seen.changed_at + (_KEPT - 1) * seen.member.duration
    ]


def is_dead(sightings: Mapping[str, Sighting], identity: str, *, now: float) -> bool:
    """Check whether a member is known to own nothing."""
    seen = sightings.get(identity)
    return seen is not None and now >= seen.expires_at


# The share of a member.


class Share(msgspec.Struct, frozen=True):
    """How many shards a member is to own. If all of them are free, it begins with the one at *offset*."""

    size: int
    offset: int


NOTHING: Final = Share(0, 0)


def compute_share(alive: Collection[Member], own: Member) -> Share:
    """Return what a member is to own, given those that are alive.

    All shares add up to the number of shards, and differ by one at most: those that joined first have the greater ones,
    so that members who join take shards away, but never give others any, and the other way round.

    Members that divide the objects differently must not own shards at the same time, as in a rolling update that
    changes the number of shards, or the hash: who joined later waits until the others are gone. One whose order is not
    known yet may have joined earlier.
    """
    others = [member for member in alive if member.identity != own.identity]
    if own.order is None:
        return NOTHING
    place = own.order, own.identity
    for other in others:
        if other.shards != own.shards and (other.order is None or (other.order, other.identity) < place):
            return NOTHING
    places = sorted((m.order, m.identity) for m in others if m.shards == own.shards and m.order is not None)
    rank = sum(1 for other in places if other < place)
    size, rest = divmod(own.count, len(places) + 1)
    return Share(size + (rank < rest), rank * size + min(rank, rest))


def choose_surplus(owned: Collection[int], share: int) -> list[int]:
    """Return the shards to be released, where more are owned than the share."""
    return sorted(owned)[share:]


def choose_free(
    holders: Mapping[int, str], *, missing: int, is_free: Callable[[str], bool], offset: int = 0
) -> list[int]:
    """Return the shards to be acquired: as many as are *missing*, of those whose *holders* no longer own them.

    Members begin with different ones by their *offset*, so that they seldom want the same shard.
    """
    free = sorted(shard for shard, holder in holders.items() if is_free(holder))
    begin = offset % len(free) if free else 0
    return [*free[begin:], *free[:begin]][: max(0, missing)]
