"""Autoscalers of autoscaling/v1, which are stored as v2."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import MERGE, Target

PATH = "/apis/autoscaling/{version}/namespaces/{namespace}/horizontalpodautoscalers"


def manifest(version: str, **spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    kind = {"apiVersion": f"autoscaling/{version}", "kind": "HorizontalPodAutoscaler"}
    return {**kind, "metadata": {"name": "a"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3, **spec}}


def metric(name: str, percentage: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percentage}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


async def spec_of(target: Target, version: str) -> dict[str, Any]:
    answer = await target.get(f"{PATH.format(version=version, namespace=target.namespace)}/a")
    assert answer.content["apiVersion"] == f"autoscaling/{version}"
    spec: dict[str, Any] = answer.content["spec"]
    return spec


async def create(target: Target, version: str, **spec: Any) -> None:
    path = PATH.format(version=version, namespace=target.namespace)
    assert (await target.request("POST", path, manifest(version, **spec))).code == 201


@pytest.mark.parametrize(("sent", "stored"), [({"targetCPUUtilizationPercentage": 70}, 70), ({}, 80)])
async def test_an_autoscaler_of_v1_is_one_of_v2(target: Target, sent: dict[str, Any], stored: int) -> None:
    await create(target, "v1", **sent)
    assert (await spec_of(target, "v2"))["metrics"] == [metric("cpu", stored)]
    assert (await spec_of(target, "v1")) == {
        **manifest("v1")["spec"],
        "minReplicas": 1,
        "targetCPUUtilizationPercentage": stored,
    }


async def test_a_change_by_v1_keeps_what_only_v2_has(target: Target) -> None:
    await create(target, "v2", metrics=[metric("memory", 60), metric("cpu", 50)])
    assert (await spec_of(target, "v1"))["targetCPUUtilizationPercentage"] == 50
    path = PATH.format(version="v1", namespace=target.namespace)
    patch = {"spec": {"targetCPUUtilizationPercentage": 40}}
    assert (await target.request("PATCH", f"{path}/a", patch, MERGE)).code == 200
    assert (await spec_of(target, "v2"))["metrics"] == [metric("memory", 60), metric("cpu", 40)]
    answer = await target.get(f"{PATH.format(version='v2', namespace=target.namespace)}/a")
    assert not answer.content["metadata"].get("annotations")


async def test_annotations_that_cannot_be_read_are_dropped(target: Target) -> None:
    path = PATH.format(version="v1", namespace=target.namespace)
    sent = manifest("v1", targetCPUUtilizationPercentage=5)
    sent["metadata"]["annotations"] = {"autoscaling.alpha.kubernetes.io/metrics": "{"}
    assert (await target.request("POST", path, sent)).code == 201
    assert (await spec_of(target, "v2"))["metrics"] == [metric("cpu", 5)]
