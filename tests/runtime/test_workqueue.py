"""The work queue: what is reconciled when, and by how many workers."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any, Final, TypeVar

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.patching.pending import PendingPatches
from trioperator._runtime.progress.progress import Progress
from trioperator._runtime.result import AGAIN, DONE, RequeueAt, Result
from trioperator._runtime.sharding import ShardRouter
from trioperator._runtime.workqueue import Lane, WorkQueue, open_workqueue
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
T = TypeVar("T")
FRESH, INITIAL = Lane.FRESH, Lane.INITIAL


class Item:
    """Something to be reconciled."""

    def __init__(self, name: str, flow: str = "") -> None:
        self.name = name
        self.flow = flow


class Reconciler:
    """A reconciler that records its reconciles: of which item, when, how many at once.

    Each takes *seconds*, and saves what is unsaved. *decide* makes the result, which is ``DONE`` by default.
    """

    def __init__(self, seconds: float = 1.0, *, decide: Callable[[Item], Result] = lambda item: DONE) -> None:
        self.seconds = seconds
        self.decide = decide
        self.names: list[str] = []
        self.times: list[float] = []
        self.running: list[str] = []
        self.most = 0
        self.unsaved: set[Item] = set()
        self.idle: set[Item] = set()
        self.loops: list[tuple[str, int, float]] = []

    async def reconcile(self, item: Item) -> Result:
        assert item.name not in self.running
        self.names.append(item.name)
        self.times.append(trio.current_time())
        self.running.append(item.name)
        self.most = max(self.most, len(self.running))
        self.unsaved.discard(item)
        await trio.sleep(self.seconds)
        self.running.remove(item.name)
        return self.decide(item)

    def has_work(self, item: Item) -> bool:
        return item not in self.idle

    def is_unsaved(self, item: Item) -> bool:
        return item in self.unsaved

    def report_loop(self, item: Item, *, writes: int, backoff: float) -> None:
        self.loops.append((item.name, writes, backoff))


@pytest.mark.parametrize("limit", [1, 3, 10])
async def test_no_more_items_are_reconciled_at_once_than_the_limit(limit: int, autojump_clock: MockClock) -> None:
    reconciler = Reconciler()
    began = trio.current_time()
    async with open_workqueue(reconciler, limit=limit) as queue:
        for number in range(20):
            queue.add(Item(f"{number}"), FRESH if number % 2 else INITIAL)
        await trio.sleep(100)
        assert reconciler.most == limit
        assert len(reconciler.names) == 20
        assert max(reconciler.times) - began == pytest.approx(math.ceil(20 / limit) - 1)


@pytest.mark.parametrize(("seconds", "at_least"), [(0.0, 6), (0.01, 399)])
async def test_a_worker_lets_others_run_though_its_reconciles_wait_for_nothing(
    seconds: float, at_least: int, autojump_clock: MockClock
) -> None:
    class Busy(Reconciler):
        async def reconcile(self, item: Item) -> Result:
            self.names.append(item.name)
            autojump_clock.jump(seconds)
            return DONE

    reconciler, turns = Busy(), 0
    async with open_workqueue(reconciler, limit=1) as queue:
        for number in range(400):
            queue.add(Item(f"{number}"))
        while len(reconciler.names) < 400:
            await trio.lowlevel.checkpoint()
            turns += 1
    assert turns >= at_least


class Observer:
    """An observer that records what it is notified of."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []

    def queued(self, item: Item, lane: Lane) -> None:
        self.seen.append(("queued", item.name))

    def requeued(self, item: Item) -> None:
        self.seen.append(("requeued", item.name))

    def began(self, item: Item) -> None:
        self.seen.append(("began", item.name))

    def ended(self, item: Item, result: Result | None) -> None:
        self.seen.append(("ended", item.name, result))


