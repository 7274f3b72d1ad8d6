"""Operators that succeed each other on one cluster."""

from __future__ import annotations

import copy

from tests.runtime.conftest import CRD, Bench


async def serve(bench: Bench, *names: str, unserved: str = "") -> None:
    """Let the API server have these versions of widgets; the first one is that which is stored."""
    crd = copy.deepcopy(CRD)
    (version,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [
        {**version, "name": name, "storage": name == names[0], "served": name != unserved} for name in names
    ]
    await bench.cluster.apply(crd)
