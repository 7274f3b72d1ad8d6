"""Peering: operators that know of each other by a peering object, and pause in favour of others.

It goes together with Kopf's ("Peering"): each operator keeps a record of itself on the object alive; an operator pauses
while there is another one with a higher priority, or with the same. One peering object is for the whole cluster, or
for one namespace.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Collection
from typing import Any, Final

import msgspec
import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.clock import steady_now, wall_now
from trioperator._concurrency.core_tasks import keep
from trioperator._concurrency.pulse import Pulse
from trioperator._coordination.pauses import Pauses
from trioperator._coordination.peer_records import OwnRecord, Records
from trioperator._coordination.peers import Candidate, Peer, Verdict, parse_peers
from trioperator._kube.api_client import ApiClient
from trioperator._kube.objects import RawObject, parse_object
from trioperator._logs import get_logger
from trioperator._model.resource import Resource
from trioperator.errors import ApiError, NotFoundError, TrioperatorError
from trioperator.settings import LeadershipSettings, OperatorSettings

GROUPS: Final = ("kopf.dev", "zalando.org")

# Range of the seconds by which a record is renewed before it ends, as in Kopf.
_AHEAD: Final = (5.0, 10.0)
# Limits of the time that a renewal may take, so that there is time for another attempt: fractions of the lifetime, and
# of what is left of it; but never less than this many seconds.
_PATIENCE, _SECOND_CHANCE, _SHORTEST = 0.25, 0.5, 1.0
# Margin by which the operator pauses before its record ends: seconds at most, and a fraction of the lifetime.
_MARGIN, _MARGIN_SHARE = 1.0, 0.1
# Seconds that removing the record may take when the operator stops.
_REMOVE_TIMEOUT: Final = 2.0
# Delays between attempts to renew a record after errors.
_BACKOFF: Final = Backoff(initial=1.0, maximum=30.0, jitter=0.25)

_logger = get_logger("trioperator.coordination")


async def find_peering_resource(client: ApiClient, *, clusterwide: bool) -> Resource | None:
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


class PeeringObject(msgspec.Struct, frozen=True):
    """A peering object: its kind, its namespace unless it is for the whole cluster, and its name."""

    resource: Resource
    namespace: str | None
    name: str

    @property
    def owner(self) -> str:
        """The owner of pauses because of other operators."""
        return f"peering {self.namespace or ''}"

    async def write_record(self, client: ApiClient, peer: Peer) -> bytes:
        """Store the record of an operator, and return the object as JSON. Raises as requests do."""
        return await self._patch(client, {"status": {peer.identity: peer.make_record()}})

    async def remove_records(self, client: ApiClient, identities: Collection[str], *, version: str = "") -> None:
        """Remove records, only from this *version* of the object if one is given. Raises as requests do."""
        patch: dict[str, Any] = {"status": dict.fromkeys(identities)}
        if version:
            patch["metadata"] = {"resourceVersion": version}
        await self._patch(client, patch)

    async def _patch(self, client: ApiClient, patch: dict[str, Any]) -> bytes:
        path = self.resource.get_path(namespace=self.namespace, name=self.name)
        return await client.patch(f"{path}/status" if "status" in self.resource.subresources else path, patch)


def _find_lease(client: ApiClient, settings: LeadershipSettings) -> str:
    """Return the Lease that replicas of the operator share, as ``namespace/name``; empty if there is none."""
    if not settings.expects_replicas:
        return ""
    return f"{settings.namespace or client.credentials.default_namespace}/{settings.name}"


class Peering:
    """One peering object, as the operator *identity* takes part in it. It is an observer for a reflector."""

    def __init__(
        self,
        client: ApiClient,
        pauses: Pauses,
        obj: PeeringObject,
        *,
        identity: str,
        settings: OperatorSettings,
    ) -> None:
        self.path = obj.resource.get_path(namespace=obj.namespace)
        self._client = client
        self._pauses = pauses
        self._object = obj
        self._settings = settings.peering
        self._is_divided = bool(settings.watching.shard_selectors)
        self._lease = _find_lease(client, settings.leadership)
        self._records = Records(identity)
        self._own = OwnRecord()
        self._changed = Pulse()
        self._due = Pulse()  # the own record is to be written, and all are to be read with it
        self._died = Pulse()

    def __str__(self) -> str:
        where = f" in namespace {self._object.namespace!r}" if self._object.namespace else ""
        return f"peering object {self._object.name!r}{where}"

    # The interface of the reflector.

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take a watch event, or with type None an object of a list. Returns its key."""
        key = obj.uid or obj.name
        if obj.name != self._object.name:
            return key
        if type == "DELETED":
            self._forget()
        elif type is None or self._records.uid != key or not self._records.is_newer_than(obj):
            self._take(obj)
        return key

    def _take(self, obj: RawObject) -> None:
        try:
            status = obj.decode().get("status")
        except (msgspec.MsgspecError, ValueError) as error:
            _logger.warning("The %s cannot be read: %s", self, error)
            return
        records, before, now = self._records, self._records.uid, wall_now()
        records.take(obj, parse_peers(status, now=now), self._own, now=now, steady=steady_now())
        # Without numbers as versions, the watch may just be late.
        has_numbers = obj.resource_version.isdecimal()
        if records.uid != before or (has_numbers and self._own.is_taken_back(records.own, now=trio.current_time())):
            self._due.set()
        self._note_change()

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list."""
        if self._records.uid is not None and self._records.uid not in listed:
            self._forget()
        elif self._records.uid is None:
            if not self._settings.mandatory and self._settings.name == "default":
                _logger.warning("Default peering object is not found, falling back to the standalone mode.")
            elif not self._settings.mandatory:
                _logger.warning("The %s is not found, falling back to the standalone mode.", self)
            self._note_change()

    def _forget(self) -> None:
        if self._records.uid is not None and not self._settings.mandatory:
            _logger.warning("The %s is gone, falling back to the standalone mode.", self)
        self._records.forget()
        self._own.forget()
        self._note_change()

    def _note_change(self) -> None:
        self.judge()  # at once: nothing is handled between the news and the pause
        self._changed.set()

    # The tasks.

    async def serve(self) -> None:
        """Keep the operator's record alive, and pause and resume the operator, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, f"keep alive in the {self}", self._keep_alive, name=f"keep alive in the {self}")
            nursery.start_soon(keep, f"clean up the {self}", self._clean_up, name=f"clean up the {self}")
            while True:  # nothing here waits for requests: the next pause must come in time
                verdict = self.judge()
                if verdict.dead:
                    self._died.set()
                wait = (verdict.until - steady_now()).total_seconds() if verdict.until else math.inf
                if verdict.is_doubtful:  # a watch may be silent, or late: the response to a keep-alive tells
                    self._due.set()
                    wait = math.inf
                now = trio.current_time()
                expires_at = self._own.expires_at if self._own.expires_at > now else math.inf
                with trio.move_on_at(min(now + max(0.0, wait), expires_at)):
                    await self._changed.wait()

    def judge(self) -> Verdict:
        """Pause or resume the operator by what was seen last.

        When the own record has expired, others take the operator for dead, and do not wait until it has paused in
        order: everything is cancelled at once. Nothing is written from that moment on, also if the process was
        suspended then.
        """
        settings, records, expires_at = self._settings, self._records, self._own.expires_at
        candidate = Candidate(
            records.identity,
            settings.priority,
            tie_break=settings.tie_break,
            is_divided=self._is_divided,
            lease=self._lease,
        )
        verdict = candidate.judge(records.peers, now=steady_now(), read_at=records.read_at)
        is_expired = trio.current_time() >= expires_at
        reason = f"until the {self} exists" if records.uid is None and settings.mandatory else verdict.reason
        if reason is None and is_expired:
            reason = f"until it can show that it is alive in the {self}"
        if reason is None:
            self._pauses.resume(self._object.owner, until=expires_at)
        else:
            self._pauses.pause(self._object.owner, reason, at_once=is_expired, until=expires_at)
        return verdict

    async def _clean_up(self) -> None:
        """Remove the records of operators that are dead, once each time that they are seen.

        One that shows just now that it is alive keeps its record: where the object has changed meanwhile, nothing is
        removed, and the watch brings what it is now.
        """
        while True:
            await self._died.wait()
            dead = self.judge().dead  # by now: there may be others, or none
            if not dead:
                continue
            self._records.drop(dead)
            try:
                await self._object.remove_records(self._client, dead, version=self._records.version)
            except TrioperatorError as error:
                _logger.debug("The records of dead operators stay in the %s: %s", self, error)

    async def _keep_alive(self) -> None:
        failures = 0
        while True:
            if self._records.uid is None:
                await self._due.wait()
            began = steady_now()
            try:
                with trio.fail_after(self._timeout):
                    await self._touch()
            except NotFoundError:
                self._own.end(may_be_stored=False)
                self._forget()
                continue
            except (TrioperatorError, trio.TooSlowError) as error:
                failures += 1
                self._own.end(may_be_stored=not isinstance(error, ApiError))
                self._trust(began)  # nothing better is to be had: the own record ends, too, if this goes on
                why = str(error) or "no response in time"
                _logger.warning("The operator cannot show that it is alive in the %s: %s", self, why)
            else:
                failures = 0
            lifetime = self._settings.lifetime
            ahead = max(min(_SHORTEST, lifetime / 2), lifetime - random.uniform(*_AHEAD))
            with trio.move_on_after(min(ahead, _BACKOFF.delay(failures)) if failures else ahead):
                await self._due.wait()

    @property
    def _timeout(self) -> float:
        """Timeout of a keep-alive in seconds: short enough for another attempt before the record expires."""
        lifetime, left = self._settings.lifetime, self._own.expires_at - trio.current_time()
        return max(_SHORTEST, lifetime * _PATIENCE if left <= 0 else min(lifetime * _PATIENCE, left * _SECOND_CHANCE))

    async def _touch(self) -> None:
        settings, began, now, steady = self._settings, trio.current_time(), wall_now(), steady_now()
        peer = Peer(self._records.identity, settings.priority, settings.lifetime, now, self._lease)
        self._own.begin()
        stored = await self._object.write_record(self._client, peer)
        if self._records.uid is None:
            self._own.end(may_be_stored=False)
            return  # it is gone meanwhile
        margin = min(_MARGIN, settings.lifetime * _MARGIN_SHARE)
        self._own.store(now, expires_at=began + settings.lifetime - margin)
        self._read(stored, peer)
        self._trust(steady)
        if not settings.stealth:
            _logger.debug("Keep-alive in the %s: ok.", self)

    def _read(self, stored: bytes, own: Peer) -> None:
        """Take the records of all operators, as the response to a keep-alive has them.

        A later state that the watch has brought has the *own* record, too, unless etcd was restored meanwhile.
        """
        try:
            obj = parse_object(stored)
        except (msgspec.MsgspecError, ValueError) as error:
            _logger.warning("The %s cannot be read: %s", self, error)
            return
        if not self._records.is_newer_than(obj) or own != self._records.own:
            self._take(obj)

    def _trust(self, read_at: datetime.datetime) -> None:
        """Treat the known records as read at that time."""
        self._records.read_at = read_at
        self._note_change()

    def leave(self) -> None:
        """Pause the operator no more, as the namespace is gone."""
        self._pauses.resume(self._object.owner)

    async def release(self) -> None:
        """Remove the operator's record, so that others need not wait until it ends."""
        if not self._own.may_exist:
            return
        with trio.move_on_after(_REMOVE_TIMEOUT, shield=True) as scope:
            try:
                await self._object.remove_records(self._client, [self._records.identity])
            except TrioperatorError as error:
                _logger.warning("The operator's record stays in the %s until it ends: %s", self, error)
        if scope.cancelled_caught:
            _logger.warning("The operator's record stays in the %s until it ends: no response in time.", self)
