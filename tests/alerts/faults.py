"""An operator with work to do, and faults of all sorts that come over it."""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

import httpx
import trio

import trioperator
from tests.alerts.history import History, Pod
from tests.runtime.conftest import CRD, widget
from tests.webhooks.admission import make_review, sleeping_server
from trioperator._concurrency.clock import wall_now
from trioperator._endpoints.live_view.app import LiveViewApp
from trioperator._webhooks.issuing import build_authority, build_certificate
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on

_OBJECT: Final = "http://embedded/apis/example.com/v1/namespaces/default/widgets/w0"


class World:
    """Operators on a cluster, whose handlers do what the faults say. ``pods`` are where they run."""

    def __init__(self, cluster: Cluster, folder: pathlib.Path, *, objects: int = 10) -> None:
        self.cluster = cluster
        self.objects = objects
        self.folder = folder
        self.plan = FaultPlan()
        self.registry = trioperator.OperatorRegistry()
        self.pods = (Pod("pod-0"), Pod("pod-1"))
        self.history = History(*self.pods)
        self.seconds = 0.0  # that an update takes
        self.insists = False
        self.fails = self.timer_fails = self.review_fails = False
        self.reviews: list[Any] = []
        self.certfile: pathlib.Path | None = None
        self.elects = False
        self.shards = 1
        self.stops: list[trio.Event] = []
        self._declare()

    def _declare(self) -> None:
        registry = self.registry

        @on.update("widgets", id="update", backoff=10, registry=registry)
        async def update(**_: Any) -> None:
            if self.fails:
                raise ValueError("It fails.")
            await trio.sleep(self.seconds)

        @on.event("widgets", id="insist", registry=registry)
        async def insist(patch: trioperator.Patch, **_: Any) -> None:
            if self.insists:
                patch.metadata.labels["team"] = "ours"

        @on.timer("widgets", interval=30, id="tick", registry=registry)
        async def tick(**_: Any) -> None:
            if self.timer_fails:
                raise ValueError("It fails.")

        @on.reconcile("widgets", id="requeue", registry=registry)
        async def requeue(**_: Any) -> trioperator.Requeue:
            return trioperator.Requeue(30)

    def review(self) -> None:
        """Declare a webhook."""

        @on.validate("widgets", id="check", registry=self.registry)
        async def check(**_: Any) -> None:
            if self.review_fails:
                raise ValueError("It fails.")

    async def prepare(self) -> None:
        """Create the objects."""
        await self.cluster.apply(CRD)
        for number in range(self.objects):
            await self.cluster.create(widget(f"w{number}", size=0))

    async def work(self) -> None:
        """Change an object every 11 seconds, beside the times of timers, and ask for reviews, until cancelled."""
        for number in range(1_000_000):
            await self.cluster.patch("widgets", f"w{number % self.objects}", {"spec": {"size": number + 1}})
            for fn in self.reviews[:1]:
                await fn(make_review(), webhook="check")
            await trio.sleep(11)

    @contextlib.asynccontextmanager
    async def operating(self, pod: Pod) -> AsyncIterator[trio.Event]:
        """Run an operator in a pod, until the end of the block or until the event that it yields is set."""
        stop = trio.Event()
        settings = trioperator.OperatorSettings()
        settings.posting.enabled = False
        settings.watching.server_timeout = 60
        settings.leadership.enabled, settings.leadership.shards = self.elects, self.shards
        settings.admission.server = sleeping_server(self.reviews)
        if self.certfile is not None:
            settings.admission.server = trioperator.WebhookServer(
                addr="127.0.0.1", certfile=self.certfile, file_check_interval=30
            )
        async with trio.open_nursery() as nursery:
            operate = functools.partial(
                trioperator.operator,
                registry=self.registry,
                settings=settings,
                connection=trioperator.ConnectionInfo(server="http://embedded"),
                transport=FaultyTransport(self.cluster.transport(), self.plan),
                live_view_app=cast(LiveViewApp, pod),
                stop_flag=stop,
                standalone=True,
                identity=pod.name,
                handle_signals=False,
            )
            await nursery.start(operate)
            yield stop
            stop.set()


async def live_well(cluster: Cluster, folder: pathlib.Path, *, objects: int, hours: float, shards: int = 1) -> str:
    """Let two replicas live without faults, one of which is replaced once; return the alerts that have fired."""
    world = World(cluster, folder, objects=objects)
    world.elects, world.shards = shards == 1, shards
    world.review()
    await world.prepare()
    async with trio.open_nursery() as nursery, world.operating(world.pods[0]):
        await nursery.start(world.history.record)
        nursery.start_soon(world.work)
        for _ in range(2):
            async with world.operating(world.pods[1]):
                await trio.sleep(hours * 1800)
        nursery.cancel_scope.cancel()
    return world.history.judge(folder, {world.history.now: ()})


#: Brings a fault about in a world, and returns; it may go on in the nursery.
Bring: TypeAlias = Callable[[World, trio.Nursery], Awaitable[None]]


class Trouble:
    """A fault: how it comes about, which alert it is for, and after how many seconds that can see it."""

    def __init__(
        self, alert: str, bring: Bring, *, seen_after: float, prepare: Callable[[World], None] = lambda _: None
    ) -> None:
        self.alert = alert
        self.bring = bring
        self.seen_after = seen_after
        self.prepare = prepare


