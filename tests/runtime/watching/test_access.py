"""Tests for :mod:`trioperator._runtime.watching.access`."""

from __future__ import annotations

import pytest

import trioperator
from trioperator._kube.api_client import open_client
from trioperator._runtime.watching.access import may_list_namespaces
from trioperator.apiserver import Cluster, User
from trioperator.errors import PausedError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

ROBOT = User(name="robot", groups=("system:authenticated",))


async def ask(cluster: Cluster, user: User | None, plan: FaultPlan | None = None) -> bool:
    settings = trioperator.OperatorSettings()
    transport = FaultyTransport(cluster.transport(user=user) if user else cluster.transport(), plan or FaultPlan())
    info = trioperator.ConnectionInfo(server="http://embedded")
    async with open_client(lambda: info, settings=settings, transport=transport) as client:
        return await may_list_namespaces(client, patience=5)


@pytest.mark.parametrize("user", [None, ROBOT])
async def test_a_right_is_asked_for_and_nothing_forbidden_is_requested(
    user: User | None, autojump_clock: object
) -> None:
    cluster = Cluster(authorization="rbac")
    assert await ask(cluster, user) is (user is None)
    assert [record.status for record in cluster.requests] == ([201, 200] if user is None else [201])


async def test_a_standby_may_ask_for_its_rights(autojump_clock: object) -> None:
    def refuse() -> None:
        raise PausedError("standing by")

    cluster = Cluster(authorization="rbac")
    settings, info = trioperator.OperatorSettings(), trioperator.ConnectionInfo(server="http://embedded")
    async with open_client(lambda: info, settings=settings, transport=cluster.transport(user=ROBOT)) as client:
        assert not await may_list_namespaces(client.fenced(refuse), patience=5)
    assert [record.status for record in cluster.requests] == [201]


@pytest.mark.parametrize("user", [None, ROBOT])
async def test_a_right_that_cannot_be_asked_for_is_tried(user: User | None, autojump_clock: object) -> None:
    cluster, plan = Cluster(authorization="rbac"), FaultPlan()
    plan.add(Fault.status(404), resource="selfsubjectaccessreviews")
    assert await ask(cluster, user, plan) is (user is None)
    assert [record.resource for record in cluster.requests] == ["namespaces"]


async def test_a_right_that_is_granted_may_be_refused_on_the_way(autojump_clock: object) -> None:
    cluster, plan = Cluster(authorization="rbac"), FaultPlan()
    plan.add(Fault.status(403), resource="namespaces")
    assert not await ask(cluster, None, plan)
