"""Tests for :mod:`trioperator.apiserver.writing.binding`, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import Answer, Target
from tests.apiserver.writing.pods import make_pod


async def bind(target: Target, node: str = "n1", name: str = "p", *, meta: Any = None, kind: str = "Node") -> Answer:
    body = {"metadata": {"name": name, **(meta or {})}, "target": {"kind": kind, "name": node}}
    binding = {"apiVersion": "v1", "kind": "Binding", **body}
    return await target.request("POST", target.path("pods", name, "binding"), binding)


async def test_a_pod_is_bound_to_a_node(target: Target) -> None:
    path = await make_pod(target)
    answer = await bind(target, meta={"annotations": {"c": "d"}})
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert (answer.code, answer.content) == (201, success)
    pod = (await target.get(path)).content
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["annotations"] == {"a": "b", "c": "d"}
    (condition,) = pod["status"]["conditions"]
    assert condition.pop("lastTransitionTime")
    assert condition == {"type": "PodScheduled", "status": "True", "lastProbeTime": None}


async def test_a_pod_is_bound_once(target: Target) -> None:
    await make_pod(target)
    await bind(target)
    answer = await bind(target, "n2")
    text = 'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
    assert (answer.code, answer.message) == (409, text)
    assert answer.content["details"] == {"name": "p", "kind": "pods/binding"}


async def test_a_pod_with_scheduling_gates_waits(target: Target) -> None:
    await make_pod(target, schedulingGates=[{"name": "example.com/gate"}])
    answer = await bind(target)
    text = 'Operation cannot be fulfilled on pods/binding "p": pod p has non-empty .spec.schedulingGates'
    assert (answer.code, answer.message) == (409, text)


async def test_another_pod_of_the_name_is_not_bound(target: Target) -> None:
    path = await make_pod(target)
    answer = await bind(target, meta={"uid": "5b0ef0d5-7e0e-4a5c-8d5f-0d4a7c1f5e11"})
    assert answer.code == 409
    assert "Precondition failed: UID in precondition: 5b0ef0d5" in answer.message
    assert "nodeName" not in (await target.get(path)).content["spec"]


async def test_what_is_not_there_is_not_bound(target: Target) -> None:
    answer = await bind(target, name="nothing")
    assert (answer.code, answer.message) == (404, 'pods "nothing" not found')


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"kind": "Pod"}, 'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"'),
        ({"node": ""}, "target.name: Required value"),
    ],
)
async def test_pods_are_bound_to_nodes_only(target: Target, more: Any, text: str) -> None:
    await make_pod(target)
    answer = await bind(target, **more)
    assert (answer.code, answer.message) == (500, text)


async def test_a_dry_run_binds_nothing(target: Target) -> None:
    path = await make_pod(target)
    body = {"metadata": {"name": "p"}, "target": {"name": "n1"}}
    assert (await target.request("POST", f"{path}/binding", body, dryRun="All")).code == 201
    assert "nodeName" not in (await target.get(path)).content["spec"]
