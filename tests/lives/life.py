"""A life: a cluster, operators that live in it, those who change objects, and what goes wrong."""

from __future__ import annotations

import contextlib
import logging
import random
import re
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import httpx
import trio
from trio.testing import MockClock

import trioperator
from tests.lives import deeds
from tests.lives.journal import Call, Journal, Log
from tests.lives.network import Checkpoints, connected
from tests.lives.operators import Operator
from tests.lives.parts import PARTS, Part
from tests.lives.plans import PEACE, TROUBLE, Plan
from tests.lives.rules import Holds, Leases, Peers
from tests.lives.verdict import judge
from tests.lives.world import (
    CLUSTERS_PEERING,
    NAMESPACES_PEERING,
    definition,
    make_fault,
    peering,
    peering_definition,
)
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError, ConfigError
from trioperator.kopf.names import make_modules
from trioperator.testing import FaultPlan, deterministic
from trioperator.testing.plans import RequestInfo

_ROUTINE = re.compile(r"/(events|leases|(cluster)?kopfpeerings|selfsubject\w+|namespaces/[^/]+/events)(/|$)")
# Passes of the event loop without any time passing, and seconds of CPU, after which a life has gone astray.
_SPINS, _LIMIT = 20_000, 40.0
# How often time passes until the clock of the process is looked at: to ask for it each time is a twentieth of a life.
_MOVES = 64


