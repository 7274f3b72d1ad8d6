"""Several replicas that share the databases, in place of a leader: ``--shards``."""

import copy
from collections.abc import AsyncIterator

import pytest
import trio
from conftest import MODULES, read_example
from trio.testing import MockClock

from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner, open_runner

NAMES = [f"orders-{number}" for number in range(8)]


@pytest.fixture
async def replicas(cluster: Cluster) -> AsyncIterator[list[OperatorRunner]]:
    """Run two replicas of the operator with databases that are ready."""
    database, settings = read_example()
    async with cluster.open_controllers(), open_runner(cluster) as first, open_runner(cluster) as second:
        await first.start(*MODULES, shards=8, identity="first")
        await second.start(*MODULES, shards=8, identity="second")
        await trio.sleep(20)  # until half of the shards have moved
        await cluster.apply(settings)
        for name in NAMES:
            made = copy.deepcopy(database)
            made["metadata"]["name"] = name
            await cluster.apply(made)
        for name in NAMES:
            await cluster.wait_for("databases", name, "Ready")
        yield [first, second]


def find_provided(replica: OperatorRunner) -> set[str | None]:
    return {call.name for call in replica.calls.select(handler="provide")}


async def test_each_database_is_provided_by_one_replica(
    replicas: list[OperatorRunner], autojump_clock: MockClock
) -> None:
    first, second = map(find_provided, replicas)
    assert first
    assert second
    assert first | second == set(NAMES)
    assert not first & second


async def test_settings_concern_databases_of_both(
    replicas: list[OperatorRunner], autojump_clock: MockClock, cluster: Cluster
) -> None:
    before = [(await cluster.get("statefulsets", name))["spec"]["template"] for name in NAMES]
    await cluster.patch("secrets", "orders-settings", {"stringData": {"work_mem": "64MB"}})
    for name, template in zip(NAMES, before, strict=True):
        await cluster.wait_for("statefulsets", name, lambda found, was=template: found["spec"]["template"] != was)


async def test_the_databases_of_a_replica_that_is_killed_are_provided_by_the_other(
    replicas: list[OperatorRunner], autojump_clock: MockClock, cluster: Cluster
) -> None:
    first, second = replicas
    await first.crash()
    for name in NAMES:
        await cluster.delete("services", name)
    for name in NAMES:
        await cluster.wait_for("services", name, lambda found: "deletionTimestamp" not in found["metadata"])
    assert find_provided(second) == set(NAMES)
