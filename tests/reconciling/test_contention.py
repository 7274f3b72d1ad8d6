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
        assert "data.replicas is changed by autoscaler" in str(operator.why("orders", kind="databases"))
        since = trio.current_time()
        await trio.sleep(600)
        assert count(since) <= 10
        scope.cancel()
        await trio.sleep(120)
    assert (await cluster.get("configmaps", "orders"))["data"] == {"replicas": "3"}
    assert not operator.why("orders", kind="databases").contended
