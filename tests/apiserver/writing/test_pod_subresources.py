"""Tests for :mod:`trioperator.apiserver.writing.pod_subresources`, on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import Target
from tests.apiserver.writing.pods import make_pod

BINDING = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


@pytest.mark.parametrize("manifest", [BINDING, EVICTION], ids=["binding", "eviction"])
async def test_what_is_created_at_a_pod_has_its_name(target: Target, manifest: dict[str, Any]) -> None:
    await make_pod(target)
    kind = manifest["kind"]
    path = target.path("pods", "p", kind.lower())
    answer = await target.request("POST", path, {**manifest, "metadata": {"name": "q"}})
    assert (answer.code, answer.message) == (400, f"name in URL does not match name in {kind} object")
    answer = await target.request("POST", path, {**manifest, "metadata": {"name": "p"}})
    assert (answer.code, answer.content["status"]) == (201, "Success")


async def test_ephemeral_containers_are_written_through_their_subresource_only(target: Target) -> None:
    await make_pod(target)
    path, sub = target.path("pods", "p"), target.path("pods", "p", "ephemeralcontainers")
    debugger = {"name": "debugger", "image": "busybox"}
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"hostname": "h", "ephemeralContainers": [debugger]}}
    refused = await target.merge(path, {"spec": {"ephemeralContainers": [debugger]}})
    assert (refused.code, refused.reason) == (422, "Invalid")
    written = await target.merge(sub, patch)
    assert written.code == 200
    spec = (await target.get(path)).content["spec"]
    assert [container["name"] for container in spec["ephemeralContainers"]] == ["debugger"]
    assert "hostname" not in spec
    assert "labels" not in (await target.get(sub)).content["metadata"]
