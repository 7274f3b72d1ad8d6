"""Operators with admission handlers on an embedded cluster: reviews over real TLS, or in memory."""

from __future__ import annotations

import base64
import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any

import trio

import trioperator
from tests.runtime.conftest import CRD, widget
from trioperator._handling.reviews.webhook_configuration import WebhookFn
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError

__all__ = [
    "MANAGED",
    "Operator",
    "deny",
    "make_bundle",
    "make_review",
    "operate_for",
    "operating",
    "server_with",
    "sleeping_server",
    "widget",
]

MANAGED = "hooks.example.com"


class Operator:
    """An operator at work; ``fn`` answers reviews without a server, once it is ready."""

    def __init__(self, stop: trio.Event) -> None:
        self.stop = stop


@contextlib.asynccontextmanager
async def operating(
    cluster: Cluster, registry: trioperator.OperatorRegistry, **options: Any
) -> AsyncIterator[Operator]:
    """Run an operator in the block, and stop it in order at the end. The options are those of :func:`_operate`."""
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(functools.partial(_operate, cluster, registry, stop=stop, **options))
        yield Operator(stop)
        stop.set()


async def operate_for(
    seconds: float, cluster: Cluster, registry: trioperator.OperatorRegistry, *, in_order: bool, **options: Any
) -> None:
    """Run an operator, and stop it in order or cancel it after so many seconds, whether it is ready by then or not."""
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(functools.partial(_operate, cluster, registry, stop=stop, **options))
        await trio.sleep(seconds)
        if in_order:
            stop.set()
        else:
            nursery.cancel_scope.cancel()


async def _operate(
    cluster: Cluster,
    registry: trioperator.OperatorRegistry,
    *,
    stop: trio.Event,
    server: Any = None,
    managed: str | None = MANAGED,
    is_defined: bool = True,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    **options: Any,
) -> None:
    if is_defined and "widgets.example.com" not in [crd["metadata"]["name"] for crd in await cluster.list("crd")]:
        await cluster.apply(CRD)
    settings = options.pop("settings", None) or trioperator.OperatorSettings()
    settings.admission.server = trioperator.WebhookServer() if server is None else server
    settings.admission.managed = managed
    await trioperator.operator(
        registry=registry,
        settings=settings,
        connection=trioperator.ConnectionInfo(server="http://embedded"),
        stop_flag=stop,
        handle_signals=False,
        task_status=task_status,
        **{"transport": cluster.transport(), **options},
    )


async def deny(cluster: Cluster, **spec: Any) -> ApiError | None:
    """Create a widget; return the error response, if there is one."""
    try:
        await cluster.create(widget("w", **spec))
    except ApiError as error:
        return error
    return None


def sleeping_server(fns: list[WebhookFn]) -> Any:
    """Return a webhook server that only takes the function into the list."""

    async def serve(fn: WebhookFn) -> AsyncIterator[trioperator.WebhookClientConfig]:
        fns.append(fn)
        yield {"url": "https://nowhere.test/hooks"}
        await trio.sleep_forever()

    return serve


def make_bundle(*names: str) -> str:
    """Return the CAs of these names, as they are in configurations."""
    parts = [f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n" for name in names]
    return base64.b64encode("".join(parts).encode()).decode()


def server_with(ca: str) -> Any:
    """Return a webhook server behind a Service, with a CA of its own."""

    async def serve(fn: WebhookFn) -> AsyncIterator[trioperator.WebhookClientConfig]:
        service = trioperator.WebhookClientConfigService(namespace="default", name="hooks", port=443)
        yield {"service": service, "caBundle": make_bundle(ca)}
        await trio.sleep_forever()

    return serve


def make_review(
    operation: str = "CREATE",
    *,
    new: dict[str, Any] | None = None,
    old: dict[str, Any] | None = None,
    version: str = "v1",
    **more: Any,
) -> dict[str, Any]:
    """Return a review of a write of a widget."""
    request = {
        "uid": "u1",
        "kind": {"group": "example.com", "version": "v1", "kind": "Widget"},
        "resource": {"group": "example.com", "version": "v1", "resource": "widgets"},
        "name": "w",
        "namespace": "default",
        "operation": operation,
        "userInfo": {"username": "alice", "groups": ["admins"]},
        "object": None if operation == "DELETE" else new or widget("w"),
        "oldObject": None if operation == "CREATE" else old or widget("w"),
        "dryRun": False,
        **more,
    }
    return {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": request}
