"""Tests for :mod:`trioperator.client.sync`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.client.conftest import config_map, handling, opened
from tests.kube.conftest import Chunks
from trioperator._concurrency.threads import run_in_thread
from trioperator.apiserver import Cluster
from trioperator.client import Client, SyncClient
from trioperator.errors import ForeignChildError, NotFoundError
from trioperator.testing import Fault, FaultPlan

T = TypeVar("T")


async def in_thread(fn: Callable[[], T]) -> T:
    with trio.fail_after(60):
        return await trio.to_thread.run_sync(fn)


async def abandoned(fn: Callable[[], object], *, begun: trio.Event) -> None:
    """Run a function in a thread as handlers are, and cancel that when it has begun to wait."""
    limiter = trio.CapacityLimiter(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run_in_thread(fn, limiter=limiter))
        await begun.wait()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


def test_all_methods_are_there() -> None:
    def public(cls: type) -> dict[str, Any]:
        return {name: value for name, value in inspect.getmembers(cls) if name[0] != "_" and callable(value)}

    assert public(SyncClient).keys() == public(Client).keys()
    for name, method in public(SyncClient).items():
        assert inspect.signature(method).parameters == inspect.signature(public(Client)[name]).parameters
        assert method.__doc__ == public(Client)[name].__doc__ or name == "connection"  # which returns another one


async def test_methods_block_the_thread(client: Client, cluster: Cluster) -> None:
    sync = SyncClient(client)

    def work() -> None:
        assert sync.create(config_map("one", a="1"))["data"] == {"a": "1"}
        assert sync.apply(config_map("one", a="2"), force=True)["data"] == {"a": "2"}
        assert sync.patch("configmaps", "one", merge={"data": {"b": "3"}})["data"] == {"a": "2", "b": "3"}
        assert [obj["metadata"]["name"] for obj in sync.list("configmaps")] == ["one"]
        assert [obj["metadata"]["name"] for obj in sync.iterate("configmaps")] == ["one"]
        with sync.watch("configmaps") as events:
            assert next(events).type == "ADDED"
            sync.delete("configmaps", "one")
            assert next(events).type == "DELETED"
        with pytest.raises(NotFoundError):
            sync.get("configmaps", "one")

    await in_thread(work)
    assert await cluster.list("configmaps") == []


async def test_the_object_of_the_handler_owns_what_its_thread_creates(client: Client, cluster: Cluster) -> None:
    sync = SyncClient(client)
    owner = await cluster.create(config_map("owner"))
    with handling(owner):
        child = await in_thread(lambda: sync.create(config_map("child")))
    assert child["metadata"]["ownerReferences"][0]["name"] == "owner"


async def test_what_a_thread_applies_leaves_the_objects_of_others_alone(client: Client, cluster: Cluster) -> None:
    sync = SyncClient(client)
    owner, before = await cluster.create(config_map("owner")), await cluster.create(config_map("one", payroll="secret"))
    with handling(owner), pytest.raises(ForeignChildError):
        await in_thread(lambda: sync.apply(config_map("one", key="value"), force=True))
    assert await cluster.get("configmaps", "one", "default") == before


async def test_threads_of_a_handler_may_use_the_client_too(client: Client, cluster: Cluster) -> None:
    sync = SyncClient(client)

    def work() -> None:
        thread = threading.Thread(target=lambda: sync.create(config_map("one")))
        thread.start()
        thread.join()

    await in_thread(work)
    assert await cluster.find("configmaps", "one", "default") is not None


async def test_a_method_that_waits_is_cancelled_with_its_handler(client: Client, plan: FaultPlan) -> None:
    noted = Fault.call(lambda: begun.set())
    plan.add(dataclasses.replace(noted, before=3600), resource="configmaps", verb="list")
    plan.add(noted, resource="secrets", watch=True)
    sync, begun, ended = SyncClient(client), trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def work(wait: Callable[[], object]) -> None:
        try:
            wait()
        except trio.Cancelled:
            token.run_sync_soon(ended.set)

    for wait in (
        lambda: sync.wait_for("secrets", "one", condition="Ready"),
        lambda: sync.list("configmaps"),
        lambda: list(sync.iterate("configmaps")),
    ):
        begun, ended = trio.Event(), trio.Event()
        await abandoned(functools.partial(work, wait), begun=begun)
        with trio.fail_after(10):
            await ended.wait()


async def test_a_watch_of_a_handler_that_is_cancelled_is_closed(cluster: Cluster) -> None:
    memory, silence, begun, ended = cluster.transport(), Chunks([None]), trio.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if "watch=true" in str(request.url):
                begun.set()
                return httpx.Response(200, stream=silence)
            return await memory.handle_async_request(request)

    def work(sync: SyncClient) -> None:
        try:
            with sync.watch("configmaps") as events:
                next(events)
        finally:
            token.run_sync_soon(ended.set)

    async with opened(Silent()) as client:
        await abandoned(functools.partial(work, SyncClient(client)), begun=begun)
        with trio.fail_after(10):
            await ended.wait()
        assert silence.closed


async def test_the_event_loop_is_never_blocked(client: Client) -> None:
    with pytest.raises(RuntimeError, match="blocking function"):
        SyncClient(client).list("configmaps")


async def test_a_wait_in_a_thread_has_a_timeout(client: Client, autojump_clock: MockClock) -> None:
    def wait() -> None:
        sync.wait_for("configmaps", "one", condition="Ready", timeout=3600)

    sync = SyncClient(client)
    with pytest.raises(TimeoutError):
        await run_in_thread(wait, limiter=trio.CapacityLimiter(1))
    assert trio.current_time() == 3600
