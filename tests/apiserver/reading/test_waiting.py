"""Tests for :mod:`trioperator.apiserver.reading.waiting`, as ``Cluster.wait_for()`` and ``Cluster.wait_deleted()``."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from trioperator.apiserver import Cluster


def config_map(name: str = "c", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_an_object_that_meets_the_condition_is_returned_at_once(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    created = await cluster.create(config_map(a="1"))
    assert await cluster.wait_for("configmaps", "c") == created
    assert await cluster.wait_for("configmaps", "c", lambda found: found["data"]["a"] == "1") == created
    assert trio.current_time() == 0


async def test_each_state_is_checked_however_soon_the_next_one_follows(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async def write() -> None:
        await trio.sleep(10)
        await cluster.create(config_map())
        for value in "123":
            await cluster.patch("configmaps", "c", {"data": {"a": value}})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        found = await cluster.wait_for("configmaps", "c", lambda found: found["data"]["a"] == "2")
    assert found["data"] == {"a": "2"}
    assert trio.current_time() == 10


async def test_conditions_of_the_status_are_waited_for(cluster: Cluster, autojump_clock: MockClock) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    await cluster.create(pod)
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.wait_for, "pods", "p", "Ready")
        await trio.testing.wait_all_tasks_blocked()
        await cluster.patch("pods", "p", {"status": ready}, subresource="status")


async def test_the_last_state_is_shown_after_the_timeout(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.create(config_map(phase="Pending"))

    def is_ready(found: dict[str, Any]) -> object:
        return found["data"]["ready"]

    with pytest.raises(TimeoutError) as caught:
        await cluster.wait_for("configmaps", "c", is_ready)
    assert trio.current_time() == 60
    assert "configmaps default/c does not meet" in str(caught.value)
    assert "is_ready after 60 seconds (KeyError: 'ready'). Its last state:\n" in str(caught.value)
    assert "phase: Pending" in str(caught.value)
    assert "managedFields" not in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_an_object_that_never_exists_is_an_error_with_those_that_do(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("other"))
    text = (
        "configmaps default/c does not exist after 5 seconds: there is no such object. Objects of this kind: "
        "default/other."
    )
    with pytest.raises(TimeoutError, match=text):
        await cluster.wait_for("configmaps", "c", timeout=5)


async def test_deletions_are_waited_for(cluster: Cluster, autojump_clock: MockClock) -> None:
    await cluster.wait_deleted("configmaps", "c")
    await cluster.create(config_map())
    with pytest.raises(TimeoutError, match="configmaps default/c is not deleted after 60 seconds"):
        await cluster.wait_deleted("configmaps", "c")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.wait_deleted, "configmaps", "c")
        await trio.testing.wait_all_tasks_blocked()
        await cluster.delete("configmaps", "c")
        await cluster.create(config_map())  # another object of the same name


async def test_waiting_leaves_nothing_behind(cluster: Cluster, autojump_clock: MockClock) -> None:
    before = list(cluster._state.store.on_change)
    with trio.move_on_after(1):
        await cluster.wait_for("configmaps", "c")
    assert cluster._state.store.on_change == before
