"""The later life of a database: it is paused, poked, fought over, and stored in another version."""

from typing import Any

import httpx
import trio
from conftest import MODULES
from database_operator.kinds import Database, OldDatabase
from trio.testing import MockClock

from trioperator import crds
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner

PAUSED = "trioperator.dev/paused"
POKED = "trioperator.dev/reconcile-requested-at"
SERVICE = "http://cluster/api/v1/namespaces/default/services/orders"


async def annotate(cluster: Cluster, name: str, value: str | None) -> None:
    await cluster.patch("databases", "orders", {"metadata": {"annotations": {name: value}}})


async def find_condition(cluster: Cluster, type: str) -> dict[str, Any]:
    found = (await cluster.get("databases", "orders"))["status"]["conditions"]
    return next((dict(each) for each in found if each["type"] == type), {})


async def test_a_paused_database_is_left_alone_and_corrected_afterwards(
    database: None, autojump_clock: MockClock, cluster: Cluster
) -> None:
    await annotate(cluster, PAUSED, "until=2099-12-01T00:00Z reason=DBA at work")
    await trio.sleep(5)
    assert (await find_condition(cluster, "Paused"))["message"] == "until 2099-12-01T00:00:00Z: DBA at work"
    await cluster.patch("databases", "orders", {"spec": {"replicas": 3}})
    await cluster.delete("services", "orders")
    await trio.sleep(3600)
    assert not [each for each in await cluster.list("services") if each["metadata"]["name"] == "orders"]
    assert (await cluster.get("statefulsets", "orders"))["spec"]["replicas"] == 2
    await annotate(cluster, PAUSED, None)
    await cluster.wait_for("databases", "orders", lambda found: found["status"].get("readyReplicas") == 3)
    assert await cluster.get("services", "orders")
    assert not await find_condition(cluster, "Paused")


async def test_a_poke_reconciles_a_database_that_has_nothing_to_do(
    database: None, autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    await trio.sleep(60)
    before = len(operator.calls.select(handler="provide"))
    await annotate(cluster, POKED, "now")
    await trio.sleep(1)
    assert len(operator.calls.select(handler="provide")) == before + 1


async def test_who_changes_a_service_back_is_named(
    database: None, autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    headers = {"Content-Type": "application/merge-patch+json"}
    patch = {"spec": {"selector": {"database": "another"}}}
    async with httpx.AsyncClient(transport=cluster.transport()) as client:
        for _ in range(120):
            await client.patch(f"{SERVICE}?fieldManager=stomper", json=patch, headers=headers)
            await trio.sleep(0.5)
    contended = await find_condition(cluster, "Contended")
    assert (contended["status"], contended["reason"]) == ("True", "ChangedByOthers")
    assert "by stomper" in contended["message"]
    await trio.sleep(300)
    assert (await find_condition(cluster, "Contended"))["status"] == "False"
    assert (await cluster.get("services", "orders"))["spec"]["selector"] == {"database": "orders"}


async def test_databases_that_are_stored_in_the_old_version_are_migrated_at_the_start(
    autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    crd = crds.make_definition([OldDatabase, Database])
    for version in crd["spec"]["versions"]:
        version["storage"] = version["name"] == "v1alpha1"
    await cluster.apply(crd)
    for number in range(3):
        metadata = {"name": f"old-{number}", "namespace": "default"}
        old = {"apiVersion": "db.example.com/v1alpha1", "kind": "Database", "metadata": metadata}
        await cluster.create({**old, "spec": {"sizeGb": 1}})
    await cluster.apply(crds.make_definition([OldDatabase, Database]))
    async with cluster.open_controllers():
        await operator.start(*MODULES)
        await trio.sleep(60)
        crd = await cluster.get("customresourcedefinitions", "databases.db.example.com")
        assert crd["status"]["storedVersions"] == ["v1"]
        assert (await cluster.get("databases", "old-1"))["spec"]["storage"] == "1Gi"
