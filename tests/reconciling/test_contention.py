"""Two operators on one field of a child, in virtual time."""

from typing import Any

import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.databases import CRD, database
from tests.runtime.patching.test_contention_guard import Other, fighting
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner

CHILD = "/api/v1/namespaces/default/configmaps/orders"


async def scale(other: Other) -> None:
    """Set the replicas to what another operator wants, twice a second."""
    while True:
        await trio.sleep(0.5)
        await other.merge({"data": {"replicas": "5"}}, CHILD)


async def test_a_child_on_which_two_operators_disagree_is_applied_once_a_minute(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.reconcile("databases", owns=["configmaps"])
    async def provide(name: str, **_: Any) -> Any:
        return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"replicas": "3"}}]

    def count(since: float) -> int:
        return sum(write.time >= since and write.path.startswith(CHILD) for write in operator.writes)

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database())
    await cluster.wait_for("configmaps", "orders")
    async with fighting(cluster, "autoscaler", scale) as (_, scope):
        await trio.sleep(10)
        assert [line for line in operator.logs if "data.replicas by autoscaler" in str(line)]
        events = await operator.list_events("orders", kind="Database")
        assert [each for each in events if "data.replicas by autoscaler" in each["message"]]
        assert "data.replicas of ConfigMap default/orders is changed by autoscaler" in str(
            operator.why("orders", kind="databases")
        )
        since = trio.current_time()
        await trio.sleep(600)
        assert count(since) <= 10
        scope.cancel()
        await trio.sleep(120)
    assert (await cluster.get("configmaps", "orders"))["data"] == {"replicas": "3"}
    assert not operator.why("orders", kind="databases").contended


async def find_condition(cluster: Cluster) -> tuple[str, str, str] | None:
    found = (await cluster.get("databases", "orders")).get("status", {}).get("conditions", [])
    for each in found:
        if each["type"] == "Contended":
            return each["status"], each["reason"], each["message"]
    return None


def provide_replicas(name: str = "") -> None:
    """Declare a handler with a child, whose data is ``replicas``."""

    @trioperator.on.reconcile("databases", owns=["configmaps"], id=f"provide{name}")
    async def provide(**_: Any) -> Any:
        metadata = {"name": f"orders{name}"}
        return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"replicas": "3"}}]


async def create_with_conditions(cluster: Cluster) -> None:
    await cluster.apply(CRD)
    await cluster.create({**database(), "status": {"conditions": []}})
    await cluster.patch("databases", "orders", {"status": {"conditions": []}}, subresource="status")


async def test_the_object_of_a_contended_child_says_so_until_that_ends(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    provide_replicas()
    provide_replicas("-other")  # another child, which nobody contends
    await create_with_conditions(cluster)
    await operator.start()
    await cluster.wait_for("configmaps", "orders")
    async with fighting(cluster, "autoscaler", scale):
        await trio.sleep(10)
        condition = await find_condition(cluster)
        assert condition is not None
        assert condition[:2] == ("True", "ChangedByOthers")
        assert "data.replicas of ConfigMap default/orders is changed by autoscaler" in condition[2]
    await trio.sleep(120)
    assert await find_condition(cluster) == ("False", "Settled", "")


async def test_a_fight_that_ended_while_the_operator_was_down_is_settled(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    provide_replicas()
    await create_with_conditions(cluster)
    await operator.start()
    await cluster.wait_for("configmaps", "orders")
    async with fighting(cluster, "autoscaler", scale):
        await trio.sleep(10)
        await operator.crash()
    condition = await find_condition(cluster)
    assert condition is not None
    assert condition[0] == "True"
    await operator.start()
    await trio.sleep(10)
    assert await find_condition(cluster) == ("False", "Settled", "")


async def test_own_writes_of_a_child_under_another_name_are_nobody_elses(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.reconcile("databases", owns=["configmaps"])
    async def provide(name: str, **_: Any) -> Any:
        return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"replicas": "3"}}]

    @trioperator.timer("databases", interval=1)
    async def contradict(name: str, client: trioperator.Client, **_: Any) -> None:
        metadata = {"name": name, "namespace": "default"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"replicas": "5"}}
        await client.apply(body, field_manager="databases-scaler", force=True)

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database())
    await trio.sleep(60)
    assert [line for line in operator.logs if "each time soon after it was applied" in str(line)]
    assert not [line for line in operator.logs if "by databases-scaler" in str(line)]