class Life:
    """One life, as its plan says."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.cluster = Cluster(clock=wall_now, seed=plan.seed, shard_selectors=plan.options.get("divides", True))
        self.clock = MockClock(autojump_threshold=0)
        self.scope = trio.CancelScope()
        overlap = plan.together in {"peering", "apart"}
        self.journal = Journal(
            lambda: self.scope.cancel(reason="a storm"), self.clock.current_time, may_overlap=overlap
        )
        self.is_peaceful = False
        self.leases = Leases(self)
        self.peers = Peers(self)
        self.peering = NAMESPACES_PEERING if plan.options.get("namespaces") else CLUSTERS_PEERING
        self.holds = Holds(self)
        self.stolen: set[str] = set()  # names of what others have deleted
        self.parts: list[Part] = [PARTS[part.name](self, part.options) for part in plan.parts]
        names = [chr(ord("a") + number) for number in range(plan.replicas)]
        self.faults = {name: FaultPlan(seed=plan.seed) for name in names}
        self.slow: list[tuple[float, float, str, float]] = []
        self.checkpoints = {
            name: Checkpoints(self, name, plan.ambushes if name == "a" else ()) for name in (*names, "client")
        }
        self.faults["client"] = FaultPlan(seed=plan.seed)
        self.operators = {name: Operator(self, name) for name in names}
        self.saved: Any = None
        self.frozen = 0.0  # seconds, so far
        self.stolen_until = 0.0  # the lease
        self.cut = trio.Event()  # watches of the cluster that is there now
        self.tide = trio.Event()  # which lets the events of watches pass
        self.tide.set()
        self.forbidden: set[str] = set()
        self.end = 0.0
        self.framework: Any = make_modules()["kopf"] if plan.options.get("asyncio") else trioperator

    def has(self, *troubles: str) -> bool:
        """Return whether the life has any of the troubles."""
        return bool(self.plan.troubles & set(troubles))

    def is_tuned(self, name: str) -> bool:
        """Return whether something of this name is tuned."""
        return name in self.plan.options.get("tuning", ())

    # What the network asks for.

    async def check_request(self, operator: str, request: httpx.Request, info: RequestInfo) -> None:
        """Look at a request when it is sent."""
        if (
            operator in self.operators
            and request.method not in {"GET", "HEAD"}
            and not _ROUTINE.search(request.url.path)
        ):
            self.journal.writes.append((trio.current_time(), info.name))
            if not any(info.resource in part.shared for part in self.parts):
                self.leases.check(operator, f"{request.method} {request.url.path}", "writes without the lease")
            for part in self.parts:
                await part.check_write(operator, info)

    async def note_response(self, operator: str, info: RequestInfo, status: int) -> None:
        """Look at the response to a request before it arrives."""
        if info.resource == "leases" and info.verb != "get" and status < 400:
            await self.leases.look()
        if info.resource == self.peering[1] and info.verb == "patch":
            await self.peers.look()

    async def delay(self, operator: str, info: RequestInfo) -> None:
        """Wait before a response is sent, if it is slow now."""
        now = trio.current_time()
        for since, until, resource, seconds in self.slow:
            if since <= now < until and resource in {"", info.resource} and info.verb != "watch" and operator == "a":
                await trio.sleep(seconds)

    # What handlers ask for.

    @contextlib.contextmanager
    def call(
        self, operator: str, handler: str, meta: Any, *, seen: object = None, group: str | None = None
    ) -> Iterator[Call]:
        """Note the call of a handler."""
        life = self.operators[operator].runs
        call = Call(
            operator=operator,
            run=life,
            handler=handler,
            group=handler if group is None else group,
            uid=meta["uid"],
            name=meta["name"],
            started=self.clock.current_time(),
            seen=seen,
        )
        self.leases.check(operator, f"{handler} of {call.name}", "acts without the lease")
        self.peers.check(call)
        self.holds.check(call)
        with self.journal.call(call):
            yield call

    # The story.

    async def do(self, name: str, args: tuple[Any, ...], *, about: RequestInfo | None = None) -> None:
        """Do a deed: one of all lives, or one of a part (``apps.edit``)."""
        part, _, deed = name.rpartition(".")
        with contextlib.suppress(ApiError, ConfigError):  # the object, or its kind, may not be there
            if part:
                await getattr(next(each for each in self.parts if each.plural == part), deed)(*args)
            elif name == "delete_this":
                assert about is not None
                self.stolen.add(about.name)
                await self.cluster.delete(about.resource, about.name, namespace=about.namespace or None)
            else:
                await getattr(deeds, name)(self, *args)

    async def live(self) -> None:
        """Live."""
        await self._define_missing_kinds()
        if self.plan.together == "peering":
            await self.cluster.apply(peering_definition(*self.peering))
            await self.add_peering(None if self.peering == CLUSTERS_PEERING else "default")
        for namespace in self.plan.options.get("namespaces", ()):
            await self.add_namespace(namespace)
        async with trio.open_nursery() as self.nursery:
            with self.scope, connected(self, self.nursery):
                await self._live()
            self.nursery.cancel_scope.cancel(reason="the life has ended")

    async def add_namespace(self, name: str) -> None:
        """Create a namespace, with a peering object if peers look for one there."""
        await self.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        if self.plan.together == "peering" and self.peering == NAMESPACES_PEERING:
            await self.add_peering(name)

    async def add_peering(self, namespace: str | None) -> None:
        """Create a peering object."""
        await self.cluster.create(peering(self.peering[0], namespace))

    async def _live(self) -> None:
        begun = trio.current_time()
        self.end = begun + TROUBLE
        for part in self.parts:
            for name in part.options["objects"]:
                if part.options.get("early"):
                    await part.create(name)
        for number, operator in enumerate(self.operators.values()):
            self.nursery.start_soon(operator.start_after, self.plan.options.get("starts", (0,) * 9)[number])
        for part in self.parts:
            self.nursery.start_soon(part.accompany)
        async with trio.open_nursery() as steps:
            for step in self.plan.steps:
                steps.start_soon(self._do_at, begun + step.at, step.deed, step.args)
        await trio.sleep_until(self.end)
        await self._come_to_rest()
        for part in self.parts:
            await part.settle()
        await trio.sleep(PEACE if self.plan.together not in {"leader", "shards"} else PEACE / 2)
        self.journal.mark_peace(trio.current_time() - 60)
        for part in self.parts:
            await part.check()
        await judge(self)
        for part in self.parts:
            await part.delete_all()
        await trio.sleep(60)
        for part in self.parts:
            await part.check_gone()
        for operator in self.operators.values():
            await operator.finish()

    async def _define_missing_kinds(self) -> None:
        """Define the kinds of all parts that are not there: not yet, or no longer since they were deleted."""
        for kind in dict.fromkeys(kind for part in self.parts for kind in part.kinds):
            wanted = definition(kind)
            found = await self.cluster.find("customresourcedefinitions", name := wanted["metadata"]["name"])
            if found is not None and "deletionTimestamp" in found["metadata"]:
                await self.cluster.wait_deleted("customresourcedefinitions", name, timeout=100)
            if found is None or "deletionTimestamp" in found["metadata"]:
                await self.cluster.apply(wanted)

    async def _do_at(self, at: float, deed: str, args: tuple[Any, ...]) -> None:
        await trio.sleep_until(at)
        await self.do(deed, args)

    async def _come_to_rest(self) -> None:
        for plan in self.faults.values():
            plan.clear()
            for namespace in self.forbidden:
                plan.add(make_fault("status", 403), verb=["list", "watch"], namespace=namespace)
        self.slow.clear()
        self.is_peaceful = True
        self.end = trio.current_time()  # deeds may have taken longer
        await deeds.release(self)
        await deeds.unclasp_all(self)
        if self.has("strangers"):
            for part in self.parts:
                await part.dismiss_strangers()
        for operator in self.operators.values():
            await operator.wait_crashed()
            if not operator.is_running and not operator.is_retired:
                await operator.start()
        await self._define_missing_kinds()


class _Watchdog(trio.abc.Instrument):
    """Ends a life in which tasks are busy, and time stands still, as no request is sent that others could count."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._time = 0.0
        self._passes = self._moves = 0
        self._started = time.process_time()

    def before_io_wait(self, timeout: float) -> None:
        """Count a pass of the event loop."""
        now = trio.current_time()
        self._passes = self._passes + 1 if now == self._time else 0
        self._moves += not self._passes
        self._time = now
        if self._passes == _SPINS:
            self._end("spin", f"at {now:g} s tasks wake each other, and time stands still")
        elif not self._passes and self._moves % _MOVES == 0 and time.process_time() - self._started > _LIMIT:
            self._end("too long", f"the life takes more than {_LIMIT:g} s of CPU")

    def _end(self, kind: str, text: str) -> None:
        self._life.journal.find_after(kind, text)
        self._life.scope.cancel(reason=kind)


