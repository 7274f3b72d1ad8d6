"""Pages of lists, limited in bytes as well."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.kube.conftest import Memory
from trioperator._kube.api_client import open_client
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._runtime.watching.paging import MAX_PAGE, Pager
from trioperator.errors import ConnectionLostError
from trioperator.settings import OperatorSettings

INFO = ConnectionInfo(server="http://cluster")
MB = 1_000_000


class Server:
    """A list of objects of these sizes, in pages."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.limits: list[int] = []

    def respond(self, request: httpx.Request) -> httpx.Response:
        start = int(request.url.params.get("continue", "0"))
        limit = int(request.url.params.get("limit", len(self.sizes)))
        self.limits.append(limit)
        end = min(start + limit, len(self.sizes))
        metadata: dict[str, Any] = {"resourceVersion": "1"}
        if end < len(self.sizes):
            metadata["continue"] = str(end)
        items = [{"metadata": {"name": str(n), "x": "x" * self.sizes[n]}} for n in range(start, end)]
        return httpx.Response(200, content=json.dumps({"kind": "List", "metadata": metadata, "items": items}))

    async def list(self, times: int = 1, settings: OperatorSettings | None = None) -> list[str]:
        """Return the names of all objects, in pages."""
        settings = settings or OperatorSettings()
        async with open_client(lambda: INFO, settings=settings, transport=Memory(self.respond)) as client:
            pager = Pager(client, "/x")
            names: list[str] = []
            for _ in range(times):
                token = ""
                while True:
                    page = await pager.get(token)
                    assert page.size < MAX_PAGE or len(page.items) == 1
                    names += [obj.name for obj in page.items]
                    token = page.next
                    if not token:
                        break
            assert (pager.take_count(), pager.take_count()) == (len(names), 0)
        return names


def names(count: int) -> list[str]:
    return [str(number) for number in range(count)]


async def test_small_objects_come_in_pages_of_the_size_in_the_settings() -> None:
    server = Server([1000] * 1200)
    assert await server.list() == names(1200)
    assert server.limits == [500, 500, 500]


async def test_a_page_that_is_too_large_is_requested_again_with_fewer_objects() -> None:
    server = Server([MB] * 70)
    assert await server.list(times=2) == names(70) * 2
    assert server.limits[:4] == [500, 62, 7, 8]
    assert set(server.limits[4:]) == {8}  # also in the next list: what was learnt is not forgotten


async def test_pages_become_larger_again_after_big_objects() -> None:
    server = Server([1000] * 10 + [20 * MB, 20 * MB] + [1000] * 2000)
    assert await server.list() == names(2012)
    assert max(server.limits[-3:]) == 500
    assert len(server.limits) < 25


async def test_pages_that_do_not_arrive_in_time_by_a_slow_link_become_smaller(autojump_clock: MockClock) -> None:
    """500 objects of 20 kB take 10 minutes, and a request may take 5."""
    server = Server([20_000] * 1000)

    async def respond(request: httpx.Request) -> httpx.Response:
        response = server.respond(request)
        await trio.sleep(len(response.content) / 16_000)
        return response

    async with open_client(lambda: INFO, settings=OperatorSettings(), transport=Memory(respond)) as client:
        pager = Pager(client, "/x")
        with pytest.raises(ConnectionLostError, match="no response within 300 s"):
            await pager.get("")
        listed, token = list[str](), ""
        while not listed or token:
            page = await pager.get(token)
            listed, token = listed + [obj.name for obj in page.items], page.next
    assert listed == names(1000)
    assert server.limits[:2] == [500, 62]
    assert len(server.limits) < 25


async def test_one_object_may_be_larger_than_a_page() -> None:
    server = Server([100, 40 * MB, 100])
    assert await server.list() == names(3)


async def test_an_object_above_the_limit_for_responses_is_an_error() -> None:
    settings = OperatorSettings()
    settings.networking.response_limit = 10_000
    server = Server([100, 20_000])
    with pytest.raises(ConnectionLostError, match=r"larger than 10000 bytes: raise settings.networking.response_limit"):
        await server.list(settings=settings)


async def test_the_limit_for_responses_limits_pages_too() -> None:
    settings = OperatorSettings()
    settings.networking.response_limit = 10_000
    server = Server([1000] * 50)
    assert await server.list(settings=settings) == names(50)


async def test_the_size_in_the_settings_is_read_for_each_page() -> None:
    settings = OperatorSettings()
    settings.watching.page_size = 3
    server = Server([10] * 7)
    assert await server.list(settings=settings) == names(7)
    assert server.limits == [3, 3, 3]