async def _slow_down(world: World, nursery: trio.Nursery) -> None:
    world.seconds = 90


async def _hang(world: World, nursery: trio.Nursery) -> None:
    world.seconds = math.inf
    await trio.sleep(15)  # one change
    world.seconds = 0


async def _silence(world: World, nursery: trio.Nursery) -> None:
    world.plan.add(Fault.silence(), resource="widgets", verb="watch")


async def _forbid(world: World, nursery: trio.Nursery) -> None:
    world.plan.add(Fault.status(403), resource="widgets", verb="watch")


async def _flap(world: World, nursery: trio.Nursery) -> None:
    async def free() -> None:
        for _ in range(100):
            await world.cluster.patch("leases", "trioperator", {"spec": {"holderIdentity": ""}})
            await trio.sleep(40)

    nursery.start_soon(free)


async def _hold(world: World, nursery: trio.Nursery) -> None:
    async def hold() -> None:
        for number in range(1000):
            renewed = f"2030-01-01T00:00:{number % 60:02}.000000Z"
            spec = {"holderIdentity": "a stranger", "leaseDurationSeconds": 15, "renewTime": renewed}
            await world.cluster.patch("leases", "trioperator", {"spec": spec})
            await trio.sleep(5)

    nursery.start_soon(hold)


async def _restart(world: World, nursery: trio.Nursery) -> None:
    world.stops[0].set()

    async def restart() -> None:
        for _ in range(100):
            await trio.sleep(10)
            async with world.operating(world.pods[0]) as stop:
                await trio.sleep(40)
                stop.set()

    nursery.start_soon(restart)


async def _stop(world: World, nursery: trio.Nursery) -> None:
    world.stops[0].set()


async def _contend(world: World, nursery: trio.Nursery) -> None:
    async def stomp() -> None:
        async with httpx.AsyncClient(transport=world.cluster.transport()) as client:
            for _ in range(10_000):
                patch = {"metadata": {"labels": {"team": "theirs"}}}
                headers = {"Content-Type": "application/merge-patch+json"}
                response = await client.patch(f"{_OBJECT}?fieldManager=stomper", json=patch, headers=headers)
                response.raise_for_status()
                await trio.sleep(0.5)

    world.insists = True
    nursery.start_soon(stomp)


async def _pause(world: World, nursery: trio.Nursery) -> None:
    await world.cluster.patch("widgets", "w0", {"metadata": {"annotations": {"trioperator.dev/paused": "true"}}})
    await trio.sleep(8 * 3600)


async def _fail(world: World, nursery: trio.Nursery) -> None:
    world.fails = True


async def _fail_reviews(world: World, nursery: trio.Nursery) -> None:
    world.review_fails = True


async def _fail_timers(world: World, nursery: trio.Nursery) -> None:
    world.timer_fails = True


def _certify(world: World, age: int = 45) -> None:
    """Write a certificate that is so many days old, of 90."""
    now = wall_now() - datetime.timedelta(days=age)
    chain, key = build_certificate(["localhost"], authority=build_authority(now), now=now)
    world.certfile = world.folder / "cert.pem"
    world.certfile.write_bytes(chain + key)


async def _expire(world: World, nursery: trio.Nursery) -> None:
    _certify(world, 80)


def _with_certificate(world: World) -> None:
    world.review()
    _certify(world)


def _reduce(world: World) -> None:
    world.objects = 1  # it takes hours


def _elect(world: World) -> None:
    world.elects = True


#: Faults by their names.
TROUBLES: Final = {
    "handlers are slow": Trouble("TrioperatorSlow", _slow_down, seen_after=540),
    "a handler hangs": Trouble("TrioperatorObjectStuck", _hang, seen_after=330),
    "a watch is silent": Trouble("TrioperatorWatchSilent", _silence, seen_after=270),
    "a watch is forbidden": Trouble("TrioperatorWatchInterrupted", _forbid, seen_after=90),
    "the lease changes hands": Trouble("TrioperatorLeaseFlapping", _flap, seen_after=180, prepare=_elect),
    "a stranger holds the lease": Trouble("TrioperatorNobodyActive", _hold, seen_after=30, prepare=_elect),
    "a certificate is not renewed": Trouble(
        "TrioperatorCertificateExpires", _expire, seen_after=60, prepare=_with_certificate
    ),
    "it is restarted": Trouble("TrioperatorRestarts", _restart, seen_after=270),
    "it is gone": Trouble("TrioperatorNotReady", _stop, seen_after=30),
    "a field is contended": Trouble("TrioperatorContended", _contend, seen_after=60),
    "an object stays paused": Trouble("TrioperatorPausedLong", _pause, seen_after=30, prepare=_reduce),
    "a handler fails": Trouble("TrioperatorReconcileErrors", _fail, seen_after=120),
    "a timer fails": Trouble("TrioperatorHandlerErrors", _fail_timers, seen_after=240),
    "a webhook fails": Trouble("TrioperatorWebhookFailures", _fail_reviews, seen_after=60, prepare=World.review),
}
