"""Workers: who is served when, and by how many tasks."""

from __future__ import annotations

import collections
import gc
import itertools
import math
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator.handling.registry import KindHandlers
from trioperator.kube.objects import parse_object
from trioperator.model.resource import Resource
from trioperator.runtime.table import Kind, Known, Notice, ObjectTable
from trioperator.runtime.worker import Workers, open_workers
from trioperator.runtime.writer import collect
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
Take = Callable[[Known], Awaitable[float | None]]


class NoQueue:
    def add(self, known: Known) -> None:
        raise AssertionError


TABLE = ObjectTable(
    Kind(Resource("example.com", "v1", "widgets"), KindHandlers()), NoQueue(), memo=None, consistency_timeout=5
)


def make(name: str, *, fresh: bool = True) -> Known:
    """Make an object that has something to do."""
    raw = parse_object(msgspec.json.encode({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}}))
    known = Known(TABLE, name, raw, initial=not fresh)
    known.fresh = fresh
    return known


class Turns:
    """Take turns, and remember them: who, when, how many at once."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.names: list[str] = []
        self.times: list[float] = []
        self.running: list[str] = []
        self.most = 0

    async def take(self, known: Known) -> float | None:
        assert known.name not in self.running
        known.take()
        known.fresh = False
        self.names.append(known.name)
        self.times.append(trio.current_time())
        self.running.append(known.name)
        self.most = max(self.most, len(self.running))
        await trio.sleep(self.seconds)
        self.running.remove(known.name)
        return None


@pytest.mark.parametrize("limit", [1, 3, 10])
async def test_no_more_work_at_once_than_the_limit(limit: int, autojump_clock: MockClock) -> None:
    turns = Turns()
    began = trio.current_time()
    async with open_workers(turns.take, limit=limit) as workers:
        for number in range(20):
            workers.add(make(f"{number}", fresh=bool(number % 2)))
        await trio.sleep(100)
        assert turns.most == limit
        assert len(turns.names) == 20
        assert max(turns.times) - began == pytest.approx(math.ceil(20 / limit) - 1)


async def test_without_a_limit_all_work_at_once(autojump_clock: MockClock) -> None:
    turns = Turns()
    async with open_workers(turns.take, limit=None) as workers:
        for number in range(300):
            workers.add(make(f"{number}"))
        await trio.sleep(1)
    assert turns.most == 300


async def test_workers_are_gone_when_there_is_no_work(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery, open_workers(Turns().take, limit=5) as workers:
        for number in range(20):
            workers.add(make(f"{number}"))
        await trio.sleep(100)
        assert [task.name for task in workers._nursery.child_tasks] == ["alarm"]
        nursery.cancel_scope.cancel()


async def test_an_object_is_with_one_worker_at_a_time_and_its_news_are_not_lost(autojump_clock: MockClock) -> None:
    turns = Turns()
    known = make("w")
    async with open_workers(turns.take, limit=None) as workers:
        workers.add(known)
        workers.add(known)
        await trio.sleep(0.5)
        known.notices = None
        TABLE._queue = workers
        TABLE._note(known, Notice("MODIFIED", 2), fresh=True)
        await trio.sleep(10)
    assert turns.names == ["w", "w"]
    assert turns.most == 1


async def test_fresh_objects_come_first_and_initial_ones_are_not_forgotten(autojump_clock: MockClock) -> None:
    turns = Turns()
    async with open_workers(turns.take, limit=1) as workers:
        for number in range(10):
            workers.add(make(f"initial {number}", fresh=False))
        for number in range(20):
            workers.add(make(f"fresh {number}"))
        await trio.sleep(100)
    lanes = [name.split()[0] for name in turns.names]
    assert lanes[:10] == ["fresh"] * 4 + ["initial"] + ["fresh"] * 4 + ["initial"]
    for lane in ("initial", "fresh"):
        numbers = [int(name.split()[1]) for name in turns.names if name.startswith(lane)]
        assert numbers == sorted(numbers)  # in each lane, first come, first served


@pytest.mark.parametrize("limit", [1, 2, 7])
async def test_every_initial_object_is_served_in_time_under_constant_fresh_load(
    limit: int, autojump_clock: MockClock
) -> None:
    turns = Turns()
    began = trio.current_time()
    async with trio.open_nursery() as nursery, open_workers(turns.take, limit=limit) as workers:

        async def load() -> None:
            for number in itertools.count():
                workers.add(make(f"fresh {number}"))
                await trio.sleep(0.5 / limit)  # twice as much as can be done

        nursery.start_soon(load)
        await trio.sleep(10)
        for number in range(30):
            workers.add(make(f"initial {number}", fresh=False))
        await trio.sleep(10 + 30 * 5 / limit)
        served = [name for name in turns.names if name.startswith("initial")]
        assert len(served) == 30
        assert trio.current_time() - began < 10_000
        nursery.cancel_scope.cancel()


async def test_an_event_makes_a_waiting_initial_object_urgent_and_it_is_served_once(autojump_clock: MockClock) -> None:
    turns = Turns()
    async with open_workers(turns.take, limit=1) as workers:
        initial = [make(f"{number}", fresh=False) for number in range(10)]
        for known in initial:
            workers.add(known)
        initial[8].fresh = True
        workers.add(initial[8])
        workers.add(initial[8])
        await trio.sleep(100)
    assert turns.names[0] == "8"
    assert sorted(turns.names) == [str(number) for number in range(10)]


async def test_objects_are_woken_when_they_are_due(autojump_clock: MockClock) -> None:
    turns = Turns(seconds=0)
    began = trio.current_time()
    async with open_workers(turns.take, limit=1) as workers:
        for due in (30.0, 10.0, 20.0, 10.0):
            workers.add_at(make(f"{due:g}"), began + due)
        await trio.sleep(100)
    assert turns.names == ["10", "10", "20", "30"]
    assert [time - began for time in turns.times] == pytest.approx([10, 10, 20, 30])


async def test_an_object_that_waits_for_its_time_keeps_no_worker(autojump_clock: MockClock) -> None:
    seen: list[tuple[str, float]] = []
    began = trio.current_time()

    async def take(known: Known) -> float | None:
        seen.append((known.name, trio.current_time() - began))
        return began + 50 if len(seen) == 1 else None

    async with open_workers(take, limit=1) as workers:
        workers.add(make("waits"))
        await settle()
        workers.add(make("other"))
        await trio.sleep(100)
    assert seen == [("waits", 0), ("other", 0), ("waits", 50)]


async def test_a_due_time_is_void_when_the_object_had_a_turn_before(autojump_clock: MockClock) -> None:
    turns = Turns(seconds=0)
    known = make("w")
    async with open_workers(turns.take, limit=1) as workers:
        workers.add_at(known, trio.current_time() + 10)
        await trio.sleep(5)
        workers.add(known)
        await trio.sleep(100)
    assert turns.names == ["w"]


async def test_closed_workers_end_their_turns_and_begin_no_others(autojump_clock: MockClock) -> None:
    turns = Turns(seconds=5)
    began = trio.current_time()
    async with open_workers(turns.take, limit=2) as workers:
        for number in range(6):
            workers.add(make(f"{number}"))
        workers.add_at(make("due"), began + 2)
        await trio.sleep(1)
        workers.close(give_up_at=began + 100)
        workers.add(make("late"))
    assert sorted(turns.names) == ["0", "1"]
    assert trio.current_time() - began == pytest.approx(5)


async def test_turns_that_do_not_end_are_given_up_in_time(autojump_clock: MockClock) -> None:
    turns = Turns(seconds=math.inf)
    began = trio.current_time()
    async with open_workers(turns.take, limit=2) as workers:
        workers.add(make("w"))
        await trio.sleep(1)
        workers.close(give_up_at=began + 7)
    assert trio.current_time() - began == pytest.approx(7)


async def test_closing_without_a_time_waits_for_all_turns_at_work(autojump_clock: MockClock) -> None:
    turns = Turns(seconds=1000)
    async with open_workers(turns.take, limit=2) as workers:
        workers.add(make("w"))
        await settle()
    assert turns.names == ["w"]
    assert turns.running == []


async def test_what_is_unsaved_is_saved_at_the_end_by_more_tasks_than_the_limit(autojump_clock: MockClock) -> None:
    turns = Turns()
    queued, waiting, fine = make("queued"), make("waiting"), make("fine")
    for known in (queued, waiting):
        collect(known, {"spec": {}}, (), by="a daemon", logger=known.make_logger())
    began = trio.current_time()
    async with open_workers(turns.take, limit=1) as workers:
        workers.add(make("busy"))
        await settle()
        workers.add(queued)
        workers.add(fine)
        workers.add_at(waiting, trio.current_time() + 3600)
    assert sorted(turns.names) == ["busy", "queued", "waiting"]
    assert turns.times == [began] * 3


async def test_what_comes_during_the_last_turn_of_an_object_is_saved_by_another_one(autojump_clock: MockClock) -> None:
    turns = Turns()
    known = make("w")
    async with open_workers(turns.take, limit=1) as workers:
        workers.add(known)
        await settle()
        workers.close()
        collect(known, {"spec": {}}, (), by="a daemon", logger=known.make_logger())
        known.notices = collections.deque([Notice("MODIFIED", 2)])
    assert turns.names == ["w", "w"]


async def test_idle_workers_can_be_closed(autojump_clock: MockClock) -> None:
    async with open_workers(Turns().take, limit=None) as workers:
        assert isinstance(workers, Workers)


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


async def test_an_object_that_never_rests_does_not_keep_others_waiting(bench: Bench, autojump_clock: MockClock) -> None:
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


async def test_an_object_is_not_put_behind_others_by_the_echo_of_an_own_write(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.queueing.worker_limit = 1
    plan = FaultPlan()
    plan.add(Fault.delay(after=0.1), method="PATCH")  # so that the stream is faster

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


def tables() -> list[ObjectTable]:
    """Find all tables with objects: those of the operators at work, and what a test before has left behind."""
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is ObjectTable and found is not TABLE and len(found)]


@pytest.fixture
def others() -> list[ObjectTable]:
    """Find the tables that are there before the test."""
    return tables()


async def test_objects_that_wait_no_more_are_let_go_though_their_alarms_are_hours_away(
    autojump_clock: MockClock,
) -> None:
    woken: list[str] = []

    async def take(known: Known) -> float | None:
        woken.append(known.name)
        known.take()
        return None

    async with open_workers(take, limit=None) as workers:
        for number in range(2000):
            known = make(f"gone {number}")
            workers.add_at(known, 10_000)
            workers.add(known)
            await trio.testing.wait_all_tasks_blocked()
        workers.add_at(make("waiting"), 10_000)
        del known
        gc.collect()
        left = [found.name for found in gc.get_objects() if type(found) is Known and found.table is TABLE]
        assert len([name for name in left if name.startswith("gone")]) < 600
        assert len(woken) == 2000
        await trio.sleep(20_000)
        assert woken[2000:] == ["waiting"]


async def test_idle_objects_have_neither_tasks_nor_bodies(
    bench: Bench, autojump_clock: MockClock, others: list[ObjectTable]
) -> None:
    @on.create("widgets", labels={"mine": "yes"}, id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        raise AssertionError

    await bench.cluster.create(widget("first"))
    async with bench.running():
        await settle(5)
        with_one = count_tasks()
        for number in range(5000):
            await bench.cluster.create(widget(f"w{number}"))
        await settle(5)
        assert count_tasks() == with_one
        (table,) = [found for found in tables() if found not in others]
        assert len(table) == 5001
        for known in table:
            kept = (known.body, known.last, known.notices, known.pending, known.unfinished, known._memo, known.queued)
            assert kept == (None,) * 7
            assert not known.busy
    assert bench.writes() == []


async def test_handled_objects_have_no_bodies_either(
    bench: Bench, autojump_clock: MockClock, others: list[ObjectTable]
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
        (table,) = [found for found in tables() if found not in others]
        for known in table:
            kept = (known.body, known.notices, known.pending, known.unfinished, known.alarm)
            assert kept == (None,) * 5


async def test_objects_that_are_gone_are_forgotten(
    bench: Bench, autojump_clock: MockClock, others: list[ObjectTable]
) -> None:
    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        pass

    async with bench.running():
        for number in range(100):
            await bench.cluster.create(widget(f"w{number}"))
        await settle(5)
        (table,) = [found for found in tables() if found not in others]
        assert len(table) == 100
        for number in range(100):
            await bench.cluster.delete("widgets", f"w{number}")
        await settle(5)
        assert len(table) == 0
        gc.collect()
        assert [found for found in gc.get_objects() if type(found) is Known and found.table is table] == []


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
