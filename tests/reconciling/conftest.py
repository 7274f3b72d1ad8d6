"""A bench for reconcile handlers: widgets whose children are ConfigMaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.runtime.conftest import CRD, Bench
from trioperator import OperatorRegistry, OperatorSettings
from trioperator.apiserver import Cluster


def config_map(name: str, **data: str) -> dict[str, Any]:
    """Return a manifest of a child, without a namespace."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def children_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the ConfigMaps that a widget's spec has in ``maps``: by name, their data."""
    return [config_map(name, **data) for name, data in spec.get("maps", {}).items()]


def requests_of(bench: Bench) -> list[str]:
    """Return the requests of the operator for objects but watches, as verbs and names; not those of the test itself."""
    return [f"{record.verb} {record.name}" for record in bench.cluster.requests if record.verb not in ("watch", "")]


async def names_of(cluster: Cluster) -> list[str]:
    """Return the names of all ConfigMaps in the default namespace, but that of the CA."""
    found = [each["metadata"]["name"] for each in await cluster.list("configmaps", "default")]
    return [name for name in found if name != "kube-root-ca.crt"]


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    settings = OperatorSettings()
    settings.posting.loggers = False
    return Bench(cluster, OperatorRegistry(), settings)
