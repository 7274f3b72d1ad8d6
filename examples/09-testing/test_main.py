"""Tests of the operator in main.py: on an embedded cluster, in virtual time."""

import pathlib

import trio
from trio.testing import MockClock

from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner, crash_at_every_write

HERE = pathlib.Path(__file__).parent
NAME = "kopf-example-1"


async def live(cluster: Cluster, operator: OperatorRunner) -> None:
    """Start the operator, and create its object."""
    await cluster.apply(HERE.parent / "crd.yaml")
    await operator.start(HERE / "main.py")
    await cluster.apply(HERE.parent / "obj.yaml")
    await cluster.wait_for("kex", NAME, lambda found: found["status"]["phase"] == "Ready")


async def test_the_field_is_copied(operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock) -> None:
    await live(cluster, operator)
    assert operator.logs.select(name=NAME, message="And here we are! Creating.")
    await cluster.patch("kex", NAME, {"spec": {"field": "another value"}})
    await cluster.wait_for("configmaps", NAME, lambda found: found["data"]["field"] == "another value")
    await operator.assert_converged()
    await cluster.delete("kex", NAME)
    await cluster.wait_deleted("kex", NAME)
    assert operator.calls.select(handler="delete_fn")


async def test_the_field_stays(operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock) -> None:
    operator.expect_failures("update_fn/spec.field")
    await live(cluster, operator)
    await cluster.patch("kex", NAME, {"spec": {"field": None}})
    await trio.sleep(60)
    assert (await cluster.get("configmaps", NAME))["data"] == {"field": "value"}


async def test_crashes_lose_nothing(autojump_clock: MockClock) -> None:
    assert await crash_at_every_write(live) > 0
