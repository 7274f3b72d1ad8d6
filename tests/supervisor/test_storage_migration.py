"""Tests for :mod:`trioperator._supervisor.storage_migration`: all objects are written in the storage version."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.levels import TOO_MANY
from tests.runtime.conftest import Bench
from trioperator import OperatorRegistry, OperatorSettings, crds, on
from trioperator._supervisor.storage_migration import PROGRESS, migrate_stored
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.errors import ConfigError, ForbiddenError, NotFoundError, ServerError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

NAME = "boxes.example.com"
OPEN = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


def definition(storage: str) -> dict[str, Any]:
    versions = [{"name": name, "served": True, "storage": name == storage, "schema": OPEN} for name in ("v1", "v2")]
    names = {"kind": "Box", "plural": "boxes", "singular": "box"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions},
    }


@pytest.fixture
async def boxes(cluster: Cluster) -> Cluster:
    """Return the cluster with 250 boxes that are stored in v1, and a CRD that stores v2."""
    await cluster.apply(definition("v1"))
    for number in range(250):
        metadata = {"name": f"box-{number:03}", "namespace": "default"}
        await cluster.create({"apiVersion": "example.com/v1", "kind": "Box", "metadata": metadata})
    await cluster.apply(definition("v2"))
    return cluster


def writes(cluster: Cluster) -> list[str]:
    return [str(each.name) for each in cluster.requests if each.verb == "update" and each.resource == NAME]


async def stored_versions(cluster: Cluster) -> list[str]:
    versions: list[str] = (await cluster.get("customresourcedefinitions", NAME))["status"]["storedVersions"]
    return versions


async def test_all_objects_are_written_once_and_the_old_version_is_no_longer_stored(
    boxes: Cluster, client: Client, autojump_clock: MockClock
) -> None:
    assert await stored_versions(boxes) == ["v1", "v2"]
    lines: list[str] = []
    assert await migrate_stored(client, NAME, rate=1000, report=lines.append)
    assert writes(boxes) == [f"box-{number:03}" for number in range(250)]
    assert await stored_versions(boxes) == ["v2"]
    assert PROGRESS not in (await boxes.get("customresourcedefinitions", NAME))["metadata"].get("annotations", {})
    assert lines[-1] == f"{NAME}: 250 objects written; v2 is the only stored version now."


async def test_nothing_is_written_where_only_one_version_is_stored(
    boxes: Cluster, client: Client, autojump_clock: MockClock
) -> None:
    await migrate_stored(client, NAME, rate=1000, report=print)
    count = len(writes(boxes))
    assert await migrate_stored(client, NAME, rate=1000, report=print)
    assert len(writes(boxes)) == count


async def test_a_migration_that_was_interrupted_goes_on_where_it_was(
    boxes: Cluster, client: Client, autojump_clock: MockClock, plan: FaultPlan
) -> None:
    for done in (120, 230):  # of these, the first 100 and 200 are on record
        left = done - len(set(writes(boxes)))
        plan.add(Fault.status(500), resource="boxes", verb="update", skip=left)
        with pytest.raises(ServerError):
            await migrate_stored(client, NAME, rate=1000, report=print)
        plan.clear()
    assert await migrate_stored(client, NAME, rate=1000, report=print)
    assert len(set(writes(boxes))) == 250
    assert len(writes(boxes)) <= 250 * 1.3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"x": ' + "[" * 5000])
async def test_a_record_of_progress_that_cannot_be_read_counts_as_none(
    boxes: Cluster, client: Client, autojump_clock: MockClock, text: str
) -> None:
    await boxes.patch("customresourcedefinitions", NAME, {"metadata": {"annotations": {PROGRESS: text}}})
    assert await migrate_stored(client, NAME, rate=1000, report=print)
    assert len(writes(boxes)) == 250


async def test_objects_are_written_at_the_rate(boxes: Cluster, client: Client, autojump_clock: MockClock) -> None:
    began = trio.current_time()
    await migrate_stored(client, NAME, rate=10, report=print)
    assert 25 <= trio.current_time() - began <= 40


async def test_an_object_that_is_not_valid_any_more_is_reported_and_old_versions_stay(
    boxes: Cluster, client: Client, autojump_clock: MockClock
) -> None:
    crd = definition("v2")
    for version in crd["spec"]["versions"]:
        schema = {"type": "object", "properties": {"spec": {"type": "object"}}, "required": ["spec"]}
        version["schema"] = {"openAPIV3Schema": schema}
    await boxes.apply(crd)
    lines: list[str] = []
    assert not await migrate_stored(client, NAME, rate=1000, report=lines.append)
    assert "default/box-000 cannot be written" in lines[1]
    assert await stored_versions(boxes) == ["v1", "v2"]


async def test_a_migration_that_goes_on_has_not_forgotten_what_could_not_be_written(
    boxes: Cluster, client: Client, autojump_clock: MockClock, plan: FaultPlan
) -> None:
    denial = 'admission webhook "sizes.example.com" denied the request: too large'
    plan.add(Fault.status(422, reason="Invalid"), resource="boxes", verb="update", name="box-007")
    plan.add(Fault.status(403, message=denial, reason="Forbidden"), resource="boxes", verb="update", name="box-008")
    crash = plan.add(Fault.status(500), resource="boxes", verb="update", skip=120)
    lines: list[str] = []
    with pytest.raises(ServerError):
        await migrate_stored(client, NAME, rate=1000, report=lines.append)
    plan.remove(crash)
    assert not await migrate_stored(client, NAME, rate=1000, report=lines.append)
    assert lines[-1] == f"{NAME}: 2 objects could not be written, so other versions are stored still."
    assert await stored_versions(boxes) == ["v1", "v2"]
    plan.clear()
    assert await migrate_stored(client, NAME, rate=1000, report=lines.append)
    assert lines[-1] == f"{NAME}: 250 objects written; v2 is the only stored version now."


async def test_an_object_too_large_for_etcd_does_not_keep_the_others_from_being_written(
    boxes: Cluster, client: Client, autojump_clock: MockClock, plan: FaultPlan
) -> None:
    large = Fault.status(500, message="etcdserver: request is too large")
    plan.add(large, resource="boxes", verb="update", name="box-007")
    lines: list[str] = []
    assert not await migrate_stored(client, NAME, rate=1000, report=lines.append)
    assert len(writes(boxes)) == 249
    assert (
        lines[1]
        == f"{NAME}: default/box-007 cannot be written: HTTP 500 InternalError: etcdserver: request is too large"
    )


async def test_an_object_that_cannot_be_read_is_not_taken_for_written(
    boxes: Cluster, client: Client, autojump_clock: MockClock, plan: FaultPlan
) -> None:
    deep = b'{"metadata": {"name": "deep"}, "spec": ' + b"[" * TOO_MANY + b"]" * TOO_MANY + b"}"
    listed = b'{"kind": "BoxList", "apiVersion": "example.com/v2", "metadata": {}, "items": [' + deep + b"]}"
    plan.add(Fault.answer(200, listed), resource="boxes", verb="list")
    lines: list[str] = []
    assert not await migrate_stored(client, NAME, rate=1000, report=lines.append)
    assert lines[-1] == f"{NAME}: 1 objects could not be written, so other versions are stored still."
    assert await stored_versions(boxes) == ["v1", "v2"]


async def test_missing_rights_end_a_migration(
    boxes: Cluster, client: Client, autojump_clock: MockClock, plan: FaultPlan
) -> None:
    plan.add(Fault.status(403, reason="Forbidden"), resource="boxes", verb="update")
    with pytest.raises(ForbiddenError):
        await migrate_stored(client, NAME, rate=1000, report=print)


async def test_another_storage_version_meanwhile_is_an_error(
    boxes: Cluster, client: Client, autojump_clock: MockClock
) -> None:
    async def change() -> None:
        await trio.sleep(12)
        await boxes.apply(definition("v1"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        with pytest.raises(ConfigError, match="is no longer v2, but v1: migrate again"):
            await migrate_stored(client, NAME, rate=20, report=print)


async def test_a_crd_that_does_not_exist_is_named(client: Client, autojump_clock: MockClock) -> None:
    with pytest.raises(NotFoundError, match=r"absent\.example\.com"):
        await migrate_stored(client, "absent.example.com", rate=100, report=print)


@pytest.mark.parametrize("outcome", ["Succeeded", "Failed"])
async def test_a_cluster_that_migrates_by_itself_is_waited_for(
    boxes: Cluster, client: Client, autojump_clock: MockClock, outcome: str
) -> None:
    crd = definition("v1")
    names = {"kind": "StorageVersionMigration", "plural": "storageversionmigrations", "singular": "x"}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": OPEN, "subresources": {"status": {}}}
    crd["spec"] |= {"group": "storagemigration.k8s.io", "scope": "Cluster", "names": names, "versions": [version]}
    crd["metadata"] = {
        "name": "storageversionmigrations.storagemigration.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
    }
    await boxes.apply(crd)
    api_version = f"storagemigration.k8s.io/{version['name']}"
    earlier = {"apiVersion": api_version, "kind": names["kind"], "metadata": {"name": f"{NAME}-earlier"}}
    failed = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    await boxes.create(earlier)
    await boxes.patch("storageversionmigrations", f"{NAME}-earlier", failed, subresource="status")

    async def migrate() -> None:
        await trio.sleep(60)
        [found] = [each for each in await boxes.list("storageversionmigrations") if "spec" in each]
        assert found["spec"]["resource"] == {"group": "example.com", "resource": "boxes"}
        status = {"conditions": [{"type": outcome, "status": "True"}]}
        await boxes.patch(
            "storageversionmigrations", found["metadata"]["name"], {"status": status}, subresource="status"
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(migrate)
        assert await migrate_stored(client, NAME, rate=100, report=print) is (outcome == "Succeeded")
    assert writes(boxes) == []


def migrating() -> tuple[OperatorRegistry, OperatorSettings]:
    """Return the registry and the settings of an operator that migrates boxes."""
    registry, settings = OperatorRegistry(), OperatorSettings()
    settings.crds.migrate, settings.crds.migration_rate = True, 10
    settings.leadership.enabled = True

    @crds.kind("example.com/v2", registry=registry)
    class Box:
        """A kind that an operator declares."""

    @on.event(Box, registry=registry)
    async def see(**_: Any) -> None: ...

    return registry, settings


async def test_the_leader_migrates_the_kinds_that_classes_declare_and_its_successor_goes_on(
    boxes: Cluster, autojump_clock: MockClock
) -> None:
    registry, settings = migrating()
    bench = Bench(boxes, registry, settings)
    async with bench.running(identity="first", standalone=True), bench.running(identity="second", standalone=True):
        await trio.sleep(25)
        assert 0 < len(writes(boxes)) < 250
        await boxes.patch("leases", "trioperator", {"spec": {"holderIdentity": "second"}})
        await trio.sleep(120)
    assert set(writes(boxes)) == {f"box-{number:03}" for number in range(250)}
    assert len(writes(boxes)) <= 250 + 100  # what was not on record
    assert await stored_versions(boxes) == ["v2"]


@pytest.mark.parametrize("in_order", [False, True])
async def test_of_replicas_with_shards_one_migrates_and_another_goes_on(
    in_order: bool, boxes: Cluster, autojump_clock: MockClock
) -> None:
    registry, settings = migrating()
    bench = Bench(boxes, registry, settings)
    async with trio.open_nursery() as nursery:
        for name in ("first", "second", "third"):
            await nursery.start(replace_soon, bench, name, in_order)
            await trio.sleep(1)
        await trio.sleep(300)
        nursery.cancel_scope.cancel()
    assert set(writes(boxes)) == {f"box-{number:03}" for number in range(250)}
    assert len(writes(boxes)) <= 250 + 2 * 100  # what was not on record
    assert await stored_versions(boxes) == ["v2"]


async def replace_soon(bench: Bench, name: str, in_order: bool, *, task_status: trio.TaskStatus[None]) -> None:
    """Run a replica with shards, which is replaced by another one every 20 seconds, in order or at once."""
    task_status.started()
    for number in range(100):
        with trio.CancelScope() as scope:
            async with bench.running(identity=f"{name}-{number}", standalone=True, shards=4) as stop:
                await trio.sleep(20)
                stop() if in_order else scope.cancel()


async def test_a_migration_by_the_operator_is_tried_again_after_errors(
    boxes: Cluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    registry, settings = migrating()
    plan = FaultPlan()
    plan.add(Fault.status(403), resource="boxes", verb="update", until=30)
    bench = Bench(boxes, registry, settings)
    async with bench.running(transport=FaultyTransport(boxes.transport(), plan), standalone=True):
        await trio.sleep(150)
    assert "cannot be migrated, trying again in 60 s" in caplog.text
    assert "`trioperator rbac`" in caplog.text
    assert await stored_versions(boxes) == ["v2"]


async def test_without_the_setting_nothing_is_migrated(boxes: Cluster, autojump_clock: MockClock) -> None:
    registry, settings = migrating()
    settings.crds.migrate = False
    async with Bench(boxes, registry, settings).running(standalone=True):
        await trio.sleep(100)
    assert writes(boxes) == []