async def test_an_observer_is_notified_of_each_reconcile_and_of_what_comes_before_it(autojump_clock: MockClock) -> None:
    later = RequeueAt(trio.current_time() + 10)
    results: Iterator[Result] = iter([AGAIN, later, DONE])
    observer = Observer()
    async with open_workqueue(Reconciler(decide=lambda _: next(results)), limit=1, observer=observer) as queue:
        queue.add(Item("w"), INITIAL)
        await trio.sleep(100)
    queued, began = ("queued", "w"), ("began", "w")
    first = [queued, began, ("ended", "w", AGAIN), began, ("ended", "w", later), ("requeued", "w")]
    assert observer.seen == [*first, queued, began, ("ended", "w", DONE)]


async def test_an_observer_is_notified_once_for_each_lane(autojump_clock: MockClock) -> None:
    observer = Observer()
    async with open_workqueue(Reconciler(), limit=1, observer=observer) as queue:
        queue.add(Item("busy"))
        item = Item("w")
        for lane in (INITIAL, INITIAL, FRESH, FRESH, INITIAL):
            queue.add(item, lane)
        await trio.lowlevel.checkpoint()
        assert observer.seen.count(("queued", "w")) == 2
        await trio.sleep(100)
    assert observer.seen.count(("began", "w")) == 1


async def test_an_observer_is_notified_of_a_cancelled_reconcile(autojump_clock: MockClock) -> None:
    observer = Observer()
    async with open_workqueue(Reconciler(100), limit=1, observer=observer) as queue:
        queue.add(Item("w"))
        await trio.sleep(1)
        queue.close(give_up_at=trio.current_time())
    assert observer.seen == [("queued", "w"), ("began", "w"), ("ended", "w", None)]


async def test_without_a_limit_all_items_are_reconciled_at_once(autojump_clock: MockClock) -> None:
    reconciler = Reconciler()
    async with open_workqueue(reconciler, limit=None) as queue:
        for number in range(300):
            queue.add(Item(f"{number}"))
        await trio.sleep(1)
    assert reconciler.most == 300


