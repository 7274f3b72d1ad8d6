"""Operators on the embedded cluster, in virtual time."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import trio

import trioperator
from trioperator.apiserver import Cluster

CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {
            "kind": "Widget",
            "plural": "widgets",
            "singular": "widget",
            "shortNames": ["wd"],
            "categories": ["toys"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}

# The same kind without a status subresource.
PLAIN_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gadgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Gadget", "plural": "gadgets", "singular": "gadget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


def widget(name: str = "w", *, kind: str = "Widget", **spec: Any) -> dict[str, Any]:
    """Return a manifest."""
    return {
        "apiVersion": "example.com/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec or {"size": 1},
    }


@dataclasses.dataclass
class Bench:
    """A cluster and a registry for handlers, and operators that run with them."""

    cluster: Cluster
    registry: trioperator.OperatorRegistry
    settings: trioperator.OperatorSettings

    @contextlib.asynccontextmanager
    async def running(
        self,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        registry: trioperator.OperatorRegistry | None = None,
        settings: trioperator.OperatorSettings | None = None,
        **options: Any,
    ) -> AsyncIterator[Callable[[], None]]:
        """Run an operator in the block, and stop it in order at the end. Yields a function that stops it earlier."""
        stop = trio.Event()

        async def operate(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            await trioperator.operator(
                registry=registry or self.registry,
                settings=settings or self.settings,
                connection=trioperator.ConnectionInfo(server="http://embedded"),
                transport=transport or self.cluster.transport(),
                stop_flag=stop,
                task_status=task_status,
                **{"handle_signals": False, **options},
            )

        async with trio.open_nursery() as nursery:
            await nursery.start(operate)
            yield stop.set
            stop.set()

    def writes(self) -> list[str]:
        """Return the writes of the operator, as method and subresource."""
        return [
            f"{request.method} {'status' if request.path.endswith('/status') else 'main'}"
            for request in self.cluster.requests
            if request.method in ("PATCH", "PUT", "POST", "DELETE")
        ]


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    await cluster.apply(PLAIN_CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.loggers = False  # the requests that tests count are those of the objects
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


async def settle(seconds: float = 0.0) -> None:
    """Wait until all tasks are blocked, and again after *seconds*."""
    await trio.testing.wait_all_tasks_blocked(0.0)
    if seconds:
        await trio.sleep(seconds)
        await trio.testing.wait_all_tasks_blocked(0.0)
