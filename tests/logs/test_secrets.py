"""Secrets are in no log record of an operator, at any level: neither credentials nor the data of Secrets."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.logs.conftest import Stream
from tests.runtime.conftest import settle
from trioperator._concurrency.clock import wall_now
from trioperator._logs import LogFormat, configure
from trioperator.apiserver import Cluster
from trioperator.apiserver.model.user import NO_CREDENTIALS
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
PASSWORD, BAD_TOKEN = "pass-is-secret", "bad-token-is-secret"
DATA = ("first-value-is-secret", "second-value-is-secret")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(value: str) -> dict[str, Any]:
    metadata = {"name": "s", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key": encoded(value)}}


def declare(registry: trioperator.OperatorRegistry, token: str) -> None:
    """Declare logins, of which the first ones are rejected, and handlers that succeed, fail, patch and return."""
    on.login(id="one", registry=registry)(
        lambda **_: trioperator.ConnectionInfo(server="http://c", username="user", password=PASSWORD, priority=30)
    )
    on.login(id="two", registry=registry)(
        lambda **_: trioperator.ConnectionInfo(server="http://c", token=BAD_TOKEN, priority=20)
    )
    on.login(id="three", registry=registry)(
        lambda **_: trioperator.ConnectionInfo(server="http://c", token=token, priority=10)
    )

    @on.create("secrets", registry=registry)
    @on.update("secrets", registry=registry)
    @on.field("secrets", field="data.key", id="field", registry=registry)
    async def change(patch: trioperator.Patch, data: Any = None, **_: Any) -> None:
        patch.metadata.annotations["seen"] = "yes"

    @on.update("secrets", id="fail", retries=2, backoff=1, registry=registry)
    def fail(**_: Any) -> None:
        raise ValueError("not yet")

    @on.event("secrets", registry=registry)
    async def event(**_: Any) -> None:
        raise RuntimeError("ignored")

    @trioperator.index("secrets", registry=registry)
    async def index(body: trioperator.Body, **_: Any) -> Any:
        return body["data"]

    @trioperator.daemon("secrets", registry=registry)
    async def daemon(body: trioperator.Body, **_: Any) -> None:
        await trio.sleep(1)


@pytest.mark.parametrize("log_format", [LogFormat.FULL, LogFormat.JSON])
async def test_nothing_secret_is_logged_at_any_level(
    log_format: LogFormat, autojump_clock: MockClock, stream: Stream
) -> None:
    cluster = Cluster(clock=wall_now, seed=0)
    async with cluster.client() as client:
        path = "/api/v1/namespaces/default/serviceaccounts"
        await client.post(path, json={"metadata": {"name": "robot"}})
        response = await client.post(f"{path}/robot/token", json={"spec": {"expirationSeconds": 7200}})
    token = str(response.json()["status"]["token"])
    configure(debug=True, log_format=log_format)
    for name in (None, "trio", "httpx", "trioperator"):
        logging.getLogger(name).setLevel(1)
    registry, stop = trioperator.OperatorRegistry(), trio.Event()
    declare(registry, token)
    plan = FaultPlan()
    plan.add(Fault.status(409), resource="secrets", method="PATCH", times=2)
    plan.add(Fault.reset(), resource="secrets", times=2)

    async def operate(*, task_status: trio.TaskStatus[None]) -> None:
        transport = FaultyTransport(cluster.transport(user=NO_CREDENTIALS), plan)
        await trioperator.operator(
            registry=registry, transport=transport, stop_flag=stop, handle_signals=False, task_status=task_status
        )

    async with trio.open_nursery() as nursery:
        await nursery.start(operate)
        await cluster.create(secret(DATA[0]))
        await settle(100)
        await cluster.patch("secrets", "s", {"data": {"key": encoded(DATA[1])}})
        await settle(100)
        await cluster.delete("secrets", "s")
        await settle(100)
        stop.set()
    text = stream.getvalue()
    for needed in ("rejected the credentials", "change' succeeded", "'fail' failed", "Updating is in progress"):
        assert needed in text
    for value in (PASSWORD, BAD_TOKEN, token, *DATA):
        assert value not in text
        assert encoded(value) not in text
