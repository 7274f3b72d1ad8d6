"""Tests for :mod:`trioperator._kube.outage`."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from trioperator._kube.outage import Outage


def test_the_first_one_reports_an_outage_until_it_ends() -> None:
    outage, first, second = Outage(), object(), object()
    assert [outage.claim(each) for each in (first, second, first)] == [True, False, True]
    outage.end()
    assert [outage.claim(each) for each in (second, first)] == [True, False]


async def test_one_watch_of_an_api_group_checks_the_server(autojump_clock: MockClock) -> None:
    outage, doubted = Outage(), trio.current_time()
    await trio.sleep(1)
    assert outage.claim_check("/apis/example.com/v1/widgets", since=doubted)
    assert not outage.claim_check("/apis/example.com/v1/gadgets", since=doubted)
    assert outage.claim_check("/api/v1/pods", since=doubted)
    await trio.sleep(1)
    assert outage.claim_check("/apis/example.com/v1/gadgets", since=trio.current_time())


async def test_waits_end_when_the_server_responds_again(autojump_clock: MockClock) -> None:
    outage, began, ends = Outage(), trio.current_time(), list[float]()

    async def wait(seconds: float) -> None:
        await outage.wait(seconds)
        ends.append(trio.current_time() - began)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 1)
        nursery.start_soon(wait, 20)
        await trio.sleep(5)
        outage.end_waits()
        nursery.start_soon(wait, 10)
    assert ends == [1, 5, 15]


async def test_one_request_at_a_time_warns_that_it_does_not_reach_the_server(autojump_clock: MockClock) -> None:
    outage = Outage()
    assert [outage.claim_warning() for _ in range(3)] == [True, False, False]
    await trio.sleep(1)
    assert [outage.claim_warning() for _ in range(3)] == [True, False, False]
