"""Tests for :mod:`trioperator.client.writing`."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.client.conftest import config_map, deployment, handling
from tests.runtime.conftest import CRD, widget
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.errors import (
    ConflictError,
    ForeignChildError,
    InvalidError,
    NotFoundError,
    ServerError,
)
from trioperator.testing import Fault, FaultPlan


async def test_fields_of_other_managers_are_taken_by_force_only(client: Client, autojump_clock: MockClock) -> None:
    await client.apply(config_map("one", a="1"), field_manager="other")
    with pytest.raises(ConflictError, match="conflict"):
        await client.apply(config_map("one", a="2"))
    assert trio.current_time() == 0
    assert (await client.apply(config_map("one", a="2"), force=True))["data"] == {"a": "2"}


@pytest.mark.parametrize("verb", ["apply", "create"])
async def test_a_conflict_on_the_server_is_tried_again(
    client: Client, plan: FaultPlan, verb: str, autojump_clock: MockClock
) -> None:
    plan.add(Fault.status(409, reason="Conflict"), times=4, resource="configmaps")
    assert await getattr(client, verb)(config_map("one"))
    assert 0 < trio.current_time() < 3


async def test_after_five_conflicts_in_a_row_the_conflict_is_raised(
    client: Client, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    plan.add(Fault.status(409, reason="Conflict"), times=5, resource="configmaps")
    with pytest.raises(ConflictError):
        await client.apply(config_map("one"))


async def test_a_write_to_one_version_only_is_not_tried_again_after_a_conflict(
    client: Client, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    created = await client.create(config_map("one"))
    plan.add(Fault.status(409, reason="Conflict"), times=1, resource="configmaps")
    with pytest.raises(ConflictError):
        await client.patch(created, merge={"metadata": {"resourceVersion": "1"}})
    assert await client.patch(created, merge={"data": {"a": "1"}})


async def test_what_can_never_be_applied_is_not_tried_again(client: Client, autojump_clock: MockClock) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "data": {"a": "not base64"}}
    with pytest.raises(ServerError, match="failed to convert new object"):
        await client.apply(secret)
    assert trio.current_time() == 0


@pytest.mark.parametrize("is_owned", [False, True])
async def test_applying_a_child_leaves_the_objects_of_others_alone(
    client: Client, cluster: Cluster, owner: dict[str, Any], *, is_owned: bool
) -> None:
    other = await cluster.create(config_map("other"))
    before = await client.create(config_map("one", payroll="secret"), owner=other if is_owned else None)
    with handling(owner):
        with pytest.raises(ForeignChildError, match="default/one exists, and is not owned"):
            await client.apply(config_map("one", key="value"))
        with pytest.raises(ForeignChildError):
            await client.apply(config_map("one", key="value"), force=True)
    assert await cluster.get("configmaps", "one", "default") == before


async def test_applying_takes_an_object_over_on_request(client: Client, owner: dict[str, Any]) -> None:
    await client.create(config_map("one", payroll="secret"))
    with handling(owner):
        taken = await client.apply(config_map("one", key="value"), adopt=True)
        again = await client.apply(config_map("one", key="new"))
    assert taken["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert again["data"] == {"key": "new", "payroll": "secret"}


async def test_an_object_that_changes_hands_while_it_is_applied_is_left_alone(
    client: Client, cluster: Cluster, plan: FaultPlan, owner: dict[str, Any], autojump_clock: MockClock
) -> None:
    async def replace() -> None:
        await trio.sleep(5)
        await cluster.delete("configmaps", "one", "default")
        await cluster.create(config_map("one", payroll="secret"))

    with handling(owner):
        await client.create(config_map("one", key="old"))
        plan.add(Fault.delay(before=10), verb="patch")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(replace)
            with pytest.raises(ForeignChildError):
                await client.apply(config_map("one", key="new"))
    assert (await cluster.get("configmaps", "one", "default"))["data"] == {"payroll": "secret"}


async def test_an_object_that_comes_while_a_child_is_applied_is_left_alone(
    client: Client, cluster: Cluster, plan: FaultPlan, owner: dict[str, Any], autojump_clock: MockClock
) -> None:
    async def create() -> None:
        await trio.sleep(5)
        await cluster.create(config_map("one", payroll="secret"))

    plan.add(Fault.delay(before=10), verb="patch")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(create)
        with handling(owner), pytest.raises(ForeignChildError):
            await client.apply(config_map("one", key="new"))
    assert (await cluster.get("configmaps", "one", "default"))["data"] == {"payroll": "secret"}


async def test_a_child_that_others_change_meanwhile_is_applied_to_what_they_have_made_of_it(
    client: Client, cluster: Cluster, plan: FaultPlan, owner: dict[str, Any], autojump_clock: MockClock
) -> None:
    async def change() -> None:
        await trio.sleep(5)
        await cluster.patch("configmaps", "one", {"metadata": {"labels": {"a": "b"}}}, "default")

    with handling(owner):
        await client.apply(config_map("one", key="old"))
        plan.add(Fault.delay(before=10), verb="patch", times=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            applied = await client.apply(config_map("one", key="new"))
    assert (applied["data"], applied["metadata"]["labels"]) == ({"key": "new"}, {"a": "b"})


@pytest.mark.parametrize("as_status", [False, True])
@pytest.mark.parametrize(
    "patch",
    [
        {"merge": {"metadata": {"labels": {"a": "b"}}}},
        {"strategic": {"metadata": {"labels": {"a": "b"}}}},
        {"json": [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]},
    ],
    ids=lambda patch: next(iter(patch)),
)
async def test_the_successor_of_an_object_is_not_patched(
    client: Client, cluster: Cluster, patch: dict[str, Any], as_status: bool
) -> None:
    old = await cluster.create(deployment("one"))
    await client.patch(old, **patch, subresource="status" if as_status else None)
    await cluster.delete("deployments", "one", "default")
    new = await cluster.create(deployment("one"))
    with pytest.raises(NotFoundError, match="replaced by another object"):
        await client.patch(old, **patch, subresource="status" if as_status else None)
    with pytest.raises(NotFoundError, match="replaced by another object"):
        await client.scale(old, replicas=3)
    assert await cluster.get("deployments", "one", "default") == new
    await client.patch("deployments", "one", **patch)  # whichever has the name
    await client.scale("deployments", "one", replicas=3)


async def test_who_merges_into_the_status_of_a_successor_is_told(client: Client, cluster: Cluster) -> None:
    await cluster.apply(CRD)
    old = await cluster.create(widget("one"))
    await cluster.delete("widgets", "one", "default")
    await cluster.create(widget("one"))
    with pytest.raises(NotFoundError, match="replaced by another object"):
        await client.patch(old, merge={"status": {"a": 1}}, subresource="status")
    with pytest.raises(NotFoundError, match="replaced by another object"):
        await client.patch(old, json=[{"op": "add", "path": "/status", "value": {"b": 1}}], subresource="status")


@pytest.mark.parametrize("readable", [True, False])
async def test_a_patch_that_is_invalid_for_another_reason_says_so(
    client: Client, cluster: Cluster, plan: FaultPlan, readable: bool
) -> None:
    old = await cluster.create(deployment("one"))
    if not readable:
        plan.add(Fault.status(403), verb="get")
    with pytest.raises(InvalidError):
        await client.patch(old, merge={"spec": {"replicas": -1}})
