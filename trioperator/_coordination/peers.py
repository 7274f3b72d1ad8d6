"""Peers: the records of operators on a peering object, and what they mean for this one. Pure.

The records are Kopf's ("Peering"): ``status.<identity> = {priority, lifetime, lastseen}``; those of replicas with a
leader election or shards have their ``lease``, too.

Their times are by the clock of whoever writes them. A clock that is wrong, or is set, must neither let an operator that
is alive be taken for dead nor one that is dead for alive. So wall time counts only when a record is seen for the first
time, and only within its lifetime: from then on, the reader's steady clock counts.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

_DEFAULT_LIFETIME = 60.0
# Age beyond which it does not matter how old a record is: dates have limits.
_LONG_AGO = datetime.timedelta(days=36500)
# Limit of the peers that are remembered.
_MAX_KNOWN = 1000


class Peer(msgspec.Struct, frozen=True):
    """One operator, as its record on a peering object shows it. ``lifetime`` is in seconds.

    ``lease`` is the Lease that it shares with other replicas, as ``namespace/name``; empty for none.
    """

    identity: str
    priority: int
    lifetime: float
    lastseen: datetime.datetime
    lease: str = ""

    def __str__(self) -> str:
        return f"{self.identity} (priority {self.priority})"

    @property
    def deadline(self) -> datetime.datetime:
        """When the operator counts as dead, unless its record is renewed."""
        try:
            return self.lastseen + datetime.timedelta(seconds=self.lifetime)
        except OverflowError:
            return datetime.datetime.max.replace(tzinfo=datetime.UTC)

    def make_record(self) -> dict[str, Any]:
        """Return the record to be stored."""
        lifetime = int(self.lifetime) if self.lifetime == int(self.lifetime) else self.lifetime
        record = {"priority": self.priority, "lastseen": self.lastseen.isoformat(), "lifetime": lifetime}
        return {**record, "lease": self.lease} if self.lease else record


class Sightings:
    """When the records of peers were written, by the steady clock of the reader.

    Peers are remembered whose records are gone: one that was taken for dead, as its clock is behind, writes its record
    again when it is removed.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[datetime.datetime, datetime.datetime]] = {}

    def take(self, peers: Collection[Peer], *, now: datetime.datetime, steady: datetime.datetime) -> list[Peer]:
        """Return the peers with their times on the *steady* clock. They were read just now."""
        seen = {peer.identity: (peer.lastseen, self._date(peer, now, steady)) for peer in peers}
        self._known = {**(self._known if len(self._known) < _MAX_KNOWN else {}), **seen}
        return [msgspec.structs.replace(peer, lastseen=seen[peer.identity][1]) for peer in peers]

    def _date(self, peer: Peer, now: datetime.datetime, steady: datetime.datetime) -> datetime.datetime:
        """Return when a record was written: just now if it was renewed, and its age is impossible."""
        before = self._known.get(peer.identity)
        if before is not None and before[0] == peer.lastseen:
            return before[1]
        age = max(datetime.timedelta(), min(now - peer.lastseen, _LONG_AGO))
        is_impossible = before is not None and age.total_seconds() >= peer.lifetime
        return steady if is_impossible else steady - age


class Verdict(msgspec.Struct, frozen=True):
    """Verdict of the peers on an operator: why it pauses, if it does; until when that holds; which peers are dead.

    ``is_doubtful`` is whether it pauses for a peer that may be dead, for all that was read of it.
    """

    reason: str | None = None
    until: datetime.datetime | None = None
    dead: tuple[str, ...] = ()
    is_doubtful: bool = False


def parse_peers(status: object, *, now: datetime.datetime) -> list[Peer]:
    """Return the peers of a peering object's status. Missing or invalid fields of a record have their defaults."""
    if not isinstance(status, Mapping):
        return []
    return [_parse_peer(identity, record, now) for identity, record in status.items() if isinstance(record, Mapping)]


def _parse_peer(identity: str, record: Mapping[str, Any], now: datetime.datetime) -> Peer:
    priority, lifetime, lease = record.get("priority"), record.get("lifetime"), record.get("lease")
    try:
        lastseen = datetime.datetime.fromisoformat(str(record.get("lastseen")))
    except ValueError:
        lastseen = now
    if lastseen.tzinfo is None:
        lastseen = lastseen.replace(tzinfo=datetime.UTC)
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool)
    return Peer(
        identity=identity,
        priority=priority if isinstance(priority, int) else 0,
        lifetime=float(lifetime) if is_number and lifetime is not None else _DEFAULT_LIFETIME,
        lastseen=lastseen,
        lease=lease if isinstance(lease, str) else "",
    )


def find_unlisted(before: Iterable[Peer], listed: Iterable[Peer], *, now: datetime.datetime) -> list[Peer]:
    """Return the peers that were known *before* and are not listed, as far as they may be alive."""
    identities = {peer.identity for peer in listed}
    return [peer for peer in before if peer.identity not in identities and peer.deadline > now]


class Candidate(msgspec.Struct, frozen=True):
    """An operator that pauses in favour of its peers.

    It does while a peer with a higher priority is alive, or one with the same priority: then all of them pause, or
    with *tie_break* all but the one whose identity sorts first. Those that divide the objects (*is_divided*) do not
    mind others with the same priority, and replicas that share a *lease* do not mind one another.
    """

    identity: str
    priority: int
    tie_break: bool = False
    is_divided: bool = False
    lease: str = ""

    def judge(self, peers: Iterable[Peer], *, now: datetime.datetime, read_at: datetime.datetime) -> Verdict:
        """Decide whether the operator pauses in favour of its peers, whose records were *read_at* a time.

        A peer is dead if its record was not renewed by its deadline. One that is paused for is dead if that was read
        then or later: a watch may have missed a renewal.
        """
        others = [peer for peer in peers if peer.identity != self.identity]
        rivals = [peer for peer in others if not self.lease or peer.lease != self.lease]
        present = [peer for peer in rivals if peer.deadline > min(read_at, now)]
        higher = [peer for peer in present if peer.priority > self.priority]
        same = [
            peer
            for peer in present
            if peer.priority == self.priority
            and not self.is_divided
            and (not self.tie_break or peer.identity < self.identity)
        ]
        dead = tuple(peer.identity for peer in others if peer.deadline <= now and peer not in higher + same)
        blocking = higher or same
        if not blocking:
            return Verdict(dead=dead)
        names = ", ".join(map(str, blocking))
        reason = f"in favour of {names}" if higher else f"as there are operators with the same priority: {names}"
        until = min(peer.deadline for peer in higher + same)
        return Verdict(reason=reason, until=until, dead=dead, is_doubtful=until <= now)
