"""Peering objects, and operators that pause and resume."""

from __future__ import annotations

from typing import Any

import trioperator
from tests.runtime.conftest import Bench
from trioperator.apiserver import Cluster


def peering_crd(*, clusterwide: bool = True, group: str = "kopf.dev") -> dict[str, Any]:
    prefix = "Cluster" if clusterwide else ""
    plural = f"{prefix}KopfPeerings".lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster" if clusterwide else "Namespaced",
            "names": {"kind": f"{prefix}KopfPeering", "plural": plural, "singular": plural[:-1]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                        }
                    },
                }
            ],
        },
    }


def peering(name: str = "default", *, namespace: str | None = None, group: str = "kopf.dev") -> dict[str, Any]:
    kind = "ClusterKopfPeering" if namespace is None else "KopfPeering"
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata}


class Operator:
    """An operator that notes what it handles, and which daemons run."""

    def __init__(self, cluster: Cluster, *, priority: int = 0, **peering: Any) -> None:
        self.bench = Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())
        self.bench.settings.peering.priority = priority
        for name, value in peering.items():
            setattr(self.bench.settings.peering, name, value)
        self.handled: list[str] = []
        self.running: set[str] = set()

        @trioperator.on.resume("widgets", registry=self.bench.registry)
        async def resume(name: str, **_: Any) -> None:
            self.handled.append(f"resume {name}")

        @trioperator.on.create("widgets", registry=self.bench.registry)
        async def create(name: str, memo: trioperator.Memo, **_: Any) -> None:
            memo.created = True
            self.handled.append(f"create {name}")

        @trioperator.on.update("widgets", registry=self.bench.registry)
        async def update(name: str, memo: trioperator.Memo, **_: Any) -> None:
            self.handled.append(f"update {name}{' again' if 'created' in memo else ''}")

        @trioperator.daemon("widgets", registry=self.bench.registry)
        async def watch(name: str, stopped: trioperator.DaemonStopped, **_: Any) -> None:
            self.running.add(name)
            await stopped.wait()
            self.running.discard(name)
