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
