"""The database example, in virtual time: what users get, what operators may suffer, and what must never be seen."""

from __future__ import annotations

import base64
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import Pace
from trioperator.testing import OperatorRunner, crash_at_every_write

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
MAIN = EXAMPLES / "19-database" / "main.py"
HOUR = 3600


def database(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "orders", "namespace": "default"}
    return {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": metadata, "spec": spec}


def is_ready(found: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    return conditions["Ready"] == "True" and bool(found["status"]["users"])


async def start(cluster: Cluster, operator: OperatorRunner, **spec: Any) -> None:
    await cluster.apply(EXAMPLES / "crd.yaml")
    await operator.start(MAIN)
    await cluster.create(database(**spec))
    await cluster.wait_for("kex", "orders", is_ready)


async def secrets_of(cluster: Cluster) -> dict[str, str]:
    """Return the passwords, by the names of the Secrets."""
    return {
        found["metadata"]["name"]: base64.b64decode(found["data"]["password"]).decode()
        for found in await cluster.list("secrets", "default")
    }


def texts_of(cluster: Cluster, operator: OperatorRunner) -> Iterator[str]:
    """Yield all that others than the readers of Secrets may see."""
    yield from (line.message for line in operator.logs)
    yield from (json.dumps(obj) for obj in cluster.objects() if obj["kind"] != "Secret")


async def test_users_have_passwords_that_nobody_else_sees(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    async with cluster.open_controllers():
        await start(cluster, operator, users=["ada", "bob"])
        await trio.sleep(HOUR + 60)
        passwords = await secrets_of(cluster)
        assert passwords.keys() == {"orders-postgres", "orders-ada", "orders-bob"}
        assert len(set(passwords.values())) == 3
        for text in texts_of(cluster, operator):
            assert not any(
                secret in text or base64.b64encode(secret.encode()).decode() in text for secret in passwords.values()
            )


async def test_users_come_and_go(cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers():
        await start(cluster, operator, users=["ada", "bob"])
        before = await secrets_of(cluster)
        await cluster.patch("kex", "orders", {"spec": {"users": ["bob", "eve"]}})
        await cluster.wait_for("kex", "orders", lambda found: found["status"]["users"] == ["postgres", "bob", "eve"])
        await trio.sleep(60)
        after = await secrets_of(cluster)
        assert after.keys() == {"orders-postgres", "orders-bob", "orders-eve"}
        assert {name: after[name] for name in before.keys() & after.keys()} == {
            name: before[name] for name in before.keys() & after.keys()
        }, "passwords stay as they are"


@pytest.mark.parametrize(("exit_code", "status"), [("0", "True"), ("1", "False")])
async def test_there_is_a_backup_each_hour(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock, exit_code: str, status: str
) -> None:
    async with cluster.open_controllers("workloads", "pods", pace=Pace(schedule=10)):
        await start(cluster, operator)
        for number in (1, 2):
            await cluster.wait_for("jobs", f"orders-backup-{number}", timeout=HOUR + 60)
            await trio.sleep(5)  # its Pod exists, and is not scheduled yet
            (pod,) = await cluster.list("pods", "default", labels=f"job-name=orders-backup-{number}")
            annotations = {"pod.trioperator.dev/exit-codes": exit_code}
            await cluster.patch("pods", pod["metadata"]["name"], {"metadata": {"annotations": annotations}})
            await trio.sleep(60)
            found = await cluster.get("kex", "orders")
            assert found["status"]["backups"] == number
            (condition,) = [each for each in found["status"]["conditions"] if each["type"] == "BackedUp"]
            assert condition["status"] == status


async def test_a_restart_writes_nothing(cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers():
        await start(cluster, operator, users=["ada"])
        await trio.sleep(60)
        before = versions_of(cluster)
        await operator.stop()
        await operator.start()
        await trio.sleep(600)
        assert versions_of(cluster) == before


def versions_of(cluster: Cluster) -> dict[str, str]:
    """Return the resource versions of all that belongs to databases, and of these."""
    kinds = ("KopfExample", "Secret", "Service", "StatefulSet", "Pod", "Job")
    return {
        obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"] for obj in cluster.objects() if obj["kind"] in kinds
    }


async def test_everything_goes_with_the_database(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    async with cluster.open_controllers():
        await start(cluster, operator, users=["ada"])
        await trio.sleep(HOUR + 60)
        await cluster.delete("kex", "orders")
        await trio.sleep(60)
        for kind in ("secrets", "statefulsets", "services", "jobs", "pods"):
            assert await cluster.list(kind, "default") == []


async def test_a_crash_at_any_write_does_no_harm(autojump_clock: MockClock) -> None:
    async def scenario(cluster: Cluster, operator: OperatorRunner) -> None:
        await cluster.apply(EXAMPLES / "crd.yaml")
        await operator.start(MAIN)
        await cluster.create(database(users=["ada"]))
        await cluster.wait_for("kex", "orders", lambda found: found["status"]["users"] == ["postgres", "ada"])

    assert await crash_at_every_write(scenario, ignore=["password"]) >= 8
