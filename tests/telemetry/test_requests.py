"""Tests for :mod:`trioperator._telemetry.requests`: what is counted of requests, and of those that are sent again."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

import trioperator
from trioperator._kube.api_client import open_client
from trioperator._telemetry.instruments import Instruments
from trioperator._telemetry.requests import CountingClient
from trioperator._telemetry.statistics import Statistics
from trioperator.apiserver import Cluster
from trioperator.errors import ApiError, ConnectionLostError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

INFO = trioperator.ConnectionInfo(server="http://embedded:80/base")


async def test_requests_are_counted_with_their_codes_and_sizes(cluster: Cluster) -> None:
    settings = trioperator.OperatorSettings()
    settings.networking.error_backoffs = ()
    plan, instruments = FaultPlan(), Instruments([])
    transport = FaultyTransport(cluster.transport(), plan)
    async with open_client(lambda: INFO, settings=settings, transport=transport) as plain:
        client = instruments.wrap_client(plain)
        assert isinstance(client, CountingClient)
        assert isinstance(client.fenced(lambda: None), CountingClient)
        for fault, error in ((Fault.status(404), ApiError), (Fault.refuse(), ConnectionLostError)):
            plan.add(fault, times=1)
            with pytest.raises(error):
                await client.get("/version")
        plan.add(Fault.answer(201, b"{}"), times=1)
        await client.fenced(lambda: None).post("/any", {"a": 1})
    instruments.fold()
    get, post = (instruments.statistics.requests[method, "embedded:80"] for method in ("GET", "POST"))
    assert (get.codes, post.codes) == ({"404": 1, "<error>": 1}, {"201": 1})
    assert sum(get.seconds.counts) == 2
    assert sum(get.received.counts) == sum(get.sent.counts) == 1  # the other one has never arrived
    assert get.received.sum > 0
    assert (get.sent.sum, post.sent.sum, post.received.sum) == (0, 7, 2)
    assert get.retries == post.retries == {}


async def test_retries_are_counted_by_what_has_failed(cluster: Cluster, autojump_clock: MockClock) -> None:
    settings = trioperator.OperatorSettings()
    settings.networking.error_backoffs = (1, 1, 1)
    plan, statistics = FaultPlan(), Statistics()
    for fault in (Fault.status(503), Fault.refuse(), Fault.status(503)):
        plan.add(fault, times=1)
    info = trioperator.ConnectionInfo(server="http://embedded:80")
    transport = FaultyTransport(cluster.transport(), plan)
    async with open_client(lambda: info, settings=settings, transport=transport) as plain:
        await CountingClient(plain, statistics).get("/version")
    statistics.fold()
    requests = statistics.requests["GET", "embedded:80"]
    assert requests.retries == {"503": 2, "<error>": 1}
    assert sum(requests.codes.values()) == 4
