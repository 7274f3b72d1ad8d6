"""Examples of Kopf's documentation, on the embedded cluster in virtual time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trio
import trio.testing

import trioperator as kopf
from trioperator.apiserver import Cluster

CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "kopfexamples.kopf.dev"},
    "spec": {
        "group": "kopf.dev",
        "scope": "Namespaced",
        "names": {
            "kind": "KopfExample",
            "plural": "kopfexamples",
            "singular": "kopfexample",
            "shortNames": ["kex"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture(autouse=True)
def registry() -> Iterator[kopf.OperatorRegistry]:
    """Return a new default registry."""
    before = kopf.get_default_registry()
    made = kopf.OperatorRegistry()
    kopf.set_default_registry(made)
    yield made
    kopf.set_default_registry(before)


@pytest.fixture
async def kex(cluster: Cluster) -> Cluster:
    """Return a cluster with the resource kind of the documentation."""
    await cluster.apply(CRD)
    return cluster


def example(name: str = "kex-1", *, namespace: str = "default", meta: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {"name": name, "namespace": namespace, **(meta or {})},
        "spec": spec,
    }


@contextlib.asynccontextmanager
async def operating(cluster: Cluster, **options: Any) -> AsyncIterator[trio.CancelScope]:
    """Run an operator with the default registry, and stop it in order at the end; cancel the scope to kill it."""
    stop = trio.Event()
    killed = trio.CancelScope()

    async def operate(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with killed:
            await kopf.operator(
                connection=kopf.ConnectionInfo(server="http://embedded"),
                transport=cluster.transport(),
                stop_flag=stop,
                task_status=task_status,
                **options,
            )

    async with trio.open_nursery() as nursery:
        await nursery.start(operate)
        yield killed
        stop.set()


async def rest(seconds: float = 1.0) -> None:
    """Wait until all tasks are blocked, then for *seconds*."""
    await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(seconds)
    await trio.testing.wait_all_tasks_blocked()


async def change(cluster: Cluster, **spec: Any) -> None:
    await cluster.patch("kopfexamples", "kex-1", {"spec": spec})
