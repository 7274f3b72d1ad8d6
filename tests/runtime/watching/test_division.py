"""Tests for :mod:`trioperator._runtime.watching.division`: what is asked for, and what has come, while shards move."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, settle, widget
from trioperator._kube.api_client import open_client
from trioperator._kube.objects import RawObject, parse_object
from trioperator._model.shard_ranges import NOTHING, SPACE, ShardRanges, find_shard, range_of
from trioperator._runtime.watching.division import Division
from trioperator._runtime.watching.reflector import Reflector
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

SHARDS = 4
WIDGETS = "/apis/example.com/v1/widgets"


def shards(*numbers: int) -> ShardRanges:
    return ShardRanges.of(range_of(number, SHARDS) for number in numbers)


def make_object(shard: int, version: int) -> RawObject:
    uid = next(uid for uid in map(str, iter(uuid.uuid4, None)) if find_shard(uid, SHARDS) == shard)
    return parse_object(b'{"metadata":{"uid":"%b","resourceVersion":"%d"}}' % (uid.encode(), version))


class Stage:
    """A reflector of a divided kind on a cluster, with what it has passed on, and who is known by that."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.plan = FaultPlan()
        self.events: list[tuple[str | None, str]] = []
        self.known: set[str] = set()
        self.ended = 0
        self.division = Division(ShardRanges(), self.end)
        self.names: dict[int, list[str]] = {}

    def end(self) -> None:
        self.ended += 1

    def observe(self, type: str | None, obj: RawObject) -> str:
        self.events.append((type, obj.name))
        (self.known.discard if type == "DELETED" else self.known.add)(obj.name)
        return obj.name

    def replace(self, listed: Collection[str]) -> None:
        self.known &= set(listed)

    async def fill(self, count: int = 40) -> None:
        for number in range(count):
            made = await self.cluster.create(widget(f"w{number}"))
            self.names.setdefault(find_shard(made["metadata"]["uid"], SHARDS), []).append(f"w{number}")
        assert set(self.names) == set(range(SHARDS))

    def in_shards(self, *numbers: int) -> set[str]:
        return {name for number in numbers for name in self.names[number]}

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[Reflector]:
        info, settings = trioperator.ConnectionInfo(server="http://embedded"), trioperator.OperatorSettings()
        transport = FaultyTransport(self.cluster.transport(), self.plan)
        async with (
            open_client(lambda: info, settings=settings, transport=transport) as client,
            trio.open_nursery() as nursery,
        ):
            reflector = Reflector(client, WIDGETS, self, division=self.division)
            await nursery.start(reflector.serve)
            yield reflector
            nursery.cancel_scope.cancel()

    def asked(self, verb: str) -> list[str]:
        """Return the shard selectors of requests."""
        return [dict(r.query).get("shardSelector", "") for r in self.cluster.requests.select(verb=verb)]


@pytest.fixture
async def stage() -> Stage:
    cluster = Cluster(seed=0)
    await cluster.apply(CRD)
    return Stage(cluster)


async def test_who_has_no_shards_receives_nothing(stage: Stage, autojump_clock: MockClock) -> None:
    await stage.fill()
    async with stage.following() as reflector:
        await stage.cluster.patch("widgets", "w1", {"spec": {"size": 2}})
        await settle(5)
        assert reflector.status.tried.is_set()
        assert reflector.selector == str(NOTHING)
    assert not stage.events
    assert set(stage.asked("list")) == set(stage.asked("watch")) == {str(NOTHING)}


