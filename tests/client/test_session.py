"""Tests for :mod:`trioperator.client.session`, and of the clients of handlers."""

from __future__ import annotations

import contextlib
import functools
import logging
import pathlib
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.client.conftest import CONNECTION, config_map
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._handling.calls.invoke import Clients
from trioperator._kube.credential_store import login_with
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.client.session import Session
from trioperator.errors import ConfigError, ConnectionLostError, PausedError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.loggers = False
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


async def names(cluster: Cluster) -> set[str]:
    return {found["metadata"]["name"] for found in await cluster.list("configmaps")}


async def test_all_handlers_have_a_client(bench: Bench, autojump_clock: MockClock) -> None:
    registry = bench.registry

    async def make(name: str, client: trioperator.Client) -> None:
        await client.apply(config_map(name))

    @on.startup(registry=registry)
    async def start(client: trioperator.Client, **_: Any) -> None:
        await make("startup", client)

    @on.cleanup(registry=registry)
    async def clean(client: trioperator.Client, **_: Any) -> None:
        await make("cleanup", client)

    @on.create("widgets", registry=registry)
    async def create(client: trioperator.Client, **_: Any) -> None:
        await make("create", client)

        @trioperator.subhandler(id="inner")
        async def inner(client: trioperator.Client, **_: Any) -> None:
            await make("inner", client)

    @on.event("widgets", registry=registry)
    async def event(client: trioperator.Client, **_: Any) -> None:
        await make("event", client)

    @on.index("widgets", registry=registry)
    async def index(client: trioperator.Client, **_: Any) -> None:
        await make("index", client)

    @on.daemon("widgets", registry=registry)
    async def daemon(client: trioperator.Client, **_: Any) -> None:
        await make("daemon", client)

    @on.timer("widgets", interval=10, registry=registry)
    async def timer(client: trioperator.Client, **_: Any) -> None:
        await make("timer", client)

    async with bench.running():
        assert await names(bench.cluster) == {"startup"}
        await bench.cluster.create(widget())
        await settle(1)
        assert await names(bench.cluster) == {"startup", "create", "inner", "event", "index", "daemon", "timer"}
        (child,) = [c for c in await bench.cluster.list("configmaps") if c["metadata"]["name"] == "timer"]
        assert child["metadata"]["ownerReferences"][0]["kind"] == "Widget"
    assert "cleanup" in await names(bench.cluster)


async def test_sync_handlers_have_a_client_that_blocks(bench: Bench, autojump_clock: MockClock) -> None:
    @on.startup(registry=bench.registry)
    def start(client: trioperator.SyncClient, **_: Any) -> None:
        client.apply(config_map("startup"))

    @on.create("widgets", registry=bench.registry)
    def create(client: trioperator.SyncClient, **_: Any) -> None:
        client.apply(config_map("create"))
        assert client.wait_for("configmaps", "create", condition=lambda obj: True)

    @on.daemon("widgets", registry=bench.registry)
    def daemon(client: trioperator.SyncClient, **_: Any) -> None:
        client.apply(config_map("daemon"))

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
    assert await names(bench.cluster) == {"startup", "create", "daemon"}
    children = [c for c in await bench.cluster.list("configmaps") if c["metadata"].get("ownerReferences")]
    assert {child["metadata"]["name"] for child in children} == {"create", "daemon"}


async def test_login_handlers_have_no_client(bench: Bench) -> None:
    @on.login(registry=bench.registry)
    async def login(client: trioperator.Client, **_: Any) -> None:
        raise AssertionError

    with pytest.raises(ConfigError, match="arguments that do not exist: client"):
        bench.registry.check()


async def test_a_client_logs_in_once(bench: Bench, autojump_clock: MockClock) -> None:
    logins = []

    @on.login(registry=bench.registry)
    async def login(**kwargs: Any) -> trioperator.ConnectionInfo:
        assert "client" not in kwargs
        logins.append(trio.current_time())
        await trio.sleep(1)
        return CONNECTION

    @on.startup(registry=bench.registry)
    async def start(client: trioperator.Client, **_: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.list, "widgets")
            nursery.start_soon(client.list, "widgets")

    stop = trio.Event()
    stop.set()
    await trioperator.operator(
        registry=bench.registry, transport=bench.cluster.transport(), stop_flag=stop, handle_signals=False
    )
    assert logins == [0]