async def test_workers_end_when_there_is_no_work(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery, open_workqueue(Reconciler(), limit=5) as queue:
        for number in range(20):
            queue.add(Item(f"{number}"))
        await trio.sleep(100)
        assert [task.name for task in queue._nursery.child_tasks] == ["requeue"]
        assert len(queue) == 0
        nursery.cancel_scope.cancel()


async def test_a_worker_whose_items_wait_for_nothing_handles_them_before_many_others_begin(
    autojump_clock: MockClock,
) -> None:
    class Quick(Reconciler):
        async def reconcile(self, item: Item) -> Result:
            self.names.append(item.name)
            self.most = max(self.most, len(queue._nursery.child_tasks))
            return DONE

    reconciler = Quick()
    async with open_workqueue(reconciler, limit=None) as queue:
        for number in range(10):
            queue.add(Item(f"{number}"))
        await settle()
        assert reconciler.names == [f"{number}" for number in range(10)]
        assert reconciler.most == 4  # it, the two that it has let begin, and the one that queues what is due


async def test_fresh_items_beyond_the_limit_take_turns_before_any_worker_has_begun(autojump_clock: MockClock) -> None:
    reconciler = Reconciler()
    async with open_workqueue(reconciler, limit=2) as queue:
        for number in range(6):
            queue.add(Item(f"a{number}", "a"))
        queue.add(Item("b", "b"))
        await trio.sleep(100)
    assert reconciler.names.index("b") == 3


async def test_an_item_is_with_one_worker_at_a_time_and_what_is_added_meanwhile_is_not_lost(
    autojump_clock: MockClock,
) -> None:
    reconciler = Reconciler()
    item = Item("w")
    async with open_workqueue(reconciler, limit=None) as queue:
        queue.add(item)
        queue.add(item)
        await trio.sleep(0.5)
        queue.add(item)
        queue.add(item)
        await trio.sleep(10)
    assert reconciler.names == ["w", "w"]
    assert reconciler.most == 1


async def test_an_item_that_was_added_meanwhile_and_has_no_work_by_then_is_not_queued_again(
    autojump_clock: MockClock,
) -> None:
    reconciler = Reconciler()
    item = Item("w")
    async with open_workqueue(reconciler, limit=None) as queue:
        queue.add(item)
        await trio.sleep(0.5)
        queue.add(item)
        reconciler.idle.add(item)  # the reconcile at work has done what it was added for
        await trio.sleep(10)
    assert reconciler.names == ["w"]


@pytest.mark.parametrize(
    ("lanes", "order"),
    [
        ([INITIAL], ["w", "fresh", "initial", "w"]),
        ([FRESH], ["w", "fresh", "w", "initial"]),
        ([INITIAL, FRESH], ["w", "fresh", "w", "initial"]),
        ([FRESH, INITIAL], ["w", "fresh", "w", "initial"]),
    ],
)
async def test_an_item_added_during_its_reconcile_is_queued_in_the_most_urgent_lane_it_was_added_to(
    lanes: list[Lane], order: list[str], autojump_clock: MockClock
) -> None:
    reconciler = Reconciler()
    item = Item("w")
    async with open_workqueue(reconciler, limit=1) as queue:
        queue.add(item)
        await trio.sleep(0.5)
        queue.add(Item("initial"), INITIAL)
        queue.add(Item("fresh"))
        for lane in lanes:
            queue.add(item, lane)
        await trio.sleep(10)
    assert reconciler.names == order


async def test_fresh_items_come_first_and_initial_ones_do_not_starve(autojump_clock: MockClock) -> None:
    reconciler = Reconciler()
    async with open_workqueue(reconciler, limit=1) as queue:
        for number in range(10):
            queue.add(Item(f"initial {number}"), INITIAL)
        for number in range(20):
            queue.add(Item(f"fresh {number}"))
        await trio.sleep(100)
    lanes = [name.split()[0] for name in reconciler.names]
    assert lanes[:10] == ["fresh"] * 4 + ["initial"] + ["fresh"] * 4 + ["initial"]
    for lane in ("initial", "fresh"):
        numbers = [int(name.split()[1]) for name in reconciler.names if name.startswith(lane)]
        assert numbers == sorted(numbers)  # in each lane, first come, first served


@pytest.mark.parametrize("limit", [1, 2, 7])
async def test_every_initial_item_is_reconciled_in_time_under_constant_fresh_load(
    limit: int, autojump_clock: MockClock
) -> None:
    reconciler = Reconciler()
    began = trio.current_time()
    async with trio.open_nursery() as nursery, open_workqueue(reconciler, limit=limit) as queue:

        async def load() -> None:
            for number in itertools.count():
                queue.add(Item(f"fresh {number}"))
                await trio.sleep(0.5 / limit)  # twice as much as can be done

        nursery.start_soon(load)
        await trio.sleep(10)
        for number in range(30):
            queue.add(Item(f"initial {number}"), INITIAL)
        await trio.sleep(10 + 30 * 5 / limit)
        reconciled = [name for name in reconciler.names if name.startswith("initial")]
        assert len(reconciled) == 30
        assert trio.current_time() - began < 10_000
        nursery.cancel_scope.cancel()


async def test_a_queued_initial_item_becomes_urgent_when_it_is_added_afresh_and_is_reconciled_once(
    autojump_clock: MockClock,
) -> None:
    reconciler = Reconciler()
    async with open_workqueue(reconciler, limit=1) as queue:
        initial = [Item(f"{number}") for number in range(10)]
        for item in initial:
            queue.add(item, INITIAL)
        queue.add(initial[8])
        queue.add(initial[8])
        queue.add(initial[8], INITIAL)
        await trio.sleep(100)
    assert reconciler.names[0] == "8"
    assert sorted(reconciler.names) == [str(number) for number in range(10)]


# Fairness.


async def test_a_flow_with_many_slow_items_does_not_hold_up_the_others(autojump_clock: MockClock) -> None:
    reconciler = Reconciler(seconds=10)
    began = trio.current_time()
    async with open_workqueue(reconciler, limit=4) as queue:
        for number in range(100):
            queue.add(Item(f"slow {number}", "slow"))
        await trio.sleep(1)
        for flow in ("one", "two"):
            for number in range(2):
                queue.add(Item(f"{flow} {number}", flow))
        await trio.sleep(1000)
    others = [time - began for name, time in zip(reconciler.names, reconciler.times, strict=True) if "slow" not in name]
    assert others == pytest.approx([10, 10, 20, 20])  # behind 96 items that were there before
    assert sorted(reconciler.names[4:10]) == ["one 0", "one 1", "slow 4", "slow 5", "two 0", "two 1"]
    assert len(reconciler.names) == 104


@pytest.mark.parametrize("lane", [FRESH, INITIAL])
async def test_when_all_workers_are_busy_the_flows_of_a_lane_take_turns(lane: Lane, autojump_clock: MockClock) -> None:
    reconciler = Reconciler()
    async with open_workqueue(reconciler, limit=1) as queue:
        queue.add(Item("busy"))
        await trio.sleep(0.5)
        for flow, count in (("a", 5), ("b", 1), ("c", 3)):
            for number in range(count):
                queue.add(Item(f"{flow}{number}", flow), lane)
        await trio.sleep(100)
    assert reconciler.names == ["busy", "a0", "b0", "c0", "a1", "c1", "a2", "c2", "a3", "a4"]


async def test_as_long_as_there_are_workers_nobody_asks_for_the_flow_of_an_item(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    class Observed(Item):
        def __getattribute__(self, name: str) -> Any:
            if name == "flow":
                asked.append(self.name)
            return super().__getattribute__(name)

    async with open_workqueue(Reconciler(), limit=3) as queue:
        for number in range(5):
            queue.add(Observed(f"{number}"))
        await trio.sleep(100)
    assert asked == ["3", "4"]


@pytest.mark.parametrize("style", ["async", "sync"])
async def test_a_namespace_with_slow_handlers_does_not_hold_up_the_others(
    style: str, bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.queueing.worker_limit = 4 if style == "async" else 200
    bench.settings.execution.max_workers = 4
    waited: list[float] = []

    def note(meta: trioperator.Meta) -> float:
        if meta.namespace == "slow":
            return 10.0
        waited.append(trio.current_time())
        return 0.0

    async def create(meta: trioperator.Meta) -> None:
        await trio.sleep(note(meta))

    def create_in_thread(meta: trioperator.Meta) -> None:
        seconds = trio.from_thread.run_sync(note, meta)
        trio.from_thread.run(trio.sleep, seconds)

    on.create("widgets", id="create", registry=bench.registry)(create if style == "async" else create_in_thread)
    await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slow"}})
    async with bench.running():
        for number in range(100):
            slow = widget(f"w{number}")
            slow["metadata"]["namespace"] = "slow"
            await bench.cluster.create(slow)
        await settle(5)
        began = trio.current_time()
        for number in range(3):
            await bench.cluster.create(widget(f"w{number}"))
        await settle(60)
        bench.settings.process.grace = 1
    assert len(waited) == 3
    assert max(waited) - began < 15


# Results of reconciles.


async def test_items_are_requeued_when_they_are_due(autojump_clock: MockClock) -> None:
    reconciler = Reconciler(seconds=0)
    began = trio.current_time()
    async with open_workqueue(reconciler, limit=1) as queue:
        for due in (30.0, 10.0, 20.0, 10.0):
            queue.requeue_at(Item(f"{due:g}"), began + due)
        await trio.sleep(100)
    assert reconciler.names == ["10", "10", "20", "30"]
    assert [time - began for time in reconciler.times] == pytest.approx([10, 10, 20, 30])


async def test_an_item_that_waits_for_its_due_time_occupies_no_worker(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    reconciler = Reconciler(
        seconds=0, decide=lambda item: RequeueAt(began + 50) if len(reconciler.names) == 1 else DONE
    )
    async with open_workqueue(reconciler, limit=1) as queue:
        queue.add(Item("waits"))
        await settle()
        assert [task.name for task in queue._nursery.child_tasks] == ["requeue"]
        queue.add(Item("other"))
        await trio.sleep(100)
        assert len(queue) == 0
    assert reconciler.names == ["waits", "other", "waits"]
    assert [time - began for time in reconciler.times] == [0, 0, 50]


async def test_a_due_time_is_void_when_the_item_was_reconciled_before(autojump_clock: MockClock) -> None:
    reconciler = Reconciler(seconds=0)
    item = Item("w")
    async with open_workqueue(reconciler, limit=1) as queue:
        queue.requeue_at(item, trio.current_time() + 10)
        await trio.sleep(5)
        queue.add(item)
        await trio.sleep(100)
    assert reconciler.names == ["w"]


@pytest.mark.parametrize("times", [(10, 20), (20, 10)])
async def test_the_latest_due_time_of_an_item_counts(times: tuple[int, int], autojump_clock: MockClock) -> None:
    reconciler = Reconciler(seconds=0)
    item = Item("w")
    began = trio.current_time()
    async with open_workqueue(reconciler, limit=1) as queue:
        for time in times:
            queue.requeue_at(item, began + time)
        await trio.sleep(100)
    assert [time - began for time in reconciler.times] == [times[-1]]


async def test_an_item_added_during_its_reconcile_is_reconciled_at_once_and_not_when_it_was_due(
    autojump_clock: MockClock,
) -> None:
    began = trio.current_time()
    reconciler = Reconciler(decide=lambda item: RequeueAt(began + 50) if len(reconciler.names) == 1 else DONE)
    item = Item("w")
    async with open_workqueue(reconciler, limit=1) as queue:
        queue.add(item)
        await trio.sleep(0.5)
        queue.add(item)
        await trio.sleep(100)
    assert [time - began for time in reconciler.times] == [0, 1]


async def test_what_is_added_within_the_window_is_reconciled_together(autojump_clock: MockClock) -> None:
    reconciler, item = Reconciler(), Item("a")
    async with open_workqueue(reconciler, limit=1, window=0.5) as queue:
        for _ in range(3):  # the window begins with the first
            queue.add(item)
            await trio.sleep(0.2)
        await settle()
        assert reconciler.times == [0.5]
        queue.add(item)  # it is at work: what it ends with is not older than that
        await trio.sleep(1)
        assert reconciler.times == [0.5, 1.5]


async def test_only_fresh_items_wait_for_the_window_and_none_beyond_its_due_time(autojump_clock: MockClock) -> None:
    reconciler, due, initial = Reconciler(seconds=0), Item("due"), Item("initial")
    async with open_workqueue(reconciler, limit=1, window=5) as queue:
        queue.add(initial, INITIAL)
        queue.requeue_at(due, 3)
        await trio.sleep(2)
        queue.add(due)
        await trio.sleep(8)
        assert (reconciler.names, reconciler.times) == (["initial", "due"], [0, 3])


async def test_an_unsaved_item_in_the_window_is_saved_when_the_queue_is_closed(autojump_clock: MockClock) -> None:
    reconciler, unsaved, other = Reconciler(seconds=0), Item("unsaved"), Item("other")
    reconciler.unsaved.add(unsaved)
    async with open_workqueue(reconciler, limit=1, window=5) as queue:
        queue.add(unsaved)
        queue.add(other)
    assert (reconciler.names, reconciler.times) == (["unsaved"], [0])


async def test_an_item_that_is_to_be_reconciled_again_keeps_its_worker(autojump_clock: MockClock) -> None:
    reconciler = Reconciler(decide=lambda item: AGAIN if len(reconciler.names) < 3 else DONE)
    async with open_workqueue(reconciler, limit=1) as queue:
        queue.add(Item("w"))
        queue.add(Item("other"))
        await trio.sleep(100)
    assert reconciler.names == ["w", "w", "w", "other"]
    assert reconciler.loops == []


async def test_an_item_that_is_reconciled_again_and_again_is_reported_and_backs_off(autojump_clock: MockClock) -> None:
    reconciler = Reconciler(seconds=0, decide=lambda item: AGAIN if item.name == "w" else DONE)
    began = trio.current_time()
    async with open_workqueue(reconciler, limit=1) as queue:
        queue.add(Item("w"))
        await trio.sleep(0.5)
        queue.add(Item("other"))
        await trio.sleep(2)
    times = [time - began for time in reconciler.times]
    assert times == pytest.approx([0] * 10 + [0.5] + [1] * 10 + [2] * 10)
    assert reconciler.names[10] == "other"
    assert reconciler.loops == [("w", 10, 1.0)] * 3


# The end of a queue.


async def test_a_closed_queue_ends_the_reconciles_at_work_and_begins_no_others(autojump_clock: MockClock) -> None:
    reconciler = Reconciler(seconds=5)
    began = trio.current_time()
    async with open_workqueue(reconciler, limit=2) as queue:
        for number in range(6):
            queue.add(Item(f"{number}"))
        queue.requeue_at(Item("due"), began + 2)
        await trio.sleep(1)
        queue.close(give_up_at=began + 100)
        queue.add(Item("late"))
    assert sorted(reconciler.names) == ["0", "1"]
    assert trio.current_time() - began == pytest.approx(5)
    assert len(queue) == 0


async def test_reconciles_that_do_not_end_are_cancelled_in_time(autojump_clock: MockClock) -> None:
    reconciler = Reconciler(seconds=math.inf)
    began = trio.current_time()
    async with open_workqueue(reconciler, limit=2) as queue:
        queue.add(Item("w"))
        await trio.sleep(1)
        queue.close(give_up_at=began + 7)
    assert trio.current_time() - began == pytest.approx(7)


async def test_the_time_to_give_up_can_be_set_before_the_queue_is_closed(autojump_clock: MockClock) -> None:
    reconciler = Reconciler(seconds=math.inf)
    began = trio.current_time()
    async with open_workqueue(reconciler, limit=2) as queue:
        queue.add(Item("w"))
        await settle()
        queue.give_up_at(began + 7)
    assert trio.current_time() - began == pytest.approx(7)


async def test_closing_without_a_time_waits_for_all_reconciles_at_work(autojump_clock: MockClock) -> None:
    reconciler = Reconciler(seconds=1000)
    async with open_workqueue(reconciler, limit=2) as queue:
        queue.add(Item("w"))
        await settle()
    assert reconciler.names == ["w"]
    assert reconciler.running == []


async def test_unsaved_items_are_saved_at_the_end_by_more_workers_than_the_limit(autojump_clock: MockClock) -> None:
    reconciler = Reconciler()
    queued, waiting = Item("queued"), Item("waiting")
    began = trio.current_time()
    async with open_workqueue(reconciler, limit=1) as queue:
        queue.add(Item("busy"))
        await settle()
        queue.add(queued)
        queue.add(Item("saved"))
        queue.requeue_at(waiting, trio.current_time() + 3600)
        reconciler.unsaved |= {queued, waiting}
    assert sorted(reconciler.names) == ["busy", "queued", "waiting"]
    assert reconciler.times == [began] * 3


async def test_an_unsaved_item_added_to_a_closed_queue_is_saved(autojump_clock: MockClock) -> None:
    reconciler = Reconciler()
    item = Item("w")
    async with open_workqueue(reconciler, limit=1) as queue:
        queue.close()
        queue.add(Item("saved"))
        reconciler.unsaved.add(item)
        queue.add(item)
        queue.add(item)
    assert reconciler.names == ["w"]


async def test_what_is_added_during_the_last_reconcile_of_an_item_is_saved_by_another_one(
    autojump_clock: MockClock,
) -> None:
    reconciler = Reconciler()
    item = Item("w")
    async with open_workqueue(reconciler, limit=1) as queue:
        queue.add(item)
        await settle()
        queue.close()
        reconciler.unsaved.add(item)
        queue.add(item)
    assert reconciler.names == ["w", "w"]
    assert reconciler.most == 1


async def test_an_idle_queue_can_be_closed(autojump_clock: MockClock) -> None:
    async with open_workqueue(Reconciler(), limit=None) as queue:
        assert isinstance(queue, WorkQueue)


# In an operator.


async def test_the_limit_holds_over_all_kinds(bench: Bench, autojump_clock: MockClock) -> None:
    bench.settings.queueing.worker_limit = 4
    running = most = 0

    for kind in ("widgets", "gadgets"):

        @on.create(kind, id=kind, registry=bench.registry)
        @on.update(kind, id=kind, registry=bench.registry)
        async def handle(**_: Any) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await trio.sleep(0.3)
            running -= 1

    for number in range(20):
        await bench.cluster.create(widget(f"w{number}"))
    async with bench.running():
        for number in range(20):
            await bench.cluster.create(widget(f"g{number}", kind="Gadget"))
            await bench.cluster.patch("widgets", f"w{number}", {"spec": {"size": 2}})
            await trio.sleep(0.1)
        await settle(60)
    assert most == 4


async def test_an_object_that_changes_all_the_time_does_not_keep_others_waiting(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.queueing.worker_limit = 1
    seen: list[str] = []

    @on.create("widgets", id="handle", registry=bench.registry)
    @on.update("widgets", id="handle", registry=bench.registry)
    async def handle(name: str, **_: Any) -> None:
        seen.append(name)
        await trio.sleep(1)

    async with bench.running():
        await bench.cluster.create(widget("hot", size=0))
        await settle(0.1)
        await bench.cluster.create(widget("cold"))
        for size in range(1, 100):
            await bench.cluster.patch("widgets", "hot", {"spec": {"size": size}})
            await trio.sleep(0.4)
        assert "cold" in seen


async def test_the_echo_of_an_own_write_does_not_queue_an_object_behind_others(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.queueing.worker_limit = 1
    plan = FaultPlan()
    plan.add(Fault.delay(after=0.1), method="PATCH")  # so that the watch event comes before the response

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        pass

    @on.delete("widgets", registry=bench.registry)
    async def delete(**_: Any) -> None:
        pass

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        for number in range(5):
            await bench.cluster.create(widget(f"w{number}"))
        await settle(5)
        patched = [request.path[-2:] for request in bench.cluster.requests if request.method == "PATCH"]
        assert patched == [f"w{number}" for number in range(5) for _ in range(2)]  # the finalizer, then the records


# What many objects cost.


def count_tasks() -> int:
    """Count all tasks of the run."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    tasks, count = [root], 0
    while tasks:
        task = tasks.pop()
        count += 1
        tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return count


def find(type_: type[T]) -> list[T]:
    """Return all objects of a class."""
    return find_all(type_)[type_]


def find_all(*types: type[Any], but: Collection[Any] = ()) -> dict[type[Any], list[Any]]:
    """Return all objects of each class, in one look at the memory, apart from what another test has left behind."""
    gc.collect()
    found: dict[type[Any], list[Any]] = {each: [] for each in types}
    excluded = set(map(id, but))
    for each in gc.get_objects():
        if type(each) in found and id(each) not in excluded:
            found[type(each)].append(each)
    return found


PARTS: Final = (ObjectCache, WorkQueue, PendingPatches, Progress)


@pytest.fixture
def others() -> list[Any]:
    """Return what was there before the test."""
    return [*itertools.chain(*find_all(*PARTS).values())]


def machinery(others: list[Any]) -> tuple[ObjectCache, WorkQueue[Any], PendingPatches, Progress]:
    """Return the parts of the only operator: of its caches, the one that has objects."""
    caches, queues, [pending], [progress] = find_all(*PARTS, but=others).values()
    (cache,) = [found for found in caches if len(found)]
    router = cache.backlog.queue
    assert isinstance(router, ShardRouter)
    shards = [shard.queue for shard in router._open.values()]
    (queue,) = [found for found in queues if found in shards]  # the other one is for indices
    return cache, queue, pending, progress


async def test_items_that_are_not_due_any_more_are_freed_though_their_alarms_are_hours_away(
    autojump_clock: MockClock,
) -> None:
    reconciler = Reconciler(seconds=0)
    async with open_workqueue(reconciler, limit=None) as queue:
        for number in range(2000):
            item = Item(f"gone {number}")
            queue.requeue_at(item, 10_000)
            queue.add(item)
            await trio.testing.wait_all_tasks_blocked()
        queue.requeue_at(Item("waiting"), 10_000)
        del item
        assert len([found for found in find(Item) if found.name.startswith("gone")]) < 600
        assert len(reconciler.names) == 2000
        assert len(queue) == 1
        await trio.sleep(20_000)
        assert reconciler.names[2000:] == ["waiting"]


async def test_idle_objects_have_neither_tasks_nor_bodies(
    bench: Bench, autojump_clock: MockClock, others: list[Any]
) -> None:
    @on.create("widgets", labels={"mine": "yes"}, id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        raise AssertionError

    bench.settings.watching.infer_selectors = False  # else they are not received
    await bench.cluster.create(widget("first"))
    async with bench.running():
        await settle(5)
        with_one = count_tasks()
        for number in range(1000):
            await bench.cluster.create(widget(f"w{number}"))
        await settle(5)
        assert count_tasks() == with_one
        cache, queue, pending, progress = machinery(others)
        assert len(cache) == 1001
        for state in cache:
            kept = [state.body, state.last_object, state.events, state.remember().memo, progress.get(state)]
            assert kept == [None] * 5
        assert (len(queue), len(pending)) == (0, 0)
        assert progress._last_handled == {}
    assert bench.writes() == []


async def test_handled_objects_have_neither_tasks_nor_bodies(
    bench: Bench, autojump_clock: MockClock, others: list[Any]
) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(retry: int, **_: Any) -> None:
        if not retry:
            raise trioperator.TemporaryError("once more", delay=1)

    async with bench.running():
        await settle(1)
        idle = count_tasks()
        for number in range(200):
            await bench.cluster.create(widget(f"w{number}"))
        await settle(30)
        assert count_tasks() == idle
        cache, queue, pending, progress = machinery(others)
        assert len(cache) == 200
        for state in cache:
            last_handled = progress.last_handled(state)
            kept = [state.body, state.events, progress.get(state), last_handled._kept, last_handled._missed]
            assert kept == [None] * 5
            assert last_handled.to_store == ()
        assert (len(queue), len(pending)) == (0, 0)


async def test_objects_that_are_gone_are_forgotten(bench: Bench, autojump_clock: MockClock, others: list[Any]) -> None:
    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        pass

    async with bench.running():
        for number in range(100):
            await bench.cluster.create(widget(f"w{number}"))
        await settle(5)
        cache, queue, pending, progress = machinery(others)
        assert len(cache) == 100
        for number in range(100):
            await bench.cluster.delete("widgets", f"w{number}")
        await settle(5)
        assert (len(cache), len(queue), len(pending)) == (0, 0, 0)
        assert (progress._unfinished, progress._last_handled) == ({}, {})
        assert [state for state in find(ObjectState) if state.cache is cache] == []


async def test_a_long_list_does_not_keep_an_operator_from_being_ready(bench: Bench, autojump_clock: MockClock) -> None:
    bench.settings.queueing.worker_limit = 1
    done = running = most = 0

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        nonlocal done, running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        done += 1

    for number in range(10_000):
        await bench.cluster.create(widget(f"w{number}"))
    began = trio.current_time()
    async with bench.running() as stop:
        assert trio.current_time() - began < 5
        await settle(100.5)
        assert done == 100
        stop()
    assert most == 1


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_operator_ends_with_an_error_if_a_scope_that_a_handler_left_open_cancels_its_workers(
    bench: Bench, is_late: bool, autojump_clock: MockClock
) -> None:
    """Trio takes it for the end of all workers: nothing would be handled any more, and nothing would tell."""

    async def count() -> AsyncIterator[int]:
        with trio.move_on_after(10 if is_late else 0):
            yield 1

    @on.event("widgets", registry=bench.registry)
    async def event(name: str, **_: Any) -> None:
        if name == "leaking":
            counts.append(count())
            await anext(counts[0])

    @on.create("widgets", registry=bench.registry)
    async def create(name: str, **_: Any) -> None:
        await trio.sleep(20)

    counts: list[AsyncIterator[int]] = []
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="by a scope that a handler left open")):
        async with bench.running():
            await bench.cluster.create(widget("leaking"))
            await trio.sleep(60)
