"""Lease records of coordination.k8s.io/v1, and one attempt to acquire or renew a lease.

The rules are client-go's (``leaderelection``): a record expires when it has not changed for its duration by the clock
of this process, so that the clocks of several machines are never compared; each write tests the resource version.

If etcd was restored, the record is an earlier one, or missing. It is not true then: whoever has renewed it since may
hold the lease until it would have expired, so others wait that long, even if it names them or nobody. The holder takes
it again meanwhile.
"""

from __future__ import annotations

import datetime
import enum
import math
from collections.abc import Mapping
from typing import Any

import trio

from trioperator._concurrency.clock import wall_now
from trioperator._kube.api_client import ApiClient
from trioperator.errors import ApiError, ConflictError, NotFoundError, ServerError


class Attempt(enum.Enum):
    """Result of an attempt to acquire or renew a lease."""

    HELD = enum.auto()
    """The lease is held by this process."""

    TAKEN = enum.auto()
    """Another process holds the lease."""


class LeaseObject:
    """Where the Lease of a name is, and a client for it that retries nothing."""

    def __init__(self, client: ApiClient, *, namespace: str, name: str) -> None:
        self.client = client.retrying(())
        self.metadata = {"name": name, "namespace": namespace}
        self.collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.path = f"{self.collection}/{name}"

    def __str__(self) -> str:
        return f"lease {self.metadata['namespace']}/{self.metadata['name']}"


