"""Operators that convert widgets between three versions, asked by the embedded API server in memory."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import trio

import trioperator
from tests.runtime.conftest import CRD, widget
from tests.webhooks.admission import Operator, operating
from trioperator._handling.reviews.webhook_configuration import WebhookFn
from trioperator.apiserver import Cluster
from trioperator.errors import ReviewError

__all__ = ["HOST", "URL", "Hooks", "add_handlers", "converting", "definition", "make_conversion", "widget"]

HOST = "hooks.test"
URL = f"https://{HOST}/hooks"


def definition(*versions: str, storage: str = "v1", conversion: Any = None) -> dict[str, Any]:
    """Return the CRD of widgets with these versions, all of them served."""
    crd = copy.deepcopy(CRD)
    (version,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [{**version, "name": name, "storage": name == storage} for name in versions]
    if conversion is not None:
        crd["spec"]["conversion"] = conversion
    return crd


class Hooks(httpx.AsyncBaseTransport):
    """Webhook server in memory: a transport for the API server, and a server for the operator."""

    def __init__(self) -> None:
        self.fn: WebhookFn | None = None
        self.paths: list[str] = []

    async def __call__(self, fn: WebhookFn) -> AsyncIterator[trioperator.WebhookClientConfig]:
        self.fn = fn
        yield {"url": URL}
        await trio.sleep_forever()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        review = msgspec.json.decode(await request.aread())
        self.paths.append(request.url.path)
        if self.fn is None or request.url.path != "/hooks/convert":
            return httpx.Response(404)
        try:
            return httpx.Response(200, json=await self.fn(review, webhook="convert"))
        except ReviewError as error:
            return httpx.Response(error.status, text=str(error))


def add_handlers(registry: trioperator.OperatorRegistry, *steps: str) -> None:
    """Convert ``size: "3x4"`` (v1), ``width`` and ``height`` (v2), and ``dimensions: [3, 4]`` (v3)."""

    async def v1_to_v2(spec: Any, patch: trioperator.Patch) -> None:
        width, _, height = spec["size"].partition("x")
        patch.spec.update(size=None, width=int(width), height=int(height))

    def v2_to_v1(spec: Any, patch: trioperator.Patch) -> None:
        patch.spec.update(size=f"{spec['width']}x{spec['height']}", width=None, height=None)

    def v2_to_v3(body: trioperator.Body, spec: Any, **_: Any) -> dict[str, Any]:
        return {**body, "spec": {"dimensions": [spec["width"], spec["height"]]}}

    async def v3_to_v2(body: trioperator.Body, spec: Any, **_: Any) -> dict[str, Any]:
        width, height = spec["dimensions"]
        return {**body, "spec": {"width": width, "height": height}}

    for fn in (v1_to_v2, v2_to_v1, v2_to_v3, v3_to_v2):
        from_, _, to = fn.__name__.partition("_to_")
        if not steps or fn.__name__ in steps:
            trioperator.on.convert("widgets", from_=from_, to=to, registry=registry)(fn)


@contextlib.asynccontextmanager
async def converting(
    cluster: Cluster, registry: trioperator.OperatorRegistry, hooks: Hooks, **options: Any
) -> AsyncIterator[Operator]:
    """Run an operator that manages the conversion of the CRD."""
    settings = trioperator.OperatorSettings()
    settings.admission.managed_conversions = True
    async with operating(cluster, registry, server=hooks, managed=None, settings=settings, **options) as operator:
        yield operator


def make_conversion(*objects: dict[str, Any], to: str = "v2", version: str = "v1") -> dict[str, Any]:
    """Return a review of a conversion of widgets."""
    return {
        "kind": "ConversionReview",
        "apiVersion": f"apiextensions.k8s.io/{version}",
        "request": {"uid": "u1", "desiredAPIVersion": f"example.com/{to}", "objects": list(objects)},
    }
