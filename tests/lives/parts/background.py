"""Objects with daemons that end by themselves and such that do not, and with timers, by intervals and by the clock."""

# The framework is a module that the plan chooses.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import trio

import trioperator
from tests.lives.parts.base import Part
from trioperator import DaemonStoppingReason
from trioperator._concurrency.clock import wall_now
from trioperator.errors import ApiError

if TYPE_CHECKING:
    from tests.lives.operators import Operator

# Seconds between the calls by the clock, and how late they may be.
_SCHEDULE, _PERIOD, _LATE = "*/10 * * * *", 600.0, 70.0
# Seconds between two writes of a field that others undo, with jitter, and after which it is no longer contended if they
# let it be.
_HELD, _CALM = 72.0, 60.0
# Troubles in which finalizers are removed by others, or objects are gone otherwise.
_FORCED = ("releases", "restore", "strangers", "upgrades")
# Seconds that are lost by rounding.
_INSTANT = 1e-3


class Background(Part):
    """Gizmos."""

    kind, plural = "Gizmo", "gizmos"
    first = "g0"

    def __init__(self, life: Any, options: dict[str, Any]) -> None:
        super().__init__(life, options)
        self.ticks: dict[str, list[tuple[float, int]]] = {}
        self.passed: list[float] = []
        self.edited: dict[str, tuple[object, float]] = {}  # the last serial that was set, and when

    @classmethod
    def draw(cls, rng: random.Random, troubles: frozenset[str]) -> dict[str, Any]:
        return {
            "objects": {f"g{number}": {"serial": "0"} for number in range(rng.choice([1, 2]))},
            "early": rng.random() < 0.7,
            "interval": rng.choice([0.2, 1]) if troubles & {"lease", "slow leases"} else rng.choice([3, 5]),
            "cron": "clock" in troubles or rng.random() < 0.2,
            "by_object": rng.random() < 0.4,
        }

    @classmethod
    def draw_deed(cls, rng: random.Random, options: dict[str, Any], number: int) -> tuple[str, tuple[Any, ...]]:
        name = rng.choice(sorted(options["objects"]))
        deed = rng.choice(["edit", "create", "create", "delete"])
        spec = (
            {"serial": str(number), "every": rng.choice([None, 2, 7])}
            if options["by_object"]
            else {"serial": str(number)}
        )
        return f"gizmos.{deed}", (name, spec) if deed == "edit" else (name,)

    async def edit(self, name: str, spec: dict[str, Any]) -> None:
        await super().edit(name, spec)
        self.edited[name] = spec["serial"], trio.current_time()

    async def fight(self, name: str, pause: float, seconds: float) -> None:
        """Undo what the timer writes, again and again."""
        with trio.move_on_after(seconds):
            while not self.life.is_peaceful:
                with contextlib.suppress(ApiError):
                    await self.life.cluster.patch("gizmos", name, {"status": {"history": None}}, subresource="status")
                await trio.sleep(pause)

    def declare(self, registry: trioperator.OperatorRegistry, operator: Operator) -> None:
        who = operator.name

        @self.framework.daemon("gizmos", id="once", registry=registry)
        async def once(meta: Any, **_: Any) -> None:
            with self.life.call(who, "once", meta):
                await anyio.sleep(self.life.random.choice([0, 0.1, 2]))

        @self.framework.daemon("gizmos", id="endless", registry=registry, cancellation_timeout=2)
        async def endless(meta: Any, stopped: Any, **_: Any) -> None:
            with self.life.call(who, "endless", meta):
                await stopped.wait()

        if seconds := self.life.plan.options.get("lasting"):

            @self.framework.daemon("gizmos", id="lasting", registry=registry)
            async def lasting(meta: Any, stopped: Any, **_: Any) -> None:
                with self.life.call(who, "endless, and lasting", meta):
                    await stopped.wait()
                    await anyio.sleep(seconds)
                    await self._check_end(meta, stopped.reason)

        if pause := self.life.plan.options.get("noted"):

            @self.framework.on.event("gizmos", id="note", registry=registry)
            async def note(type: Any, meta: Any, **_: Any) -> None:
                with self.life.call(who, "note", meta):
                    await anyio.sleep(0 if type == "MODIFIED" else pause)

        usual, by_object = self.options["interval"], self.options.get("by_object")  # old plans have none
        interval: Any = (lambda spec, **_: spec.get("every") or usual) if by_object else usual
        schedule: Any = (lambda spec, **_: spec.get("at", _SCHEDULE)) if by_object else _SCHEDULE

        @self.framework.timer("gizmos", id="tick", registry=registry, interval=interval)
        async def tick(meta: Any, status: Any, patch: Any, retry: int, **_: Any) -> None:
            with self.life.call(who, "tick", meta):
                ticks = self.ticks.setdefault(meta["uid"], [])
                history = status.get("history", [])
                history.append(len(ticks))
                del history[:-3]
                patch.status["history"] = history
                ticks.append((trio.current_time(), len(ticks)))

        if idle := self.life.plan.options.get("idle"):

            @self.framework.timer("gizmos", id="rest", registry=registry, idle=idle)
            async def rest(spec: Any, meta: Any, **_: Any) -> None:
                with self.life.call(who, "rest", meta, seen=spec["serial"]):
                    self._check_rest(meta["name"], spec["serial"], idle)
                    await anyio.lowlevel.checkpoint()

        if self.options["cron"]:

            @self.framework.timer("gizmos", id="cron", registry=registry, cron=schedule)
            async def cron(meta: Any, **_: Any) -> None:
                with self.life.call(who, "cron", meta):
                    await anyio.lowlevel.checkpoint()

    async def accompany(self) -> None:
        """Note when the wall clock passes a time at which timers are due."""
        before = latest = wall_now().timestamp()
        while self.options["cron"]:
            await trio.sleep(5)
            now = wall_now().timestamp()
            if 4 < now - before < 6 and now // _PERIOD > latest // _PERIOD:
                self.passed.append(trio.current_time())
            before, latest = now, max(now, latest)

    async def check(self) -> None:
        now, journal = trio.current_time(), self.life.journal
        for call in journal.calls:
            same = (call.operator, call.run, call.uid)
            if call.handler == "once" and call.succeeded:
                done = [c for c in journal.of("once", call.name) if c.succeeded and (c.operator, c.run, c.uid) == same]
                if len(done) > 1 and not self.life.has("restore"):
                    self.find("daemon again", f"the daemon of {call.name} has ended, and is called again")
        for each in await self.objects():
            meta = each["metadata"]
            running = [call for call in journal.running if call.handler == "endless" and call.uid == meta["uid"]]
            if len(running) != 1:
                self.find("daemons", f"{len(running)} daemons of {meta['name']} are running")
            if self.life.plan.options.get("idle"):
                seen = journal.last_seen("rest", meta["name"], meta["uid"])
                if seen != each["spec"]["serial"]:
                    self.find("no ticks", f"{meta['name']} is idle, and the timer that waits for that has seen {seen}")
            ticks = self.ticks.get(meta["uid"], [])
            if not ticks or now - ticks[-1][0] > 60:
                self.find("no ticks", f"the timer of {meta['name']} is not called")
            old = [number for time, number in ticks if now - time > self._lag()]
            stored = ((each.get("status") or {}).get("history") or [-1])[-1]
            if old and stored < old[-1]:
                self.find(
                    "lost write", f"the history of {meta['name']} ends with {stored}, and the timer set {old[-1]}"
                )
            for passed in self.passed:
                calls = [call for call in journal.of("cron", meta["name"]) if -10 < call.started - passed < _LATE]
                daemons = [call for call in journal.of("endless", meta["name"]) if call.uid == meta["uid"]]
                created = min((call.started for call in daemons), default=now)
                if not calls and passed + _LATE < now and created < passed and not self.life.has("restart", "holds"):
                    self.find("late", f"the timer of {meta['name']} was due by the clock at {passed:.0f} s")

    async def _check_end(self, meta: Any, reason: DaemonStoppingReason) -> None:
        """Make sure that an object is there until its daemon has ended, unless others may have seen to its end."""
        own = DaemonStoppingReason.FILTERS_MISMATCH | DaemonStoppingReason.RESOURCE_DELETED
        if reason & ~own or self.life.has(*_FORCED) or self.life.plan.together not in {"alone", "apart"}:
            return
        found = await self.life.cluster.find("gizmos", meta["name"], "default")
        if found is None or found["metadata"]["uid"] != meta["uid"]:
            self.find("deleted too early", f"{meta['name']} is gone, and its daemon has not ended")

    def _check_rest(self, name: str, serial: object, idle: float) -> None:
        """Make sure that an object has not been changed for long enough, as seen, unless a poke lets timers be due."""
        changed, since = self.edited.get(name, (None, 0.0))
        passed = trio.current_time() - since
        if changed == serial and passed < idle - _INSTANT and not self.life.has("holds", "pokes"):
            self.find("too early", f"{name} was changed {passed:.3f} s ago, and it should be idle for {idle} s")

    def _lag(self) -> float:
        """Return how old what is stored may be, in seconds: it is written once a minute until a fight is long over."""
        interval = max(self.options["interval"], 7 if self.options.get("by_object") else 0)
        is_over = trio.current_time() > self.life.end + _HELD + _CALM + interval
        return 1 if is_over or not self.life.has("fights") else _HELD + interval + 1