class Lease:
    """One Lease object, as a candidate of the name *identity* sees it.

    ``renewed_at`` is when the last successful write began, on Trio's clock: others may take the lease *duration*
    seconds later at the earliest. ``holder`` is the identity that holds the lease, as last seen.
    """

    def __init__(self, client: ApiClient, *, namespace: str, name: str, identity: str, duration: float) -> None:
        self.identity = identity
        self.renewed_at = -float("inf")
        self.holder = ""
        self._object = LeaseObject(client, namespace=namespace, name=name)
        self._duration = duration
        self._observed: dict[str, Any] | None = None
        self._observed_at = -float("inf")
        self._doubtful: str | None = None  # the version that is replaced by a write without a response
        self._seen_at = -float("inf")
        self._newest = (0, "")  # of what was seen
        self._busy_until = -float("inf")  # as long as that may be held by others

    def __str__(self) -> str:
        return str(self._object)

    @property
    def transitions(self) -> int:
        """How often another process has become the holder, as last seen."""
        count = self._spec.get("leaseTransitions")
        return count if isinstance(count, int) else 0

    @property
    def expires_at(self) -> float:
        """When the record, as last seen, expires unless it changes, on Trio's clock."""
        seconds = self._spec.get("leaseDurationSeconds")
        duration = float(seconds) if isinstance(seconds, int) and seconds > 0 else self._duration
        return self._observed_at + duration

    @property
    def is_restored(self) -> bool:
        """Whether the record, as last seen, is older than what was seen before."""
        return self._age < self._newest

    @property
    def is_known(self) -> bool:
        """Whether the record, as last seen, can be written: it was not found to be changed by others, or older."""
        return self._observed is not None and not self.is_restored

    async def attempt(self, *, timeout: float) -> Attempt:
        """Acquire the lease if it is free or has expired, or renew it. Raises as requests do; nothing is retried.

        If there was no response to the last write, the lease is read first: it may be stored, and would be a conflict.
        """
        now = trio.current_time()
        with trio.fail_after(timeout):
            if self.holder != self.identity or not self.is_known or self._doubtful is not None:
                await self.read()
            if self._is_taken(now):
                return Attempt.TAKEN
            await self.write()
        self.renewed_at = now
        return Attempt.HELD

    def _is_taken(self, now: float) -> bool:
        if self._observed is None or self.holder in ("", self.identity):
            return self.is_restored and now < self._busy_until
        # A record newer than the holder's own was written by a replica that did not know that holder.
        is_older = self.is_restored and self._age[1] <= self._newest[1]
        return now < self.expires_at and not (is_older and now < self.renewed_at + self._duration)

    async def write(self) -> None:
        """Become the holder of the lease, whoever held it when it was read last. Raises ConflictError if it changed."""
        await self._write(self._make_record())
        self._newest = self._age

    async def _write(self, record: dict[str, Any]) -> None:
        self._doubtful = self._version
        try:
            if self._observed is None:
                written = await self._object.client.post(self._object.collection, record)
            else:
                written = await self._object.client.put(self._object.path, record)
        except ApiError as error:
            if not isinstance(error, ServerError):
                self._doubtful = None
            if isinstance(error, ConflictError | NotFoundError):
                self._observed = None  # read it before the next attempt: perhaps only a label was changed
            raise
        self._doubtful = None
        self._observe(written)

    async def release(self) -> None:
        """Release the lease, if it is held, so that another process need not wait until it expires.

        Raises as requests do: ConflictError or NotFoundError if somebody has changed the record.
        """
        if self.holder == self.identity and self._observed is not None:
            await self._write(self._make_released())

    async def settle(self) -> None:
        """Find out whether a write without a response has acquired the lease, and keep it from doing so later.

        Either it is stored, or the record of a free lease is in its place: both test the same resource version.
        """
        if self._doubtful is None or self.holder == self.identity:
            return
        await self.read()
        if self._doubtful == self._version:  # it is not stored, or not yet
            try:
                await self._write(self._make_released())
            except (ConflictError, NotFoundError):
                await self.read()

    def _make_released(self) -> dict[str, Any]:
        record = self._make_record()
        record["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        return record

    async def read(self) -> None:
        """Read the lease. Raises as requests do."""
        try:
            self._observe(await self._object.client.get(self._object.path))
        except NotFoundError:
            self._observed, self.holder = None, ""
            self._note_contact()

    def _observe(self, record: Mapping[str, Any]) -> None:
        """Take a record from the server. Its time starts again only if it has changed, or may have.

        If it was not read for as long as it lasts, it may have been renewed, and a restore of etcd have undone that.
        """
        spec, now = record.get("spec"), trio.current_time()
        if self._observed is None or spec != self._observed.get("spec") or now >= self._seen_at + self._duration:
            self._observed_at = now
        self._observed = dict(record)
        holder = self._spec.get("holderIdentity")
        self.holder = holder if isinstance(holder, str) else ""
        if self.holder not in ("", self.identity):
            self._busy_until = max(self._busy_until, self.expires_at)
        self._newest = max(self._newest, self._age)
        self._note_contact()

    def _note_contact(self) -> None:
        """Leave the lease to others for a while if etcd was restored, and they may have acquired it unseen before."""
        now = trio.current_time()
        if self.is_restored and now >= self._seen_at + self._duration:
            self._busy_until = max(self._busy_until, now + self._duration)
        self._seen_at = now

    @property
    def _age(self) -> tuple[int, str]:
        """A number that grows with each write of a holder, by the clock of the same holder."""
        return self.transitions, str(self._spec.get("renewTime") or "")

    @property
    def _version(self) -> str:
        """The resource version of the record, as last seen; empty if there is none."""
        metadata = (self._observed or {}).get("metadata")
        return str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""

    @property
    def _spec(self) -> Mapping[str, Any]:
        spec = (self._observed or {}).get("spec")
        return spec if isinstance(spec, dict) else {}

    def _make_record(self) -> dict[str, Any]:
        now = wall_now().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = self._spec
        taken = self.holder != self.identity
        metadata = (self._observed or {}).get("metadata") or self._object.metadata
        spec = {
            **before,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._duration),  # never shorter than the holder takes it for
            "renewTime": now,
            "acquireTime": now if taken else before.get("acquireTime", now),
            "leaseTransitions": self.transitions + (taken and bool(before)),
        }
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": dict(metadata), "spec": spec}
