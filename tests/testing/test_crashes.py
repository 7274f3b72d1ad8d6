"""Tests for :mod:`trioperator.testing.crashes`."""

from __future__ import annotations

import datetime
import secrets

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, widget
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner, crash_at_every_write

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


async def live(cluster: Cluster, operator: OperatorRunner) -> None:
    """Create, change and delete an object."""
    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(widget("w", size=1))
    await cluster.wait_for("widgets", "w", lambda found: found["status"]["size"] == 1)
    await cluster.patch("widgets", "w", {"spec": {"size": 2}})
    await cluster.wait_for("widgets", "w", lambda found: found["status"]["size"] == 2)


def declare(*, named: bool) -> None:
    @trioperator.on.create("widgets")
    async def create_fn(name: str, client: trioperator.Client, **_: object) -> None:
        meta = {"name": name} if named else {"generateName": f"{name}-"}
        try:
            await client.create({**CONFIG_MAP, "metadata": meta, "data": {"password": "p"}})
        except trioperator.ConflictError:
            assert named  # it exists from an attempt whose result was not stored

    @trioperator.on.create("widgets")
    @trioperator.on.update("widgets")
    async def size_fn(spec: trioperator.Spec, patch: trioperator.Patch, **_: object) -> None:
        patch.status["size"] = spec["size"]

    @trioperator.on.delete("widgets")
    async def delete_fn(**_: object) -> None: ...


async def test_an_operator_that_survives_crashes_gets_to_the_same_end(autojump_clock: MockClock) -> None:
    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        declare(named=True)
        await live(cluster, operator)
        await cluster.delete("widgets", "w")
        await cluster.wait_deleted("widgets", "w")

    crashes = await crash_at_every_write(scenario)
    assert crashes >= 6


async def test_children_that_are_created_twice_are_found(autojump_clock: MockClock) -> None:
    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        declare(named=False)
        await live(cluster, operator)

    with pytest.raises(AssertionError, match=r"ConfigMap default/w-") as caught:
        await crash_at_every_write(scenario)
    (note,) = caught.value.__notes__
    assert note.startswith("The operator had crashed at write ")


async def test_handlers_that_fail_after_a_crash_are_found(autojump_clock: MockClock) -> None:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.create("configmaps", registry=registry)
    async def create_fn(name: str, client: trioperator.Client, **_: object) -> None:
        await client.create({**CONFIG_MAP, "kind": "Secret", "metadata": {"name": name}})

    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        await operator.start(registry)
        await cluster.create({**CONFIG_MAP, "metadata": {"name": "c"}})
        await trio.sleep(10)

    with pytest.raises(AssertionError, match=r"create_fn for ConfigMap default/c has failed[\s\S]*already exists"):
        await crash_at_every_write(scenario)


async def test_ignored_fields_are_not_compared(operator: OperatorRunner, autojump_clock: MockClock) -> None:
    @trioperator.on.create("configmaps")
    async def create_fn(patch: trioperator.Patch, **_: object) -> None:
        patch["data"] = {"password": secrets.token_hex(), "created": wall_now().isoformat()}

    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        await operator.start()  # with what was declared outside
        await cluster.create({**CONFIG_MAP, "metadata": {"name": "c"}})

    with pytest.raises(AssertionError, match="but without a crash it is"):
        await crash_at_every_write(scenario)
    assert await crash_at_every_write(scenario, ignore=["password"]) >= 2


async def test_an_operator_may_crash_before_it_is_ready(autojump_clock: MockClock) -> None:
    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        declare(named=True)
        await cluster.apply(CRD)
        await cluster.create(widget("w", size=1))
        await operator.start()
        await cluster.wait_for("widgets", "w", lambda found: found["status"]["size"] == 1)

    assert await crash_at_every_write(scenario) >= 4


async def test_crashes_need_virtual_time() -> None:
    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        raise AssertionError

    with pytest.raises(RuntimeError, match="needs virtual time: request the fixture autojump_clock"):
        await crash_at_every_write(scenario)


async def test_the_wall_time_begins_anew_with_each_play(operator: OperatorRunner, autojump_clock: MockClock) -> None:
    starts: list[datetime.datetime] = []

    @trioperator.on.create("configmaps")
    async def back_up(client: trioperator.Client, name: str) -> None:
        meta = {"name": f"{name}-{wall_now():%Y%m%d}"}
        try:
            await client.create({**CONFIG_MAP, "kind": "Secret", "metadata": meta})
        except trioperator.ConflictError:
            pass  # from an attempt whose result was not stored

    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        starts.append(wall_now())
        await operator.start()
        await cluster.create({**CONFIG_MAP, "metadata": {"name": "c"}})
        await trio.sleep(30 * 3600)

    before, now = wall_now(), trio.current_time()
    assert await crash_at_every_write(scenario) >= 2
    assert set(starts) == {before}
    assert (wall_now() - before).total_seconds() == pytest.approx(trio.current_time() - now)
