"""Tests for :mod:`trioperator.crds.metadata`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from trio.testing import MockClock

import trioperator
from trioperator import crds
from trioperator.apiserver import Cluster
from trioperator.crds import Condition, ConditionList, ObjectMeta, decode, encode
from trioperator.crds.schema import make_schema
from trioperator.errors import ApiError
from trioperator.testing import OperatorRunner


async def test_metadata_of_objects_are_typed(cluster: Cluster) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    metadata = {"name": "x", "namespace": "default", "labels": {"a": "b"}, "ownerReferences": [owner]}
    created = await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    found = decode(ObjectMeta, created["metadata"])
    assert (found.name, found.namespace, found.labels, found.generation) == ("x", "default", {"a": "b"}, 0)
    assert found.creation_timestamp is not None
    assert found.creation_timestamp.tzinfo is not None
    assert found.owner_references[0].controller
    assert not found.owner_references[0].block_owner_deletion


def condition(**fields: Any) -> dict[str, Any]:
    """Return a condition as JSON."""
    time = "2026-01-02T03:04:05Z"
    return {"type": "Ready", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": time, **fields}


def test_conditions_have_the_schema_of_kubernetes() -> None:
    schema = make_schema(ConditionList, "x")
    required = {"lastTransitionTime", "message", "reason", "status", "type"}
    assert set(schema["items"]["properties"]) == required | {"observedGeneration"}
    assert set(schema["items"]["required"]) == required
    assert (schema["x-kubernetes-list-type"], schema["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    properties = schema["items"]["properties"]
    assert properties["lastTransitionTime"]["format"] == "date-time"
    assert sorted(properties["status"]["enum"]) == ["False", "True", "Unknown"]
    assert [properties[name]["maxLength"] for name in ("type", "reason", "message")] == [316, 1024, 32768]
    generation = properties["observedGeneration"]
    assert (generation["type"], generation["format"], generation["minimum"]) == ("integer", "int64", 0)


class ThingStatus(msgspec.Struct, omit_defaults=True):
    phase: str = ""
    conditions: ConditionList = []


async def test_conditions_of_typed_kinds_are_set_read_and_checked(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    seen: list[ConditionList] = []

    @crds.kind("example.com/v1")
    class Thing(msgspec.Struct):
        spec: dict[str, int]
        status: ThingStatus | None = None

    @trioperator.on.reconcile(Thing)
    def reconcile(
        status: ThingStatus, patch: trioperator.Patch, conditions: trioperator.Conditions
    ) -> list[Mapping[str, Any]]:
        seen.append(status.conditions)
        patch.status.update(encode(ThingStatus(phase="Ready")))
        conditions.set("Ready", True, reason="Up")
        return []

    await operator.start()
    await cluster.create({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "it"}, "spec": {}})
    await cluster.wait_for("things", "it", "Ready")
    await cluster.patch("things", "it", {"spec": {"a": 1}})
    await operator.assert_converged()
    [ready] = [each for each in seen[-1] if each.type == "Ready"]
    assert (ready.type, ready.status, ready.observed_generation) == ("Ready", "True", 1)
    assert ready.last_transition_time.tzinfo is not None
    assert encode(ready)["lastTransitionTime"].endswith("Z")
    for wrong in (condition(status="Maybe"), condition(reason=""), condition(type="not ready")):
        with pytest.raises(ApiError, match=r"status\.conditions\[0\]"):
            await cluster.patch("things", "it", {"status": {"conditions": [wrong]}}, subresource="status")
    with pytest.raises(ApiError, match="Duplicate value"):
        both = [condition(), condition(status="False")]
        await cluster.patch("things", "it", {"status": {"conditions": both}}, subresource="status")


def test_conditions_have_what_kubernetes_requires() -> None:
    found = decode(Condition, condition(observedGeneration=3))
    assert (found.reason, found.observed_generation) == ("Up", 3)
    assert encode(decode(Condition, condition())) == condition()
    with pytest.raises(trioperator.PermanentError, match="lastTransitionTime"):
        decode(Condition, {"type": "Ready", "status": "True", "reason": "Up", "message": ""})
