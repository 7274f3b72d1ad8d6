"""Objects as an operator has written them."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec

from trioperator.apiserver import Cluster

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "web", "image": "nginx"}]},
        },
    },
}


async def write(cluster: Cluster, path: str, obj: dict[str, Any], *, apply: bool = False) -> None:
    """Write an object as an operator does."""
    async with cluster.client() as client:
        headers = {"User-Agent": "operator", "Content-Type": "application/apply-patch+yaml"}
        body = msgspec.json.encode(obj)
        if apply:
            name = obj["metadata"]["name"]
            query = {"fieldManager": "operator", "force": "true"}
            response = await client.patch(f"{path}/{name}", content=body, headers=headers, params=query)
        else:
            response = await client.post(path, content=body, headers={"User-Agent": "operator"})
        assert response.is_success, response.text
        assert isinstance(response, httpx.Response)
