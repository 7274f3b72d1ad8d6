"""Tests for :mod:`trioperator.testing.library_routes`: from everywhere to the transport of the operator."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest
import trio
from trio.testing import MockClock

from trioperator._concurrency.threads import run_in_thread
from trioperator.apiserver import Cluster
from trioperator.testing.library_routes import HOST, Route, find_route, routing_to


class Slow(httpx.AsyncBaseTransport):
    """Transport whose responses take seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Wait, and return what was requested."""
        await trio.sleep(self.seconds)
        return httpx.Response(200, content=request.url.raw_path)


async def fetch(route: Route, target: str = "/api") -> tuple[int, bytes]:
    """Return a response, as Trio sees it."""
    answer = await route.send("GET", target, [], b"")
    return answer.status, await answer.receive()


def find() -> Route:
    """Return the way in this context."""
    route = find_route(HOST)
    assert route is not None
    return route


async def test_only_the_api_server_is_reached_and_only_in_the_context(cluster: Cluster) -> None:
    assert find_route(HOST) is None
    with routing_to(cluster.transport()):
        assert (await fetch(find()))[0] == 200
        assert find_route("example.com") is None
        with routing_to(None):
            assert find_route(HOST) is not None
    assert find_route(HOST) is None


async def test_a_thread_waits_in_virtual_time(autojump_clock: MockClock) -> None:
    with routing_to(Slow(100)):
        start = trio.current_time()
        found = await run_in_thread(lambda: find().call(fetch, find()), limiter=trio.CapacityLimiter(1))
    assert found == (200, b"/api")
    assert trio.current_time() - start == 100


async def test_threads_that_nobody_knows_can_send(cluster: Cluster) -> None:
    found = []
    with routing_to(cluster.transport()):
        route = find()
        thread = threading.Thread(target=lambda: found.append(route.call(fetch, route)))
        thread.start()
        await trio.to_thread.run_sync(thread.join)
    assert found[0][0] == 200


async def test_a_sync_function_in_an_async_one_gets_its_response_at_once(cluster: Cluster) -> None:
    with routing_to(cluster.transport()):
        status, body = find().call(fetch, find(), "/version")
    assert status == 200
    assert b"gitVersion" in body


async def test_what_blocks_the_loop_cannot_wait_for_it() -> None:
    waiting = trio.Event()
    with routing_to(Slow(1)), pytest.raises(httpx.ConnectError, match="while the event loop is blocked"):
        find().call(fetch, find())
    with routing_to(Slow(0)), pytest.raises(httpx.ConnectError):
        find().call(waiting.wait)
    assert waiting.statistics().tasks_waiting == 0


async def test_errors_of_a_call_are_raised_where_it_was_made() -> None:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise LookupError("x")

    with routing_to(Slow(0)):
        route = find()
        with pytest.raises(LookupError):
            route.call(fail)
        with pytest.raises(LookupError):
            await run_in_thread(lambda: route.call(fail), limiter=trio.CapacityLimiter(1))


async def test_a_loop_of_asyncio_in_a_thread_waits_without_being_blocked(autojump_clock: MockClock) -> None:
    async def both() -> list[tuple[int, bytes]]:
        route = find()
        return await asyncio.gather(*(route.wait(fetch, route, f"/{number}") for number in range(2)))

    with routing_to(Slow(100)):
        found = await run_in_thread(lambda: asyncio.run(both()), limiter=trio.CapacityLimiter(1))
    assert found == [(200, b"/0"), (200, b"/1")]


def test_a_loop_of_asyncio_that_outlives_the_run_gets_an_error() -> None:
    errors, begun = list[Exception](), threading.Event()

    async def send(route: Route) -> None:
        try:
            await route.wait(fetch, route)
        except httpx.ConnectError as error:
            errors.append(error)

    async def main() -> threading.Thread:
        with routing_to(Waiting(begun)):
            thread = threading.Thread(target=asyncio.run, args=[send(find())])
            thread.start()
            await trio.to_thread.run_sync(begun.wait)
        return thread

    trio.run(main).join()
    assert "The operator has ended" in str(errors[0])


class Waiting(httpx.AsyncBaseTransport):
    """Transport that never responds."""

    def __init__(self, begun: threading.Event) -> None:
        self.begun = begun

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Note the request, and wait."""
        self.begun.set()
        await trio.sleep_forever()
        raise AssertionError
