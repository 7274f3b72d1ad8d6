"""An operator with a bug that exploring finds."""

from __future__ import annotations

FORGETFUL = """\
import trioperator

@trioperator.on.create("webapps")
@trioperator.on.update("webapps")
async def apply_fn(name, spec, client):
    meta = {"name": name}
    if spec.get("greeting"):
        data = {"greeting": spec["greeting"]}
        await client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
"""
