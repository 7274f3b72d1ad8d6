"""Tests for :mod:`trioperator._supervisor.activities`: what startup and cleanup handlers do, and their errors."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench
from trioperator.apiserver import Cluster

on = trioperator.on


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    return Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())


async def test_a_startup_handler_that_fails_permanently_keeps_the_operator_from_starting(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cleaned: list[bool] = []

    @on.startup(registry=bench.registry)
    async def start(**_: Any) -> None:
        raise trioperator.PermanentError("no license")

    @on.cleanup(registry=bench.registry)
    async def clean(**_: Any) -> None:
        cleaned.append(True)

    bench.cluster.requests.clear()
    with pytest.raises(trioperator.ActivityError, match="no license"):
        await trioperator.operator(
            registry=bench.registry,
            connection=trioperator.ConnectionInfo(server="http://embedded"),
            transport=bench.cluster.transport(),
        )
    assert len(bench.cluster.requests) == 0
    assert cleaned == [True]
    assert "The operator has stopped." not in caplog.messages  # the error says more


async def test_a_startup_handler_that_always_fails_ends_the_operator_with_its_error(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[float] = []

    @on.startup(registry=bench.registry)
    async def start(**_: Any) -> None:
        calls.append(trio.current_time())
        raise OSError("no database")

    with pytest.RaisesGroup(pytest.RaisesExc(trioperator.ActivityError, match="no database")):
        async with bench.running():
            raise AssertionError
    assert len(calls) == 10


@pytest.mark.parametrize("error", [AttributeError, ImportError, NameError, TypeError, trioperator.ConfigError])
async def test_an_error_of_the_programmer_in_a_startup_handler_ends_the_operator_at_once(
    error: type[Exception], bench: Bench, autojump_clock: MockClock
) -> None:
    attempts: list[int] = []

    @on.startup(registry=bench.registry)
    async def configure(retry: int, **_: Any) -> None:
        attempts.append(retry)
        raise error("settings.posting.levle")

    with pytest.raises(trioperator.ActivityError, match=r"levle"):
        await trioperator.operator(
            registry=bench.registry,
            connection=trioperator.ConnectionInfo(server="http://embedded"),
            transport=bench.cluster.transport(),
        )
    assert attempts == [0]


async def test_a_startup_handler_that_says_how_errors_are_treated_is_retried(
    bench: Bench, autojump_clock: MockClock
) -> None:
    attempts: list[int] = []

    @on.startup(registry=bench.registry, errors=trioperator.ErrorsMode.TEMPORARY)
    async def configure(retry: int, **_: Any) -> None:
        attempts.append(retry)
        if retry < 2:
            raise TypeError("not yet")

    async with bench.running():
        assert attempts == [0, 1, 2]


async def test_startup_handlers_are_retried(bench: Bench, autojump_clock: MockClock) -> None:
    times: list[float] = []

    @on.startup(registry=bench.registry)
    async def start(retry: int, **_: Any) -> None:
        times.append(trio.current_time())
        if retry < 2:
            raise trioperator.TemporaryError("not yet", delay=30)

    async with bench.running():
        assert [round(t - times[0]) for t in times] == [0, 30, 60]


async def test_a_cleanup_handler_whose_retry_lies_beyond_the_grace_is_given_up_at_once(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @on.cleanup(id="first", registry=bench.registry)
    async def first(**_: Any) -> None:
        calls.append("first")
        raise OSError("the network is down")  # retried in 60 seconds, by default

    @on.cleanup(id="second", registry=bench.registry)
    async def second(retry: int, **_: Any) -> None:
        calls.append("second")
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=5)

    began = trio.current_time()
    with pytest.RaisesGroup(pytest.RaisesExc(trioperator.ActivityError, match="first: OSError: the network is down$")):
        async with bench.running():
            pass
    assert calls == ["first", "second", "second"]
    assert trio.current_time() - began < 10
    assert "Activity 'first' is given up: it would be retried in 60 seconds, and the operator ends in" in caplog.text
