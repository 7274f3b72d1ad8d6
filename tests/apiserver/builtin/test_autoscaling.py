"""Conformance: autoscalers in both versions."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apiserver.conftest import MERGE, Answer, Target
from trioperator.apiserver.builtin.autoscaling import from_v1, to_v1

TARGET: Final = {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"}
SPEC: Final = {"maxReplicas": 3, "scaleTargetRef": TARGET}
MEMORY: Final = {
    "type": "Resource",
    "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
}
NOTES: Final = "autoscaling.alpha.kubernetes.io/"


def cpu(percentage: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percentage}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def path(target: Target, version: str, *rest: str) -> str:
    base = f"/apis/autoscaling/{version}/namespaces/{target.namespace}/horizontalpodautoscalers"
    return "/".join((base, *rest))


async def create(target: Target, version: str, **spec: Any) -> Answer:
    obj = {"metadata": {"name": "a"}, "spec": {**SPEC, **spec}}
    answer = await target.request("POST", path(target, version), obj)
    assert answer.code == 201, answer.content
    return answer


async def test_the_target_of_v1_is_a_metric_of_v2(target: Target) -> None:
    old = await create(target, "v1", targetCPUUtilizationPercentage=50)
    assert old.content["apiVersion"] == "autoscaling/v1"
    new = await target.get(path(target, "v2", "a"))
    assert new.content["apiVersion"] == "autoscaling/v2"
    assert new.content["spec"] == {**SPEC, "minReplicas": 1, "metrics": [cpu(50)]}
    assert "annotations" not in new.content["metadata"]


async def test_v1_has_a_default_target(target: Target) -> None:
    await create(target, "v1")
    spec = (await target.get(path(target, "v1", "a"))).content["spec"]
    assert spec == {**SPEC, "minReplicas": 1, "targetCPUUtilizationPercentage": 80}


async def test_fields_that_v1_does_not_have_are_in_annotations(target: Target) -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 5}}
    new = (await create(target, "v2", metrics=[MEMORY, cpu(30)], behavior=behavior)).content
    old = (await target.get(path(target, "v1", "a"))).content
    assert old["spec"] == {**SPEC, "minReplicas": 1, "targetCPUUtilizationPercentage": 30}
    notes = {key: json.loads(text) for key, text in old["metadata"]["annotations"].items()}
    assert notes[f"{NOTES}metrics"] == [
        {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}
    ]
    assert notes[f"{NOTES}behavior"]["ScaleDown"] == {
        "StabilizationWindowSeconds": 5,
        "SelectPolicy": "Max",
        "Policies": [{"Type": "Percent", "Value": 100, "PeriodSeconds": 15}],
        "Tolerance": None,
    }
    changed = {"spec": {"targetCPUUtilizationPercentage": 77}}
    assert (await target.request("PATCH", path(target, "v1", "a"), changed, MERGE)).code == 200
    after = (await target.get(path(target, "v2", "a"))).content
    assert after["spec"] == {**new["spec"], "metrics": [MEMORY, cpu(77)]}
    assert "annotations" not in after["metadata"]


async def test_the_status_is_converted_too(target: Target) -> None:
    await create(target, "v1")
    status = {"currentReplicas": 2, "desiredReplicas": 1, "currentCPUUtilizationPercentage": 7}
    answer = await target.merge(path(target, "v1", "a", "status"), {"status": status})
    current = {"name": "cpu", "currentAverageUtilization": 7, "currentAverageValue": "0"}
    notes = answer.content["metadata"]["annotations"][f"{NOTES}current-metrics"]
    assert json.loads(notes) == [{"type": "Resource", "resource": current}]
    new = (await target.get(path(target, "v2", "a"))).content["status"]
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}}]
    assert {key: new[key] for key in ("currentReplicas", "desiredReplicas", "currentMetrics")} == {
        "currentReplicas": 2,
        "desiredReplicas": 1,
        "currentMetrics": metrics,
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics", "5"),
        ("metrics", "[5]"),
        ("metrics", '{"type": "Resource"}'),
        ("metrics", '[{"type": "Resource", "resource": "x"}]'),
        ("metrics", '[{"type": 5, "resource": {"name": "cpu"}}]'),
        ("metrics", '[{"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": "x"}}]'),
        ("metrics", "[" * 50_000),
        ("behavior", "[1]"),
        ("behavior", '{"ScaleDown": 5}'),
        ("conditions", "5"),
        ("conditions", '[{"type": 5}]'),
        ("current-metrics", '[{"resource": {"currentAverageValue": []}}]'),
    ],
    ids=lambda text: text[:20],
)
async def test_annotations_with_values_of_other_types_are_dropped(target: Target, name: str, text: str) -> None:
    obj = {"metadata": {"name": "a", "annotations": {f"{NOTES}{name}": text}}, "spec": SPEC}
    answer = await target.request("POST", path(target, "v1"), obj)
    assert answer.code == 201, answer.content
    new = (await target.get(path(target, "v2", "a"))).content
    assert new["spec"] == {**SPEC, "minReplicas": 1, "metrics": [cpu(80)]}
    assert "annotations" not in new["metadata"]


async def test_lists_have_the_requested_version(target: Target) -> None:
    await create(target, "v2")
    for version in ("v1", "v2"):
        page = (await target.get(path(target, version))).content
        assert page["apiVersion"] == f"autoscaling/{version}"
        [item] = page["items"]
        assert ("targetCPUUtilizationPercentage" in item["spec"]) is (version == "v1")


names = st.sampled_from(["cpu", "memory", "other"])
targets = st.one_of(
    st.builds(lambda value: {"type": "Utilization", "averageUtilization": value}, st.integers(1, 9)),
    st.builds(lambda value: {"type": "AverageValue", "averageValue": f"{value}"}, st.integers(1, 9)),
)
metrics = st.one_of(
    st.builds(lambda n, t: {"type": "Resource", "resource": {"name": n, "target": t}}, names, targets),
    st.builds(
        lambda n, t: {"type": "ContainerResource", "containerResource": {"name": n, "container": "c", "target": t}},
        names,
        targets,
    ),
    st.builds(
        lambda n: {
            "type": "Pods",
            "pods": {"metric": {"name": n}, "target": {"type": "AverageValue", "averageValue": "1"}},
        },
        names,
    ),
    st.builds(
        lambda n: {
            "type": "External",
            "external": {"metric": {"name": n, "selector": {}}, "target": {"type": "Value", "value": "1"}},
        },
        names,
    ),
)


@given(st.lists(metrics, max_size=3))
def test_conversion_round_trips(found: list[dict[str, Any]]) -> None:
    spec = {**SPEC, "metrics": found}
    stored = {"apiVersion": "autoscaling/v2", "metadata": {"name": "a"}, "spec": spec, "status": {}}
    back = from_v1(to_v1(stored))["spec"]["metrics"]
    assert sorted(map(json.dumps, back)) == sorted(map(json.dumps, found or [cpu(80)]))
