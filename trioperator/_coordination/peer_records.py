"""The records on a peering object: those of all operators, as one of them has read them, and its own. Pure."""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection
from typing import Final

from trioperator._coordination.peers import Peer, Sightings, find_unlisted
from trioperator._kube.objects import RawObject

_NEVER: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)
# Seconds between two renewals because others have taken the record back: one whose clock is ahead does so each time.
_CALM: Final = 5.0


class Records:
    """The records of all operators, as *identity* has read them last.

    ``uid`` is that of the object, None while there is none. ``peers`` have times on the steady clock, and so has
    ``read_at``: the records are not older than that. ``own`` is the operator's own one, as it was read.
    """

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.uid: str | None = None
        self.version = ""
        self.peers: list[Peer] = []
        self.own: Peer | None = None
        self.read_at = _NEVER
        self._unlisted: list[Peer] = []  # those that a restored etcd has not heard of, and that may be alive
        self._sightings = Sightings()

    def take(
        self,
        obj: RawObject,
        peers: Collection[Peer],
        written: OwnRecord,
        *,
        now: datetime.datetime,
        steady: datetime.datetime,
    ) -> None:
        """Take what was read of the object just now, when the own record was as it is *written*."""
        key = obj.uid or obj.name
        self.own = next((peer for peer in peers if peer.identity == self.identity), None)
        # That etcd was restored show versions, or our own record, which nobody else sets back.
        is_set_back = self.own is not None and self.own.lastseen < written.lastseen
        if self.uid == key and obj.resource_version.isdecimal() and (self.is_newer_than(obj) or is_set_back):
            self._unlisted = self.peers
        self.uid, self.version = key, obj.resource_version
        listed = self._sightings.take(peers, now=now, steady=steady)
        self._unlisted = find_unlisted(self._unlisted, listed, now=steady)
        self.peers = [*listed, *self._unlisted]

    def is_newer_than(self, obj: RawObject) -> bool:
        """Check whether what was read is newer than the object, as a watch may be late."""
        new, known = obj.resource_version, self.version
        return new.isdecimal() and known.isdecimal() and int(new) < int(known)

    def drop(self, identities: Collection[str]) -> None:
        """Drop operators that are dead."""
        self.peers = [peer for peer in self.peers if peer.identity not in identities]

    def forget(self) -> None:
        """Forget the object, as it is gone."""
        self.uid, self.own, self.peers, self._unlisted = None, None, [], []


class OwnRecord:
    """The operator's own record: whether it is there, as of when, and when others may take the operator for dead.

    ``lastseen`` is wall time, ``expires_at`` is on Trio's clock, and infinite while the record was never written.
    """

    def __init__(self) -> None:
        self.lastseen = _NEVER
        self.expires_at = math.inf
        self._is_written = False
        self._is_writing = False
        self._restored_at = -math.inf  # on Trio's clock: when others had taken the record back

    @property
    def may_exist(self) -> bool:
        """Whether the record may be on the object."""
        return self._is_written or self._is_writing

    def begin(self) -> None:
        """Note that it is being written: also after that was cancelled, as it may be stored."""
        self._is_writing = True

    def end(self, *, may_be_stored: bool) -> None:
        """Note that writing has failed, or that the object is gone meanwhile."""
        self._is_writing = False
        self._is_written = self._is_written or may_be_stored

    def store(self, lastseen: datetime.datetime, *, expires_at: float) -> None:
        """Note that it is written."""
        self.end(may_be_stored=True)
        self.lastseen, self.expires_at = lastseen, expires_at

    def forget(self) -> None:
        """Note that it is gone, with the object."""
        self._is_written, self.expires_at = False, math.inf

    def is_taken_back(self, read: Peer | None, *, now: float) -> bool:
        """Check whether it was *read* as gone, or older than it was written: for others, it would be dead.

        That is answered at once, but only now and then: two operators whose clocks differ would never rest.
        """
        if not self._is_written or now < self._restored_at + _CALM:
            return False
        if read is not None and read.lastseen >= self.lastseen:
            return False
        self._restored_at = now
        return True
