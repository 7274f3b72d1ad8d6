"""A week of changes in virtual time, after which an operator has as many of anything as after two days."""

from __future__ import annotations

import collections
import gc
import random
from typing import Any, Final, TypeAlias

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

DAY: Final = 86_400
NAMES: Final = 12  # objects have new uids each day, and names of earlier ones
STEPS: Final = 12  # a day
DAYS: Final = 7
METRICS: Final = "http://127.0.0.1:0/metrics"
# What is not the operator's: the API server, and what tests do with it.
FOREIGN: Final = ("trioperator.apiserver.", "trioperator.testing.")
# The pages of the ledger: those of 5,000 objects are kept, be these gone or not.
PAGES: Final = {"trioperator._runtime.records.Page", "entries of trioperator._runtime.ledger.Ledger"}
# What is remembered of 10,000 objects that others have now, as they may come back.
MEMORIES: Final = {
    "entries of trioperator._runtime.cache.leaving.Leaving",
    "entries of trioperator._runtime.cache.kind.Memory",
    "trioperator._runtime.cache.kind.Memory",
    "trioperator._model.memo.Memo",
}
SLACK: Final = 10  # of what comes and goes
Counts: TypeAlias = collections.Counter[str]
CONTAINERS: Final = (dict, list, set, collections.deque)


def declare(registry: trioperator.OperatorRegistry) -> None:
    """Declare handlers of all sorts for golden widgets."""
    on = trioperator.on
    options: dict[str, Any] = {"labels": {"tier": "gold"}, "registry": registry}

    @on.resume("widgets", **options)
    @on.create("widgets", **options)
    @on.update("widgets", backoff=5, **options)
    async def handle(spec: Any, retry: int, patch: Any, memo: Any, **_: Any) -> None:
        memo.size = spec["size"]
        if spec["size"] % 3 == 0 and retry == 0:
            raise trioperator.TemporaryError("later", delay=5)
        patch.status["size"] = spec["size"]

    @on.delete("widgets", **options)
    async def delete(**_: Any) -> None: ...

    @on.event("widgets", **options)
    async def event(**_: Any) -> None: ...

    @trioperator.daemon("widgets", **options)
    async def daemon(stopped: Any, **_: Any) -> None:
        await stopped.wait()

    @trioperator.timer("widgets", interval=4 * 3600, **options)
    async def tick(patch: Any, **_: Any) -> None:
        patch.status["ticked"] = True


def declare_readers(registry: trioperator.OperatorRegistry) -> None:
    """Declare an index and a reconcile handler: replicas with these need all objects."""
    options: dict[str, Any] = {"labels": {"tier": "gold"}, "registry": registry}

    @trioperator.index("widgets", **options)
    async def sizes(name: str, spec: Any, **_: Any) -> dict[int, str]:
        return {spec["size"] % 5: name}

    @trioperator.on.reconcile("widgets", owns=["configmaps"], **options)
    async def desire(name: str, spec: Any, **_: Any) -> list[dict[str, Any]]:
        data = {"size": str(spec["size"])}
        return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}]


class Week:
    """Changes of objects, some of which the operator sees late, or twice."""

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.rng = random.Random(0)

    async def fill(self) -> None:
        for number in range(NAMES):
            made = widget(f"w{number}")
            made["metadata"]["labels"] = {"tier": "gold"}
            await self.cluster.create(made)

    async def live_a_day(self) -> None:
        """Change, relabel, and at last replace all objects; let requests and watches fail, and history be lost."""
        for step in range(STEPS):
            name = f"w{self.rng.randrange(NAMES)}"
            await self.cluster.patch("widgets", name, {"spec": {"size": self.rng.randrange(10**6)}})
            for tier in ("silver", "gold"):
                await self.cluster.patch("widgets", name, {"metadata": {"labels": {"tier": tier}}})
                await settle(20)
            faults = [Fault.status(503), Fault.reset(), Fault.lose_answer(), Fault.stall()]
            self.plan.add(self.rng.choice(faults), method="PATCH", times=1)
            if step % 3 == 0:
                self.cluster.compact()
                self.plan.add(
                    self.rng.choice([Fault.error_event(410), Fault.break_off(), Fault.silence()]), watch=True, times=3
                )
            await trio.sleep(DAY / STEPS - 40)
        self.plan.clear()
        await settle(600)
        await self.replace_all()

    async def replace_all(self) -> None:
        for number in range(NAMES):
            await self.cluster.delete("widgets", f"w{number}")
        await settle(600)
        assert not await self.cluster.list("widgets")
        await self.fill()
        await settle(600)


def count_all() -> Counts:
    """Count tasks, objects of the operator by their types, and what is in their containers."""
    gc.collect()
    found = collections.Counter({"tasks": trio.lowlevel.current_statistics().tasks_living})
    for each in gc.get_objects():
        name = f"{type(each).__module__}.{type(each).__qualname__}"
        if name.startswith("trioperator.") and not name.startswith(FOREIGN):
            found[name] += 1
            containers = (one for one in gc.get_referents(each) if isinstance(one, CONTAINERS))
            found[f"entries of {name}"] += sum(map(len, containers))
    return found


async def live_a_week(week: Week, registry: trioperator.OperatorRegistry, *, shards: int = 1) -> list[Counts]:
    """Return what there is after each day. If objects are shared, another replica has a part of them for a while."""
    settings = trioperator.OperatorSettings()
    leadership = settings.leadership  # renewals all week would take longer than all else
    leadership.lease_duration, leadership.renew_deadline, leadership.retry_period = 1800, 1200, 400
    bench, counts = Bench(week.cluster, registry, settings), []
    transport = FaultyTransport(week.cluster.transport(), week.plan)
    async with bench.running(transport=transport, metrics_endpoint=METRICS, shards=shards):
        for _ in range(DAYS):
            await week.live_a_day()
            if shards > 1:
                async with bench.running(shards=shards):
                    await settle(3600)
                    await week.replace_all()
                await settle(3600)
            counts.append(count_all())
    return counts


@pytest.mark.parametrize("shards", [1, 4], ids=["whole", "shared"])
async def test_nothing_grows_in_a_week(
    shards: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", logger="trioperator")  # records would be kept
    cluster, registry = Cluster(clock=wall_now, seed=0, history=100, log_limit=0), trioperator.OperatorRegistry()
    await cluster.apply(CRD)
    declare(registry)
    if shards == 1:
        declare_readers(registry)
    week = Week(cluster, FaultPlan())
    await week.fill()
    counts = await live_a_week(week, registry, shards=shards)
    before, after = counts[1], counts[-1]
    assert after["tasks"] <= before["tasks"]
    grown = {name: number - before[name] for name, number in after.items() if number > before[name] + SLACK}
    assert grown.keys() <= (PAGES if shards == 1 else PAGES | MEMORIES), (
        "less than one for each object of a day, or for each change"
    )
