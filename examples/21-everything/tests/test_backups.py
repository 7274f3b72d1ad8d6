"""Backups, hours of which pass in a second."""

import trio
from conftest import MODULES, read_example
from database_operator.backups import BACKUPS
from trio.testing import MockClock

from trioperator.apiserver import Cluster
from trioperator.apiserver.controllers import Pace
from trioperator.testing import OperatorRunner, eventually


async def list_jobs(cluster: Cluster) -> list[str]:
    return [found["metadata"]["name"] for found in await cluster.list("jobs", "default")]


async def test_backups_are_made_by_the_schedule_and_the_newest_are_kept(
    database: None, autojump_clock: MockClock, cluster: Cluster
) -> None:
    before = BACKUPS.labels("Completed")._value.get()
    await trio.sleep(3600)
    jobs = await list_jobs(cluster)
    assert len(jobs) == 3
    found = await cluster.get("databases", "orders")
    assert found["status"]["lastBackup"] == jobs[-1]
    assert [each["status"] for each in found["status"]["conditions"] if each["type"] == "BackedUp"] == ["True"]
    assert BACKUPS.labels("Completed")._value.get() == before + 6


async def test_another_schedule_counts_at_once(database: None, autojump_clock: MockClock, cluster: Cluster) -> None:
    await cluster.patch("databases", "orders", {"spec": {"backups": {"schedule": "* * * * *"}}})
    await trio.sleep(70)
    assert await list_jobs(cluster)
    await cluster.patch("databases", "orders", {"spec": {"backups": None}})
    await trio.sleep(5)
    jobs = await list_jobs(cluster)
    await trio.sleep(3600)
    assert await list_jobs(cluster) == jobs


async def test_a_failed_backup_shows(cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers(pace=Pace(schedule=10)):
        await operator.start(*MODULES)
        await cluster.apply(read_example())
        await eventually(lambda: any(obj["kind"] == "Job" for obj in cluster.objects()), timeout=1000)
        await trio.sleep(5)  # its Pod exists, and is not scheduled yet
        [pod] = await cluster.list("pods", labels="job-name")
        annotations = {"pod.trioperator.dev/exit-codes": "1"}
        await cluster.patch("pods", pod["metadata"]["name"], {"metadata": {"annotations": annotations}})
        await trio.sleep(60)
        found = await cluster.get("databases", "orders")
    assert [each["reason"] for each in found["status"]["conditions"] if each["type"] == "BackedUp"] == ["Failed"]
