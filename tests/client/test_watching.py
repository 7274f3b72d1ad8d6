"""Tests for :mod:`trioperator.client.watching`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest
import trio
from trio.testing import MockClock

from tests.client.conftest import config_map, opened
from tests.kube.conftest import Chunks, Memory, ok
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._model.resource import Resource
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.client import Client, open_client
from trioperator.client.watching import ObjectWatch
from trioperator.errors import ConnectionLostError, ForbiddenError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

WATCH_FAULTS = {
    "dropped": Fault.break_off(lines=1),
    "truncated": Fault.half_line(lines=1),
    "garbage": Fault.garbage(lines=1),
    "error": Fault.error_event(500, lines=1),
    "expired": Fault.error_event(410, lines=1),
    "logged out": Fault.error_event(401, lines=1),
    "refused": Fault.refuse(),
    "unavailable": Fault.status(503),
    "too many": Fault.status(429, retry_after=1),
}


async def receive(events: ObjectWatch, count: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    with trio.fail_after(60):
        while len(found) < count:
            event = await anext(events)
            found.append((event.type, event.object["metadata"]["name"]))
    return found


async def test_a_watch_begins_with_what_exists(client: Client, cluster: Cluster) -> None:
    await cluster.create(config_map("a"))
    async with client.watch("configmaps") as events:
        assert await receive(events, 1) == [("ADDED", "a")]
        await cluster.create(config_map("b"))
        await cluster.patch("configmaps", "a", {"data": {"x": "1"}}, "default")
        await cluster.delete("configmaps", "a", "default")
        assert await receive(events, 3) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_is_for_what_was_selected(client: Client, cluster: Cluster) -> None:
    other = config_map("c")
    other["metadata"]["namespace"] = "kube-system"
    for manifest in (config_map("a"), config_map("b"), other):
        await cluster.create(manifest)
    async with client.watch("configmaps", name="b") as events:
        assert await receive(events, 1) == [("ADDED", "b")]
    async with client.watch("configmaps", all_namespaces=True, fields="metadata.name!=a") as events:
        assert await receive(events, 2) == [("ADDED", "b"), ("ADDED", "c")]
    with pytest.raises(TypeError, match="not both"):
        async with client.watch("configmaps", namespace="default", all_namespaces=True):
            pass


@pytest.mark.parametrize("fault", WATCH_FAULTS)
async def test_a_watch_goes_on_after(
    client: Client, cluster: Cluster, plan: FaultPlan, fault: str, autojump_clock: MockClock
) -> None:
    plan.add(WATCH_FAULTS[fault], watch=True, times=3)
    seen: dict[str, str] = {}

    async def change() -> None:
        for number in range(6):
            await trio.sleep(1)
            await cluster.apply(config_map(f"c{number % 2}", number=str(number)))
        await cluster.delete("configmaps", "c0", "default")

    async with client.watch("configmaps") as events, trio.open_nursery() as nursery:
        nursery.start_soon(change)
        with trio.fail_after(60):
            async for event in events:
                name = event.object["metadata"]["name"]
                if event.type == "DELETED":
                    del seen[name]
                    break
                assert (event.type == "MODIFIED") == (name in seen)
                seen[name] = event.object["data"]["number"]
    assert seen == {"c1": "5"}


async def test_what_is_deleted_while_a_watch_is_broken_is_noticed(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("a", x="1"))
    await cluster.create(config_map("b"))
    plan.add(Fault.refuse(), watch=True, until=1)
    async with client.watch("configmaps") as events:
        assert len(await receive(events, 2)) == 2
        await cluster.delete("configmaps", "a", "default")
        await cluster.patch("configmaps", "b", {"data": {"x": "2"}}, "default")
        await cluster.create(config_map("c"))
        cluster.compact()
        found = [await anext(events) for _ in range(3)]
    assert [(event.type, event.object["metadata"]["name"]) for event in found] == [
        ("DELETED", "a"),
        ("MODIFIED", "b"),
        ("ADDED", "c"),
    ]
    assert found[0].object["data"] == {"x": "1"}


async def test_a_watch_that_fails_again_and_again_ends(
    plan: FaultPlan, cluster: Cluster, autojump_clock: MockClock
) -> None:
    plan.add(Fault.refuse(), watch=True)
    transport = FaultyTransport(cluster.transport(), plan)
    async with opened(transport, error_backoffs=[1, 2]) as client, client.watch("configmaps") as events:
        with pytest.raises(ConnectionLostError):
            await anext(events)
    assert trio.current_time() == 3


async def test_a_watch_that_is_not_allowed_ends_at_once(
    client: Client, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    plan.add(Fault.status(403), resource="configmaps")
    async with client.watch("configmaps") as events:
        with pytest.raises(ForbiddenError):
            await anext(events)
    assert trio.current_time() == 0


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_all_the_time(autojump_clock: MockClock) -> None:
    listing = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
    server = Memory([ok(listing), httpx.Response(200, content=b"")])
    async with opened(server, error_backoffs=[5, 5]) as client, client.watch(Resource("", "v1", "pods")) as events:
        with pytest.raises(ConnectionLostError, match="at once"):
            await anext(events)
    assert server.times == [0, 0, 5, 10]


async def test_a_watch_whose_reads_are_cancelled_goes_on(
    cluster: Cluster, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    server = ConnectionInfo(server=await nursery.start(serve_cluster, cluster), default_namespace="default")
    async with open_client(connection=server) as client, client.watch("configmaps") as events:
        await cluster.create(config_map("first"))
        assert await receive(events, 1) == [("ADDED", "first")]
        for number in range(3):
            for _ in range(3):
                with trio.move_on_after(0.02):
                    await anext(events)
            await cluster.create(config_map(f"c{number}"))
            assert await receive(events, 1) == [("ADDED", f"c{number}")]
    assert sum(request.verb == "watch" for request in cluster.requests) == 1
    assert caplog.text == ""


async def test_a_watch_whose_stream_does_not_survive_cancellation_is_opened_again_without_a_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    listing = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
    opened_streams = 0

    async def respond(request: httpx.Request) -> httpx.Response:
        nonlocal opened_streams
        await trio.lowlevel.checkpoint()
        if b"watch=true" not in request.url.query:
            return ok(listing)
        opened_streams += 1
        return httpx.Response(200, stream=Chunks([None]))

    class Server(httpx.AsyncBaseTransport):
        handle_async_request = staticmethod(respond)

    async with opened(Server(), error_backoffs=[]) as client, client.watch(Resource("", "v1", "pods")) as events:
        for _ in range(5):
            with trio.move_on_after(0.1):
                await anext(events)
    assert opened_streams == 5
    assert caplog.text == ""


async def test_nobody_gets_around_a_backoff_by_cancelling_it(
    plan: FaultPlan, cluster: Cluster, autojump_clock: MockClock
) -> None:
    rule = plan.add(Fault.refuse(), watch=True)
    transport = FaultyTransport(cluster.transport(), plan)
    async with opened(transport, error_backoffs=[10, 10]) as client, client.watch("configmaps") as events:
        for _ in range(150):
            with trio.move_on_after(0.1):
                await anext(events)
    assert rule.hits == 2


async def test_a_server_that_has_forgotten_each_version_is_not_asked_all_the_time(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    plan.add(Fault.error_event(410), watch=True, times=200)  # without a delay, no virtual time would pass
    with pytest.raises(TimeoutError):
        await client.wait_for("configmaps", "one", condition="Ready", timeout=600)
    lists = [request for request in cluster.requests if request.path.endswith("/configmaps")]
    assert 10 < len(lists) / 2 < 40  # each with a watch


async def test_a_version_that_the_server_does_not_have_yet_is_listed_again(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("a"))
    plan.add(Fault.status(504, message="Too large resource version: 100, current: 7"), watch=True, times=12)
    async with client.watch("configmaps") as events:
        assert await receive(events, 1) == [("ADDED", "a")]
        with trio.move_on_after(600):
            await anext(events)
        await cluster.create(config_map("b"))
        assert await receive(events, 1) == [("ADDED", "b")]


async def test_a_list_whose_pages_expire_is_requested_as_a_whole(
    cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    for number in range(5):
        await cluster.create(config_map(f"c{number}"))
    rule = plan.add(Fault.status(410), path="continue=")
    async with opened(FaultyTransport(cluster.transport(), plan)) as client:
        kube = await client._connect()
        kube.settings.watching.page_size = 2
        async with client.watch("configmaps") as events:
            assert len(await receive(events, 5)) == 5
    assert rule.hits == 1
    assert trio.current_time() == 0


async def test_a_list_goes_on_page_by_page_though_it_is_cancelled(
    cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    for number in range(5):
        await cluster.create(config_map(f"c{number}"))
    plan.add(Fault.delay(after=0.8), verb="list")
    found: list[str] = []
    async with opened(FaultyTransport(cluster.transport(), plan)) as client:
        kube = await client._connect()
        kube.settings.watching.page_size = 1
        async with client.watch("configmaps") as events:
            for _ in range(20):
                with trio.move_on_after(1):
                    while True:
                        found.append((await anext(events)).object["metadata"]["name"])
    assert sorted(found) == [f"c{number}" for number in range(5)]


async def test_a_quiet_watch_that_is_cut_off_every_minute_goes_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    listing = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}

    class CutOff(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            await trio.sleep(60)
            raise httpx.ReadError("cut off")
            yield b""

    class Server(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await trio.lowlevel.checkpoint()
            return httpx.Response(200, stream=CutOff()) if b"watch=true" in request.url.query else ok(listing)

    async with opened(Server(), error_backoffs=[1, 1]) as client, client.watch(Resource("", "v1", "pods")) as events:
        with trio.move_on_after(3600) as scope:
            await anext(events)
    assert scope.cancelled_caught


async def test_an_object_that_cannot_be_read_any_more_is_not_deleted(autojump_clock: MockClock) -> None:
    def page(version: str, **metadata: object) -> dict[str, object]:
        items = [{"metadata": {"name": "a", "uid": "1", "resourceVersion": "1", **metadata}}]
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}

    expired = b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n'
    silence = httpx.Response(200, stream=Chunks([None]))
    answers = [ok(page("1")), httpx.Response(200, content=expired), ok(page("2", generation="x")), silence]

    class Server(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await trio.lowlevel.checkpoint()
            return answers.pop(0)

    async with opened(Server()) as client, client.watch(Resource("", "v1", "pods")) as events:
        assert await receive(events, 1) == [("ADDED", "a")]
        with trio.move_on_after(60) as scope:
            await anext(events)
    assert scope.cancelled_caught
    assert not answers


async def test_a_deletion_is_shown_once_and_of_objects_that_were_shown_only(autojump_clock: MockClock) -> None:
    def line(type: str, name: str, version: int, **metadata: object) -> bytes:
        metadata = {"name": name, "uid": name, "resourceVersion": str(version), **metadata}
        return msgspec.json.encode({"type": type, "object": {"metadata": metadata}}) + b"\n"

    lines = [
        line("ADDED", "unreadable", 2, generation="x"),
        line("DELETED", "unreadable", 3),
        line("ADDED", "a", 4),
        *[line("DELETED", "a", 5)] * 2,  # as from a server that repeats itself
        line("ADDED", "a", 6),
    ]
    page = ok({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []})
    answers = [page, httpx.Response(200, stream=Chunks([*lines, None]))]

    class Server(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await trio.lowlevel.checkpoint()
            return answers.pop(0)

    async with opened(Server()) as client, client.watch(Resource("", "v1", "pods")) as events:
        assert await receive(events, 3) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]