async def test_what_is_acquired_is_listed_and_the_watch_goes_on_from_where_it_is(
    stage: Stage, autojump_clock: MockClock
) -> None:
    await stage.fill()
    async with stage.following() as reflector:
        reflector.select(shards(1))
        await settle(1)
        assert stage.known == stage.in_shards(1)
        stage.events.clear()
        stage.cluster.requests.clear()
        gone, *_ = stage.names[2]
        changed = stage.names[2][1]
        await stage.cluster.delete("widgets", gone)
        await stage.cluster.patch("widgets", changed, {"spec": {"size": 2}})
        reflector.select(shards(1, 2))
        await settle(1)
        assert stage.known == stage.in_shards(1, 2) - {gone}
        assert {type for type, _ in stage.events} == {None}, "what was before the list was handled by others"
        assert stage.asked("list") == [str(shards(2))]
        assert stage.asked("watch") == [str(shards(1, 2))]
        stage.events.clear()
        await stage.cluster.patch("widgets", changed, {"spec": {"size": 3}})
        await stage.cluster.delete("widgets", changed)
        await stage.cluster.patch("widgets", stage.names[1][0], {"spec": {"size": 3}})
        await settle(1)
        assert stage.events == [("MODIFIED", changed), ("DELETED", changed), ("MODIFIED", stage.names[1][0])]


async def test_what_is_released_is_not_received_any_more_and_nothing_is_listed_for_that(
    stage: Stage, autojump_clock: MockClock
) -> None:
    await stage.fill()
    stage.division.select(shards(0, 1))
    async with stage.following() as reflector:
        await settle(1)
        stage.cluster.requests.clear()
        stage.events.clear()
        reflector.select(shards(1))
        for name in stage.in_shards(0, 1):
            await stage.cluster.patch("widgets", name, {"spec": {"size": 2}})
        await settle(1)
        assert {name for _, name in stage.events} >= stage.in_shards(1)
        assert not stage.asked("list")
        before = reflector.status.received
        await stage.cluster.patch("widgets", stage.names[0][0], {"spec": {"size": 3}})
        await settle(1)
        assert reflector.status.received == before


async def test_a_shard_that_comes_back_at_once_is_listed_again(stage: Stage, autojump_clock: MockClock) -> None:
    await stage.fill()
    stage.division.select(shards(0, 1))
    async with stage.following() as reflector:
        await settle(1)
        stage.events.clear()
        reflector.select(shards(1))
        stage.known -= stage.in_shards(0)  # as they are forgotten
        reflector.select(shards(0, 1))
        await settle(1)
        assert stage.known == stage.in_shards(0, 1)
        assert sorted(stage.events) == sorted((None, name) for name in stage.names[0])


@pytest.mark.parametrize(
    "fault", [Fault.status(503), Fault.status(410), Fault.half_body(), Fault.refuse()], ids=["503", "410", "half", "no"]
)
async def test_what_is_acquired_is_not_missed_if_its_list_fails(
    stage: Stage, autojump_clock: MockClock, fault: Fault
) -> None:
    await stage.fill()
    stage.division.select(shards(3))
    async with stage.following() as reflector:
        await settle(1)
        stage.plan.add(fault, verb="list", times=2)
        reflector.select(shards(0, 3))
        await stage.cluster.delete("widgets", stage.names[3][0])
        await settle(30)
        assert stage.known == stage.in_shards(0, 3) - {stage.names[3][0]}
        await stage.cluster.patch("widgets", stage.names[0][0], {"spec": {"size": 3}})
        await settle(1)
        assert stage.events[-1] == ("MODIFIED", stage.names[0][0])


async def test_shards_that_move_while_a_list_comes_are_complete_all_the_same(
    stage: Stage, autojump_clock: MockClock
) -> None:
    await stage.fill()
    stage.plan.add(Fault.delay(after=5), verb="list")
    async with stage.following() as reflector:
        for wanted in (shards(0), shards(0, 1), shards(1), shards(0, 1), shards(0, 1, 3)):
            reflector.select(wanted)
            await settle(3)
        await settle(60)
        assert stage.known == stage.in_shards(0, 1, 3)


@pytest.mark.parametrize("whole", [False, True], ids=["missing", "whole"])
async def test_what_is_gone_is_not_known_if_its_shard_came_back_while_an_older_list_was_on_its_way(
    whole: bool, stage: Stage, autojump_clock: MockClock
) -> None:
    await stage.fill()
    stage.division.select(shards(3))
    async with stage.following() as reflector:
        await settle(1)
        stage.plan.add(Fault.delay(after=5), verb="list", times=1)
        reflector.select(shards(0, 3))
        if whole:
            reflector.distrust()
        await settle(1)
        for wanted in (shards(3), shards(0, 3)):
            reflector.select(wanted)
        await stage.cluster.delete("widgets", stage.names[0][0])
        await settle(30)
        assert stage.known == stage.in_shards(0, 3) - {stage.names[0][0]}