def live(plan: Plan) -> dict[str, str]:
    """Live the life of a plan, always in the same way, and return what should not have happened, by its kind."""
    before = {thread for thread in threading.enumerate() if _is_busy(thread)}
    logger = logging.getLogger("trioperator")
    level, propagates, handlers = logger.level, logger.propagate, list(logger.handlers)
    with deterministic(plan.seed):
        life = Life(plan)
        log = Log(life.journal)
        logger.handlers[:], logger.propagate = [log], False
        logger.setLevel(logging.INFO)
        try:
            trio.run(life.live, clock=life.clock, instruments=[_Watchdog(life)])
        except Exception as error:  # noqa: BLE001 -- it is a finding
            life.journal.find_after("crash", "".join(traceback.format_exception(error))[-1500:])
        finally:
            logger.handlers[:], logger.propagate = handlers, propagates
            logger.setLevel(level)
    patience = time.monotonic() + 3
    while left := {thread.name for thread in threading.enumerate() if _is_busy(thread) and thread not in before}:
        if time.monotonic() > patience:
            break
        time.sleep(0.002)  # threads that have just ended say so soon
    if left:
        life.journal.find_after("left threads", f"threads are left: {', '.join(sorted(left))}")
    return life.journal.findings


def _is_busy(thread: threading.Thread) -> bool:
    """Return whether a thread has work: those of Trio that wait for some have other names."""
    return thread is not threading.main_thread() and not re.fullmatch(r"Trio thread \d+", thread.name)
