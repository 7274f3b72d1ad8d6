"""Who may act: as the Lease and the peering object in the cluster say, whatever operators believe."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any

import trio

from tests.lives.journal import Call
from trioperator._concurrency.clock import wall_now

if TYPE_CHECKING:
    from tests.lives.life import Life

# Seconds in which an operator has noticed a peer that outranks it.
_NOTICE = 8.0
# Troubles by which a pause may be noticed later.
_DELAYS = ("watches", "retire", "reads", "late start", "slow", "rights", "freeze")


class Leases:
    """The holder of the leader's Lease."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.holder: str | None = None
        self.since = 0.0

    async def look(self) -> None:
        """See who holds the Lease."""
        if self._life.plan.together != "leader":
            return
        lease = await self._life.cluster.find("leases", "trioperator", namespace="default")
        holder = None if lease is None else lease["spec"].get("holderIdentity")
        if holder != self.holder:
            self.holder, self.since = holder, trio.current_time()

    def forget(self) -> None:
        """Forget the holder, as the Lease is an old one: who has it shows when it is written again."""
        self.holder = None

    def check(self, operator: str, what: str, kind: str) -> None:
        """Make sure that an operator that does something holds the Lease, or cannot know yet that it was stolen."""
        if self.holder in {None, "", operator} or self._life.plan.together != "leader":
            return
        now = self._life.clock.current_time()
        patience = self._life.plan.options["lease"][1] + 1 if self.holder == "thief" else 0.0
        if now - self.since > patience:
            self._life.journal.find(kind, f"{operator}: {what}, and {self.holder} has the lease since {self.since:.3f}")


class Peers:
    """The records of the peering object."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self.records: dict[tuple[str, str], dict[str, Any]] = {}  # by their namespaces and identities
        self.since: dict[tuple[str, str], float] = {}
        self._latest: list[Call] = []

    async def look(self) -> None:
        """See who is alive."""
        if self._life.plan.together != "peering":
            return
        records = {
            (each["metadata"].get("namespace", ""), identity): record
            for each in await self._life.cluster.list(self._life.peering[1])
            for identity, record in (each.get("status") or {}).items()
        }
        for peer in records:
            if not self._is_alive(peer):
                self.since[peer] = trio.current_time()
        self.records = records

    def check(self, call: Call) -> None:
        """Make sure that nobody outranks the operator, and that it does not take turns with another one."""
        if self._life.plan.together != "peering":
            return
        priority = self._life.operators[call.operator].priority
        now = self._life.clock.current_time()
        for peer, record in self.records.items():
            identity = peer[1]
            if identity == call.operator or record is None or now - self.since[peer] < _NOTICE:
                continue
            if self._is_alive(peer) and record["priority"] >= priority:
                text = f"{call.handler} of {call.name} is called by {call.operator}, which {identity} outranks"
                self._life.journal.find("acts while paused", text)
        self._check_turns(call)

    def _is_alive(self, peer: tuple[str, str]) -> bool:
        """Return whether the record of an operator has not expired, and will not within a second."""
        record = self.records.get(peer)
        if record is None:
            return False
        seen = datetime.datetime.fromisoformat(record["lastseen"])
        seen = seen if seen.tzinfo else seen.replace(tzinfo=datetime.UTC)
        now = wall_now() if trio.lowlevel.in_trio_run() else trio.from_thread.run_sync(wall_now)
        return (seen + datetime.timedelta(seconds=record["lifetime"] - 1)) > now

    def _check_turns(self, call: Call) -> None:
        """Find operators that act by turns, each with a new call, though none of them has come or gone."""
        recent = [each for each in self._latest if call.started - each.started < 45]
        changes = [change for change in self._life.journal.changes if call.started - change < 75]
        self._latest = [*recent, call]
        turns = [each.operator for each in self._latest]
        distinct = [one for one, before in zip(turns, [None, *turns], strict=False) if one != before]
        if len(distinct) > 3 and not changes:
            self._life.journal.find("two are active", f"operators act by turns: {', '.join(distinct)} for {call.name}")


class Holds:
    """The objects that are paused by their annotations, since when and until when."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._spans: dict[str, tuple[float, float]] = {}

    def begin(self, uid: str, seconds: float) -> None:
        """Note that an object is paused for so many *seconds*."""
        now = trio.current_time()
        since, until = self._spans.get(uid, (now, math.inf))
        self._spans[uid] = since, min(until, now + seconds)

    def end(self, uid: str) -> None:
        """Note that an object is no longer paused, or will not be in a moment."""
        self._spans.pop(uid, None)

    def check(self, call: Call) -> None:
        """Make sure that no handler is called for an object that is paused, if that can be known, but to delete it."""
        since, until = self._spans.get(call.uid, (math.inf, math.inf))
        if call.name in self._life.journal.gone or self._life.has(*_DELAYS):
            return
        # In the moment in which a pause expires, the operator may be the first to know it. Dates have microseconds.
        if since + _NOTICE < self._life.clock.current_time() < until - 1e-6:
            text = f"{call.handler} of {call.name} is called by {call.operator}, and it is paused since {since:.3f}"
            self._life.journal.find("acts on a paused object", text)
