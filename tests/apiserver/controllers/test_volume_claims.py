"""Tests for :mod:`trioperator.apiserver.controllers.volume_claims`: each claim is bound to a simulated volume."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.apiserver.controllers.objects import Object
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError

SPEC: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


async def names(cluster: Cluster, kind: str) -> list[str]:
    return [obj["metadata"]["name"] for obj in await cluster.list(kind)]


async def test_a_claim_waits_for_its_named_volume(cluster: Cluster, autojump_clock: MockClock) -> None:
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c"},
        "spec": {**SPEC, "volumeName": "mine"},
    }
    volume: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "mine"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "5Gi"},
            "hostPath": {"path": "/mine"},
            "claimRef": {"namespace": "default", "name": "c"},
        },
    }
    async with cluster.open_controllers("volumes"):
        await cluster.create(claim)
        await trio.sleep(60)
        assert (await cluster.get("pvc", "c"))["status"]["phase"] == "Pending"
        await cluster.create(volume)
        await trio.sleep(1)
        assert (await cluster.get("pvc", "c"))["status"]["capacity"] == {"storage": "5Gi"}
        await cluster.delete("pvc", "c")
        await trio.sleep(1)
        assert await names(cluster, "pv") == ["mine"]


def claim(**spec: Any) -> Object:
    """Return a claim."""
    meta = {"name": "c", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**SPEC, **spec}}


async def test_a_claim_is_bound_to_a_volume_of_its_own(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("volumes"):
        await cluster.create(claim(storageClassName="fast", volumeMode="Block"))
        await trio.sleep(1)
        bound = await cluster.get("pvc", "c")
        (volume,) = await cluster.list("pv")
    assert bound["spec"]["volumeName"] == volume["metadata"]["name"] == f"pvc-{bound['metadata']['uid']}"
    assert bound["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    assert volume["status"]["phase"] == "Bound"
    assert volume["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    assert (volume["spec"]["storageClassName"], volume["spec"]["volumeMode"]) == ("fast", "Block")
    assert volume["spec"]["capacity"] == {"storage": "1Gi"}


async def test_a_provisioned_volume_is_deleted_with_its_claim_only(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("volumes"):
        await cluster.create(claim())
        other = claim()
        other["metadata"]["name"] = "other"
        await cluster.create(other)
        await trio.sleep(1)
        kept = (await cluster.get("pvc", "other"))["spec"]["volumeName"]
        assert len(await names(cluster, "pv")) == 2
        await cluster.delete("pvc", "c")
        await trio.sleep(1)
        assert await names(cluster, "pv") == [kept]


def sized(size: str) -> Object:
    return {"spec": {"resources": {"requests": {"storage": size}}}}


async def test_a_volume_grows_with_its_claim_and_never_shrinks(cluster: Cluster, autojump_clock: MockClock) -> None:
    async with cluster.open_controllers("volumes"):
        await cluster.create(claim())
        await trio.sleep(1)
        await cluster.patch("pvc", "c", sized("2Gi"))
        await trio.sleep(1)
        (volume,) = await cluster.list("pv")
        assert volume["spec"]["capacity"] == (await cluster.get("pvc", "c"))["status"]["capacity"] == {"storage": "2Gi"}
        for size in ("1Gi", "500Mi"):
            with pytest.raises(ApiError, match=r"field can not be less than status\.capacity"):
                await cluster.patch("pvc", "c", sized(size))
        await cluster.patch("pvc", "c", sized("2048Mi"))


async def test_a_volume_that_was_not_provisioned_keeps_its_size(cluster: Cluster, autojump_clock: MockClock) -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/mine"},
        "claimRef": {"namespace": "default", "name": "c"},
    }
    async with cluster.open_controllers("volumes"):
        meta = {"name": "mine"}
        await cluster.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec})
        await cluster.create(claim(volumeName="mine"))
        await trio.sleep(1)
        await cluster.patch("pvc", "c", sized("2Gi"))
        await trio.sleep(1)
        assert (await cluster.get("pvc", "c"))["status"]["capacity"] == {"storage": "1Gi"}
