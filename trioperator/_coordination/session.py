"""Sessions: a member's record on the Lease of all members, renewed for as long as the member owns shards.

One request renews the record and returns the records of all others, however many shards there are. It is conditional on
the record that was written last: if that is no longer there, etcd was restored, or others have removed it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec
import trio

from trioperator._coordination.lease import LeaseObject
from trioperator._coordination.members import (
    NOTHING,
    Member,
    Share,
    Sighting,
    compute_share,
    is_dead,
    list_alive,
    list_stale,
    make_key,
    observe,
    parse_members,
)
from trioperator._kube.api_client import MERGE_PATCH, ApiClient
from trioperator._kube.retry import JSON_PATCH
from trioperator.errors import ConflictError, ConnectionLostError, InvalidError, NotFoundError

# Limit of the earlier identities whose records are removed; other replicas remove them, too, when they are old.
_MAX_LEFT: Final = 16

_encode: Final = msgspec.json.Encoder().encode


class _Metadata(msgspec.Struct, rename="camel"):
    annotations: dict[str, str] = {}
    resource_version: str = ""


class _Record(msgspec.Struct):
    metadata: _Metadata


class _MembersLease:
    """The Lease of all members, as one of them writes its own record in it, and reads those of the others.

    ``has_gone_back`` is whether the last write has shown that etcd was restored, or that others have removed the
    record. Each write tests what was stored by the last one.
    """

    def __init__(self, lease: LeaseObject) -> None:
        self.has_gone_back = False
        self._lease = lease
        self._newest = 0  # the newest version of the Lease
        self._stored: dict[str, str | None] = {}  # the own record by its key, unless it is not known what is stored

    def __str__(self) -> str:
        return str(self._lease)

    async def write(self, own: Member, removed: Collection[str]) -> tuple[list[Member], int]:
        """Write the own record, and remove others. Returns all records, and the version. Raises as requests do."""
        key, data = make_key(own.identity), _encode(own).decode()
        stored = self._stored.pop(key, None)  # until there is a response
        is_lost, record = False, None
        if stored is not None and not removed:
            record = await self._replace(key, stored, data)
            is_lost = record is None
        if record is None:
            annotations: dict[str, str | None] = {make_key(identity): None for identity in removed}
            record = await self._write({"metadata": {"annotations": {**annotations, key: data}}})
        self._stored = {key: record.metadata.annotations.get(key)}  # as admission has left it
        version = _parse_version(record.metadata.resource_version)
        self.has_gone_back, self._newest = is_lost or version < self._newest, version
        return parse_members(record.metadata.annotations), version

    async def remove(self, identities: Iterable[str]) -> None:
        """Remove records. Raises as requests do."""
        await self._patch({"metadata": {"annotations": dict.fromkeys(map(make_key, identities))}})

    async def _replace(self, key: str, stored: str, data: str) -> _Record | None:
        """Write the record over the one that is stored; return None, and write nothing, if another or none is."""
        path = "/metadata/annotations/" + key.replace("~", "~0").replace("/", "~1")
        test = {"op": "test", "path": path, "value": stored}
        try:
            return self._parse(await self._patch([test, {"op": "replace", "path": path, "value": data}], JSON_PATCH))
        except (InvalidError, NotFoundError):
            return None

    async def _write(self, patch: dict[str, Any]) -> _Record:
        try:
            data = await self._patch(patch)
        except NotFoundError:
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": self._lease.metadata}
            with contextlib.suppress(ConflictError):  # another member was faster
                await self._lease.client.request("POST", self._lease.collection, body=_encode(lease))
            data = await self._patch(patch)
        return self._parse(data)

    async def _patch(self, patch: object, content_type: str = MERGE_PATCH) -> bytes:
        path, body = self._lease.path, _encode(patch)
        return await self._lease.client.request("PATCH", path, body=body, content_type=content_type)

    def _parse(self, data: bytes) -> _Record:
        try:
            return msgspec.json.decode(data, type=_Record)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ConnectionLostError(f"{self._lease.path}: the response is not a Lease: {error}") from error


class Session:
    """The membership of one replica, and what it knows of the other members.

    It is valid until *deadline* seconds after the last renewal. It has a new identity whenever it is joined again: one
    that is seen to be dead has lapsed forever.
    """

    def __init__(self, client: ApiClient, *, namespace: str, name: str, member: Member, deadline: float) -> None:
        self.lease = _MembersLease(LeaseObject(client, namespace=namespace, name=name))
        self._base = member
        self._own = member
        self._deadline = deadline
        self._sightings: dict[str, Sighting] = {}
        self._earlier: set[str] = set()  # own identities before
        self._left: list[str] = []  # and those whose records are still to be removed, if there are any
        self.renewed_at = -float("inf")
        self.is_ranked = False
        self._begun_at: float | None = None
        self.join()

    def __str__(self) -> str:
        return str(self.lease)

    def join(self) -> None:
        """Begin a new membership: nothing is owned by it yet."""
        if self._begun_at is not None:
            self._left = [*self._left[1 - _MAX_LEFT :], self.identity]
        if self.is_joined:
            self._earlier.add(self.identity)
        identity = f"{self._base.identity}_{secrets.token_hex(3)}"
        self._own = msgspec.structs.replace(self._base, identity=identity)
        self._begun_at = None
        self.renewed_at = -float("inf")
        self.is_ranked = False

    @property
    def identity(self) -> str:
        """The identity of this membership."""
        return self._own.identity

    @property
    def is_joined(self) -> bool:
        """Whether the record was ever written."""
        return self.renewed_at > -float("inf")

    @property
    def valid_until(self) -> float:
        """Until when the identity may be used, on Trio's clock; infinite before the first attempt to write its record.

        That attempt counts, too: others may have seen the record, though there was no response.
        """
        if self._begun_at is None:
            return float("inf")
        return max(self.renewed_at, self._begun_at) + self._deadline

    async def renew(self, *, timeout: float) -> None:
        """Write the record, and read the others' records. Raises as requests do; nothing is retried."""
        now = trio.current_time()
        self._begun_at = now if self._begun_at is None else self._begun_at
        own = self._own = msgspec.structs.replace(self._own, renewal=str(int(self._own.renewal or 0) + 1))
        removed = {*self._left, *list_stale(self._sightings, now=self.renewed_at)}
        with trio.fail_after(timeout):
            members, version = await self.lease.write(own, removed)
        self._left.clear()
        self.renewed_at = now
        self.is_ranked = own.order is not None
        if own.order is None:
            self._own = msgspec.structs.replace(own, order=version)
        others = [member for member in members if member.identity != own.identity]
        self._sightings = observe(self._sightings, others, now=trio.current_time())

    async def leave(self) -> None:
        """Remove the record, so that others need not wait until it expires. Raises as requests do."""
        if self._begun_at is not None:
            await self.lease.remove((*self._left, self.identity))

    # The other members, as of the last renewal. After a suspension of the process, that may be outdated.

    @property
    def share(self) -> Share:
        """The share that the member is to own, by the members that are alive."""
        return compute_share(self._alive, self._own) if self.is_ranked else NOTHING

    @property
    def count(self) -> int:
        """How many members are alive, with this one."""
        return 1 + len(self._alive)

    @property
    def _alive(self) -> list[Member]:
        return list_alive(self._sightings, now=self.renewed_at)

    @property
    def next_expiry(self) -> float:
        """When the next of the others is dead unless its record changes; infinite if there is none."""
        times = [seen.expires_at for seen in self._sightings.values() if seen.expires_at > self.renewed_at]
        return min(times, default=float("inf"))

    def is_alive(self, identity: str) -> bool:
        """Check whether another member is alive."""
        return any(member.identity == identity for member in self._alive)

    def is_free(self, holder: str) -> bool:
        """Check whether what *holder* owned can be taken: by nobody, by an earlier self, or by a dead member.

        A lease that names this member though it does not own it may have another owner, as after a restore of etcd.
        """
        if holder == "" or holder in self._earlier:
            return True
        if holder == self.identity:
            return False
        if holder not in self._sightings:  # it may have joined just now, or have vanished long ago
            unknown = msgspec.structs.replace(self._base, identity=holder)
            self._sightings[holder] = Sighting(unknown, trio.current_time(), present=False)
        return is_dead(self._sightings, holder, now=self.renewed_at)


def _parse_version(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # opaque: those who join are ordered by their identities
        return 0