async def test_an_operator_that_does_not_ask_for_clients_sends_no_request_for_them(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        pass

    async with bench.running(standalone=True):
        bench.cluster.requests.clear()
        await bench.cluster.create(widget())
        await settle(1)
        assert [request.method for request in bench.cluster.requests] == ["PATCH"]


async def test_a_paused_operator_writes_nothing(cluster: Cluster, autojump_clock: MockClock) -> None:
    def fence() -> None:
        raise PausedError("the operator is paused")

    session = make_session(cluster, fence)
    client: trioperator.Client = session.clients.for_async
    assert await client.list("configmaps") == []
    for write in (
        lambda: client.create(config_map("one")),
        lambda: client.apply(config_map("one")),
        lambda: client.patch("configmaps", "one", merge={}),
        lambda: client.delete("configmaps", "one"),
        lambda: client.request("POST", "/api/v1/namespaces", body=b"{}"),
    ):
        with pytest.raises(PausedError):
            await write()
    await session.aclose()
    assert {request.method for request in cluster.requests} == {"GET"}


def make_session(cluster: Cluster, fence: Any = lambda: None) -> Session:
    settings = trioperator.OperatorSettings()
    return Session(lambda: login_with(CONNECTION), settings=settings, transport=cluster.transport(), fence=fence)


async def test_a_standby_cannot_write_until_it_leads(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[str] = []
    bench.settings.leadership.enabled = True
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    metadata = {"name": "trioperator", "namespace": "default"}
    spec = {"holderIdentity": "another", "leaseDurationSeconds": 60, "renewTime": "2000-01-01T00:00:00.000000Z"}
    await bench.cluster.create({**lease, "metadata": metadata, "spec": spec})

    @on.index("widgets", registry=bench.registry)
    async def index(client: trioperator.Client, **_: Any) -> None:
        try:
            await client.apply(config_map("one"))
            seen.append("written")
        except PausedError:
            seen.append("paused")

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
        assert seen == ["paused"]
        await settle(120)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}}, "default")
        await settle(1)
        assert seen[-1] == "written"


async def test_retries_are_logged_with_the_object_and_not_posted(
    bench: Bench, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    plan = FaultPlan()
    plan.add(Fault.status(503), times=1, resource="configmaps")
    bench.settings.posting.loggers = True

    @on.create("widgets", registry=bench.registry)
    async def create(client: trioperator.Client, **_: Any) -> None:
        await client.apply(config_map("one"))

    with caplog.at_level(logging.WARNING):
        async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
            await bench.cluster.create(widget())
            await settle(60)
    (record,) = [record for record in caplog.records if "retrying in 1 s" in record.getMessage()]
    assert record.__dict__["k8s_ref"]["name"] == "w"
    assert not [event for event in await bench.cluster.list("events") if "retrying" in event["message"]]


async def test_a_client_that_is_left_behind_is_closed(cluster: Cluster) -> None:
    session = make_session(cluster)
    clients: Clients = session.clients
    await clients.for_async.list("configmaps")
    await session.aclose()
    with pytest.raises(ConnectionLostError, match="has stopped"):
        await clients.for_async.list("configmaps")


async def test_scripts_open_clients_by_kubeconfigs(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    await cluster.create(config_map("one"))
    path = tmp_path / "config"
    async with trio.open_nursery() as nursery:
        url = str(await nursery.start(serve_cluster, cluster))
        path.write_bytes(msgspec.json.encode(cluster.kubeconfig(url)))
        async with trioperator.open_client(kubeconfig=path, context="embedded") as client:
            assert [found["metadata"]["name"] for found in await client.list("configmaps")] == ["one"]
        nursery.cancel_scope.cancel()


async def test_an_operator_says_which_api_server_it_uses(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    info = trioperator.ConnectionInfo(server="http://embedded", origin="context 'prod'")
    login = functools.partial(login_with, info)
    async with contextlib.aclosing(
        Session(login, settings=trioperator.OperatorSettings(), transport=cluster.transport(), fence=lambda: None)
    ) as session:
        await session.open()
        await session.open()
    assert caplog.messages == ["Using the API server http://embedded (context 'prod')."]


async def test_clients_are_opened_in_one_way_only() -> None:
    with pytest.raises(TypeError, match="not both"):
        async with trioperator.open_client(connection=CONNECTION, context="x"):
            raise AssertionError
    with pytest.raises(ConfigError):
        async with trioperator.open_client(kubeconfig="/nonexistent/kubeconfig"):
            raise AssertionError
