"""The life of a database, from its creation to its deletion."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner

OLD = "databases.v1alpha1.db.example.com"


async def set_spec(cluster: Cluster, **changes: Any) -> None:
    await cluster.patch("databases", "orders", {"spec": changes})


async def test_a_database_has_a_password_that_stays(
    database: None, autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    before = await cluster.get("secrets", "orders-password")
    await operator.stop()
    await operator.start()
    await set_spec(cluster, replicas=3)
    await cluster.wait_for("databases", "orders", lambda found: found["status"]["readyReplicas"] == 3)
    assert (await cluster.get("secrets", "orders-password"))["data"] == before["data"]


async def test_pods_are_replaced_when_their_settings_change(
    database: None, autojump_clock: MockClock, cluster: Cluster
) -> None:
    before = await cluster.get("pods", "orders-0")
    await cluster.patch("secrets", "orders-settings", {"stringData": {"postgresql.conf": "max_connections = 99"}})
    await cluster.wait_for("pods", "orders-0", lambda found: found["metadata"]["uid"] != before["metadata"]["uid"])
    await cluster.wait_for("databases", "orders", "Ready")


async def test_a_database_waits_for_its_settings(
    database: None, autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    settings = await cluster.get("secrets", "orders-settings")
    await cluster.delete("secrets", "orders-settings")
    found = await cluster.wait_for("databases", "orders", is_waiting, timeout=1)
    assert [each["reason"] for each in found["status"]["conditions"] if each["type"] == "Ready"] == ["NoSettings"]
    assert await cluster.list("pods"), "they go on as they are"
    await trio.sleep(400)
    assert [event for event in await operator.list_events("orders") if event["reason"] == "NotReady"]
    del settings["metadata"]["resourceVersion"], settings["metadata"]["uid"]
    await cluster.create(settings)
    await cluster.wait_for("databases", "orders", "Ready", timeout=1)


def is_waiting(found: Any) -> bool:
    return any(each["reason"] == "NoSettings" for each in found["status"]["conditions"])


async def test_a_database_that_is_repaired_by_hand_is_left_alone(
    database: None, autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    repair = {"trioperator.dev/paused": "until=2199-01-01T00:00Z reason=DBA at work"}
    await cluster.patch("databases", "orders", {"metadata": {"annotations": repair}})
    await cluster.wait_for("databases", "orders", "Paused", timeout=1)
    before = len(operator.writes)
    await cluster.patch("statefulsets", "orders", {"spec": {"replicas": 0}})
    await set_spec(cluster, replicas=3)
    await trio.sleep(3600)
    assert len(operator.writes) == before
    assert (await cluster.get("statefulsets", "orders"))["spec"]["replicas"] == 0
    await cluster.patch("databases", "orders", {"metadata": {"annotations": dict.fromkeys(repair)}})
    await cluster.wait_for("databases", "orders", lambda found: found["status"]["readyReplicas"] == 3)


async def test_a_database_grows_with_its_pods(database: None, autojump_clock: MockClock, cluster: Cluster) -> None:
    before = {pod["metadata"]["uid"] for pod in await cluster.list("pods")}
    await set_spec(cluster, storage="2Gi")
    for replica in range(2):
        claim = f"data-orders-{replica}"
        await cluster.wait_for("pvc", claim, lambda found: found["status"]["capacity"]["storage"] == "2Gi")
    await cluster.wait_for("databases", "orders", "Ready")
    [template] = (await cluster.get("statefulsets", "orders"))["spec"]["volumeClaimTemplates"]
    assert template["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert {pod["metadata"]["uid"] for pod in await cluster.list("pods")} == before


async def test_one_more_replica_takes_few_writes(
    database: None, autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    await set_spec(cluster, backups=None)  # one that is due would be more writes
    await trio.sleep(10)
    before = operator.why("orders", kind="databases")
    await set_spec(cluster, replicas=3)
    await cluster.wait_for("databases", "orders", lambda found: found["status"]["readyReplicas"] == 3)
    await trio.sleep(10)
    why = operator.why("orders", kind="databases")
    assert why.writes - before.writes == 4, str(why)  # what is handled, the StatefulSet, and the status twice
    assert not why.contended


async def test_an_upgrade_is_announced(
    database: None, autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    await set_spec(cluster, version="19")
    await cluster.wait_for("pods", "orders-1", lambda found: found["spec"]["containers"][0]["image"] == "postgres:19")
    await cluster.wait_for("pods", "orders-0", lambda found: found["spec"]["containers"][0]["image"] == "postgres:19")
    [event] = [event for event in await operator.list_events("orders") if event["reason"] == "Upgrading"]
    assert event["message"] == "The database is upgraded from 18 to 19."


async def test_a_database_keeps_its_version_if_a_manifest_without_one_replaces_it(
    database: None, autojump_clock: MockClock, cluster: Cluster
) -> None:
    found = await cluster.get("databases", "orders")
    del found["spec"]["version"]
    assert (await cluster.replace(found))["spec"]["version"] == "18"


async def test_a_database_cannot_shrink_in_any_version(
    database: None, autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    await set_spec(cluster, storage="3Gi")
    with pytest.raises(trioperator.InvalidError, match="cannot shrink from 3Gi to 2Gi"):
        await set_spec(cluster, storage="2Gi")
    with pytest.raises(trioperator.InvalidError, match="cannot shrink from 3Gi to 2Gi"):
        await cluster.patch(OLD, "orders", {"spec": {"sizeGb": 2}})


async def test_clients_of_the_old_version_see_and_change_the_same_database(
    database: None, autojump_clock: MockClock, cluster: Cluster
) -> None:
    found = await cluster.get(OLD, "orders")
    assert found["spec"] | {"settings": None} == {
        "sizeGb": 1,
        "replicas": 2,
        "version": "18",
        "settings": None,
        "backup": "*/10 * * * *",
    }
    await cluster.patch(OLD, "orders", {"spec": {"sizeGb": 4, "replicas": 1}})
    await cluster.wait_for("databases", "orders", "Ready")
    await cluster.wait_for("pvc", "data-orders-0", lambda found: found["status"]["capacity"]["storage"] == "4Gi")


async def test_everything_goes_with_the_database(database: None, autojump_clock: MockClock, cluster: Cluster) -> None:
    await trio.sleep(3600)
    await cluster.delete("databases", "orders")
    await cluster.wait_deleted("databases", "orders")
    await trio.sleep(60)
    for kind in ("statefulsets", "services", "jobs", "pods"):
        assert await cluster.list(kind, "default") == []
    assert [found["metadata"]["name"] for found in await cluster.list("secrets", "default")] == ["orders-settings"]


async def test_somebody_who_fights_over_a_child_is_named(
    database: None, autojump_clock: MockClock, cluster: Cluster, operator: OperatorRunner
) -> None:
    with trio.move_on_after(20):
        while True:
            await cluster.patch("statefulsets.apps", "orders", {"spec": {"replicas": 7}})
            await trio.sleep(0.5)
    found = await cluster.wait_for("databases", "orders", "Contended", timeout=1)
    [condition] = [each for each in found["status"]["conditions"] if each["type"] == "Contended"]
    assert "spec.replicas of StatefulSet default/orders is changed by" in condition["message"]
    await cluster.wait_for("databases", "orders", "Ready", timeout=120)
    assert not operator.why("orders", kind="databases").contended
