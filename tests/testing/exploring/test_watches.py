"""Tests for :mod:`trioperator.testing.exploring.watches`: what an operator misses while its watches are cut."""

from __future__ import annotations

import httpx
import pytest
import trio
from trio.testing import MockClock

from trioperator.apiserver import Cluster
from trioperator.testing.exploring.watches import WatchTransport
from trioperator.testing.rights import handler_at_work

URL = "http://cluster/api/v1/configmaps"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


async def test_a_watch_breaks_with_its_next_event_and_is_not_opened_again(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    transport = WatchTransport(cluster.transport(), set())
    async with httpx.AsyncClient(transport=transport) as http:
        async with http.stream("GET", URL, params={"watch": "1"}) as response:
            lines = response.aiter_lines()
            await cluster.create(CONFIG_MAP)
            assert '"a"' in await anext(lines)
            transport.is_cut = True
            await cluster.delete("configmaps", "a")
            with pytest.raises(httpx.ReadError):
                await anext(lines)
        assert transport.heard == {"configmaps"}
        for params in ({"watch": "1"}, {}):
            with pytest.raises(httpx.ConnectError):
                await http.get(URL, params=params)
        transport.is_cut = False
        assert (await http.get(URL)).is_success


async def test_handlers_read_as_always(cluster: Cluster, autojump_clock: MockClock) -> None:
    transport = WatchTransport(cluster.transport(), set())
    transport.is_cut = True
    token = handler_at_work.set("create_fn")
    async with httpx.AsyncClient(transport=transport) as http:
        assert (await http.get(URL)).is_success
    handler_at_work.reset(token)


async def test_there_are_no_bookmarks(cluster: Cluster, autojump_clock: MockClock) -> None:
    transport = WatchTransport(cluster.transport(), set())
    async with httpx.AsyncClient(transport=transport) as http:
        params = {"watch": "1", "allowWatchBookmarks": "true"}
        async with http.stream("GET", URL, params=params, timeout=None) as response:
            with trio.move_on_after(1000):
                assert [line async for line in response.aiter_lines()] == []
    assert not transport.heard
