"""Pods to be bound and evicted."""

from __future__ import annotations

from typing import Any

from tests.apiserver.conftest import Target


async def make_pod(target: Target, **spec: Any) -> str:
    """Create a pod that nobody schedules, and return its path."""
    containers = [{"name": "main", "image": "busybox"}]
    meta = {"annotations": {"a": "b"}}
    created = await target.create("pods", "p", meta=meta, spec={"containers": containers, **spec})
    assert created.code == 201, created.message
    return target.path("pods", "p")
