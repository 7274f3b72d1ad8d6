"""Peering: operators that know of each other by a peering object, and pause in favour of others.

It goes together with Kopf's ("Peering"): each operator keeps a record of itself on the object alive; an operator pauses
while there is another one with a higher priority, or with the same. One peering object is for the whole cluster, or
for one namespace.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from typing import Any, Final

import msgspec
import trio

from trioperator.backoff import Backoff
from trioperator.clock import wall_now
from trioperator.coordination.pauses import Pauses
from trioperator.coordination.peers import Peer, Verdict, judge, parse_peers
from trioperator.core_tasks import keep
from trioperator.errors import NotFoundError, TrioperatorError
from trioperator.kube.client import Client
from trioperator.kube.watch import RawObject
from trioperator.logs import get_logger
from trioperator.model.resource import Resource
from trioperator.pulse import Pulse
from trioperator.settings import PeeringSettings

__all__ = ["GROUPS", "Peering", "find_peering_resource", "remove_record", "write_record"]

GROUPS: Final = ("kopf.dev", "zalando.org")

# Seconds, as a range, by which a record is renewed before it ends (Kopf's).
_AHEAD: Final = (5.0, 10.0)
# Seconds that removing the record may take when the operator stops.
_REMOVE_TIMEOUT: Final = 2.0
# Between attempts to renew a record after errors.
_BACKOFF: Final = Backoff(initial=1.0, maximum=30.0, jitter=0.25)

_logger = get_logger("trioperator.coordination")


async def find_peering_resource(client: Client, *, clusterwide: bool) -> Resource | None:
    """Return the kind of peering objects that the cluster has; None if it has none. Raises as requests do."""
    plural = "clusterkopfpeerings" if clusterwide else "kopfpeerings"
    for group in GROUPS:
        try:
            document = await client.get(f"/apis/{group}/v1")
        except NotFoundError:
            continue
        names = {str(each.get("name")) for each in document.get("resources") or () if isinstance(each, dict)}
        if plural in names:
            subresources = frozenset({"status"}) if f"{plural}/status" in names else frozenset()
            return Resource(group, "v1", plural, namespaced=not clusterwide, subresources=subresources)
    return None


async def write_record(client: Client, resource: Resource, namespace: str | None, name: str, peer: Peer) -> None:
    """Store the record of an operator on a peering object. Raises as requests do."""
    await _patch(client, resource, namespace, name, {peer.identity: peer.make_record()})


async def remove_record(
    client: Client, resource: Resource, namespace: str | None, name: str, identities: Collection[str]
) -> None:
    """Remove records from a peering object. Raises as requests do."""
    await _patch(client, resource, namespace, name, dict.fromkeys(identities))


async def _patch(client: Client, resource: Resource, namespace: str | None, name: str, status: dict[str, Any]) -> None:
    path = resource.get_path(namespace=namespace, name=name)
    await client.patch(f"{path}/status" if "status" in resource.subresources else path, {"status": status})


class Peering:
    """One peering object, as the operator *identity* takes part in it. It is an observer for a reflector."""

    def __init__(
        self,
        client: Client,
        pauses: Pauses,
        *,
        resource: Resource,
        namespace: str | None,
        identity: str,
        settings: PeeringSettings,
    ) -> None:
        self.path = resource.get_path(namespace=namespace)
        self._client = client
        self._pauses = pauses
        self._resource = resource
        self._namespace = namespace
        self._identity = identity
        self._settings = settings
        self._owner = f"peering {namespace or ''}"
        self._peers: list[Peer] = []
        self._uid: str | None = None
        self._changed = Pulse()
        self._appeared = Pulse()
        self._written = False

    def __str__(self) -> str:
        where = f" in namespace {self._namespace!r}" if self._namespace else ""
        return f"peering object {self._settings.name!r}{where}"

    # What the reflector sees.

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take a watch event, or with type None an object of a list. Returns its key."""
        key = obj.uid or obj.name
        if obj.name != self._settings.name:
            return key
        if type == "DELETED":
            self._forget()
            return key
        try:
            status = obj.decode().get("status")
        except (msgspec.MsgspecError, ValueError) as error:
            _logger.warning("The %s cannot be read: %s", self, error)
            return key
        self._peers = parse_peers(status, now=wall_now())
        if self._uid != key:
            self._uid = key
            self._appeared.set()
        self._note_change()
        return key

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list."""
        if self._uid is not None and self._uid not in listed:
            self._forget()
        elif self._uid is None:
            if not self._settings.mandatory and self._settings.name == "default":
                _logger.warning("Default peering object is not found, falling back to the standalone mode.")
            elif not self._settings.mandatory:
                _logger.warning("The %s is not found, falling back to the standalone mode.", self)
            self._note_change()

    def _forget(self) -> None:
        self._uid, self._peers, self._written = None, [], False
        self._note_change()

    def _note_change(self) -> None:
        self.judge()  # at once: nothing is handled between the news and the pause
        self._changed.set()

    # What follows from that.

    async def serve(self) -> None:
        """Keep the operator's record alive, and pause and resume the operator, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, f"keep alive in the {self}", self._keep_alive, name=f"keep alive in the {self}")
            while True:
                verdict = self.judge()
                if verdict.dead:
                    await self._remove(verdict.dead)
                wait = (verdict.until - wall_now()).total_seconds() if verdict.until else math.inf
                with trio.move_on_after(max(0.0, wait)):
                    await self._changed.wait()

    def judge(self) -> Verdict:
        """Pause or resume the operator by what was seen last."""
        settings = self._settings
        verdict = judge(
            self._peers,
            identity=self._identity,
            priority=settings.priority,
            now=wall_now(),
            tie_break=settings.tie_break,
        )
        reason = f"until the {self} exists" if self._uid is None and settings.mandatory else verdict.reason
        if reason is None:
            self._pauses.resume(self._owner)
        else:
            self._pauses.pause(self._owner, reason)
        return verdict

    async def _remove(self, dead: Collection[str]) -> None:
        """Remove the records of operators that are dead."""
        self._peers = [peer for peer in self._peers if peer.identity not in dead]
        try:
            await remove_record(self._client, self._resource, self._namespace, self._settings.name, dead)
        except TrioperatorError as error:
            _logger.debug("The records of dead operators stay in the %s: %s", self, error)

    async def _keep_alive(self) -> None:
        failures = 0
        while True:
            if self._uid is None:
                await self._appeared.wait()
            try:
                await self._touch()
            except NotFoundError:
                self._forget()
                continue
            except TrioperatorError as error:
                failures += 1
                _logger.warning("The operator cannot show that it is alive in the %s: %s", self, error)
            else:
                failures = 0
            ahead = max(1.0, self._settings.lifetime - random.uniform(*_AHEAD))
            with trio.move_on_after(min(ahead, _BACKOFF.delay(failures)) if failures else ahead):
                await self._appeared.wait()

    async def _touch(self) -> None:
        settings = self._settings
        peer = Peer(self._identity, settings.priority, settings.lifetime, wall_now())
        await write_record(self._client, self._resource, self._namespace, settings.name, peer)
        self._written = True
        if not settings.stealth:
            _logger.debug("Keep-alive in the %s: ok.", self)

    def leave(self) -> None:
        """Pause the operator no more, as the namespace is gone."""
        self._pauses.resume(self._owner)

    async def release(self) -> None:
        """Remove the operator's record, so that others need not wait until it ends."""
        if not self._written:
            return
        with trio.move_on_after(_REMOVE_TIMEOUT, shield=True) as scope:
            try:
                await remove_record(
                    self._client, self._resource, self._namespace, self._settings.name, [self._identity]
                )
            except TrioperatorError as error:
                _logger.warning("The operator's record stays in the %s until it ends: %s", self, error)
        if scope.cancelled_caught:
            _logger.warning("The operator's record stays in the %s until it ends: no response in time.", self)
