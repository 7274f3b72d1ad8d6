"""Tests for :mod:`trioperator.testing.exploring.history`: what is undone on the way, and claimed too early."""

from __future__ import annotations

from typing import Any

from tests.testing.exploring.written import DEPLOYMENT, write
from trioperator.apiserver import Cluster
from trioperator.testing.exploring.history import History, find_lies, find_outdated

PATH = "/apis/apps/v1/namespaces/default/deployments"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


async def scale(cluster: Cluster, replicas: int) -> None:
    await cluster.patch("deployments", "d", {"spec": {"replicas": replicas}})


async def test_workloads_that_are_scaled_below_both_ends_are_found(cluster: Cluster) -> None:
    await write(cluster, PATH, {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 5}})  # type: ignore[dict-item]
    history = History(cluster)
    for replicas in (1, 4):
        await scale(cluster, replicas)
        history.note(cluster)
    assert list(history.find_undone(cluster)) == ["Deployment d is scaled down to 1 on the way from 5 to 4 replicas"]
    other = History(cluster)
    await scale(cluster, 2)
    other.note(cluster)
    assert list(other.find_undone(cluster)) == []


async def test_objects_that_are_replaced_by_equal_ones_are_found(cluster: Cluster) -> None:
    obj: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    await write(cluster, CONFIG_MAPS, obj)
    history = History(cluster)
    assert list(history.find_undone(cluster)) == []
    await cluster.delete("configmaps", "a")
    await write(cluster, CONFIG_MAPS, obj)
    assert list(history.find_undone(cluster)) == [
        "ConfigMap a is deleted and created again, though nothing in it changes"
    ]


def make_owner(**condition: object) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True", **condition}]
    return {"metadata": {"uid": "1", "generation": 2}, "status": {"conditions": conditions}}


def make_child(generation: int, ready: int) -> dict[str, Any]:
    meta = {"name": "d", "generation": 3, "ownerReferences": [{"uid": "1"}]}
    status = {"observedGeneration": generation, "readyReplicas": ready}
    return {"kind": "Deployment", "metadata": meta, "spec": {"replicas": 2}, "status": status}


def test_an_object_that_is_ready_before_its_workloads_lies() -> None:
    assert list(find_lies(make_owner(), [make_child(2, 2)])) == [
        "Ready is True, while Deployment d has not been observed in its newest generation"
    ]
    assert list(find_lies(make_owner(observedGeneration=2), [make_child(3, 0)])) == [
        "Ready is True, while Deployment d has none of 2 replicas ready"
    ]


def test_who_is_ready_for_an_earlier_generation_or_not_ready_does_not_lie() -> None:
    assert list(find_lies(make_owner(observedGeneration=1), [make_child(3, 0)])) == []
    assert list(find_lies(make_owner(status="False"), [make_child(3, 0)])) == []
    assert list(find_lies(make_owner(), [make_child(3, 2)])) == []
    assert list(find_lies(make_owner(), [{**make_child(3, 0), "kind": "ConfigMap"}])) == []


def test_claims_about_an_earlier_generation_are_outdated_at_rest() -> None:
    assert list(find_outdated(make_owner(observedGeneration=1))) == [
        "Ready is True for generation 1, and nobody looks at generation 2"
    ]
    assert list(find_outdated(make_owner(observedGeneration=2))) == []
    assert list(find_outdated(make_owner())) == []