async def test_each_of_four_replicas_receives_a_quarter_of_all_events(stage: Stage, autojump_clock: MockClock) -> None:
    reflectors = []
    async with contextlib.AsyncExitStack() as stack:
        for shard in range(SHARDS):
            stage.division = Division(shards(shard), stage.end)
            reflectors.append(await stack.enter_async_context(stage.following()))
        for number in range(3000):
            await stage.cluster.create(widget(f"w{number}"))
        await settle(1)
    received = [reflector.status.received for reflector in reflectors]
    assert sum(received) == 3000
    assert max(received) <= 0.27 * 3000


async def test_all_is_received_from_a_server_that_does_not_divide(autojump_clock: MockClock) -> None:
    stage = Stage(Cluster(seed=0, shard_selectors=False))
    await stage.cluster.apply(CRD)
    await stage.fill()
    async with stage.following() as reflector:
        await settle(1)
        assert stage.ended == 1
        assert stage.known == stage.in_shards(*range(SHARDS))
        assert not reflector.selector
        stage.cluster.requests.clear()
        reflector.select(shards(1))
        await settle(1000)
    assert set(stage.asked("watch")) == {""}
    assert not stage.asked("list"), "it has all that is acquired"


async def test_that_a_server_does_not_divide_is_noticed_when_it_sends_an_object(autojump_clock: MockClock) -> None:
    stage = Stage(Cluster(seed=0, shard_selectors=False))
    await stage.cluster.apply(CRD)
    async with stage.following():
        await settle(1)
        before = stage.ended
        assert before == 0
        await stage.fill()
        await settle(1)
        assert stage.ended == 1
        assert stage.known == stage.in_shards(*range(SHARDS))


async def test_a_division_can_be_given_up_for_those_who_need_all_objects(
    stage: Stage, autojump_clock: MockClock
) -> None:
    await stage.fill()
    stage.division.select(shards(0))
    async with stage.following() as reflector:
        await settle(1)
        for _ in range(2):
            reflector.give_up_division()
            await settle(1)
            assert stage.ended == 1
            assert stage.known == stage.in_shards(*range(SHARDS))


def test_events_are_old_that_are_not_newer_than_the_list_of_their_range() -> None:
    division = Division(shards(0, 1), lambda: None)
    division.begin_list(whole=True)
    division.end_list("10", whole=True)
    assert not division.is_old(make_object(0, 5)), "no list of a part"
    assert division.is_old(make_object(2, 15)), "it is going to be listed, if it is wanted"
    division.select(shards(0, 1, 2))
    division.begin_list(whole=False)
    division.end_list("20", whole=False)
    assert division.is_complete
    assert not division.is_old(make_object(0, 15))
    assert division.is_old(make_object(2, 15))
    assert division.is_old(make_object(2, 20))
    assert not division.is_old(make_object(2, 21))


def test_ranges_that_are_acquired_one_after_the_other_keep_the_versions_of_their_lists() -> None:
    division = Division(shards(0), lambda: None)
    for version, wanted in (("10", shards(0, 1)), ("20", shards(0, 1, 2))):
        division.select(wanted)
        division.begin_list(whole=False)
        division.end_list(version, whole=False)
    assert division.is_old(make_object(1, 5))
    assert division.is_old(make_object(2, 5))
    assert not division.is_old(make_object(1, 15))
    assert division.is_old(make_object(2, 15))
    assert not division.is_old(make_object(2, 21))


def test_more_may_be_asked_for_than_is_wanted_if_there_are_very_many_ranges() -> None:
    wanted = ShardRanges.of(range_of(shard, 1000) for shard in range(0, 1000, 2))
    division = Division(wanted, lambda: None)
    asked: Any = division.begin_watch()["shardSelector"]
    assert ShardRanges.parse(asked).ranges == ((0, wanted.ranges[-1][1]),)
    for shard in range(SHARDS - 1):
        assert division.is_expected(make_object(shard, 1))
    assert wanted.ranges[-1][1] < SPACE
