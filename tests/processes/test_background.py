"""Daemons and timers of an operator that is stopped, with real threads and real signals."""

from __future__ import annotations

import signal
import time

import pytest

from tests.processes.conftest import Api, Start

OPERATOR = """
import time
import trio
import trioperator as kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.process.grace = 6
    settings.background.exit_timeout = 1

@kopf.daemon('kopfexamples', field='spec.how', value='async')
async def waiting_async(stopped, logger, **_):
    logger.info("daemon has begun")
    await stopped.wait()
    logger.info("daemon ends: %s", stopped.reason)
    return "bye"

@kopf.daemon('kopfexamples', field='spec.how', value='sync')
def waiting_sync(stopped, logger, **_):
    logger.info("daemon has begun")
    while not stopped.wait(600):
        pass
    logger.info("daemon ends: %s", stopped.reason)
    return "bye"

@kopf.daemon('kopfexamples', field='spec.how', value='endless-async')
async def endless_async(stopped, logger, **_):
    logger.info("daemon has begun")
    try:
        while True:
            await trio.sleep(10)
    finally:
        logger.info("daemon ends: %s", stopped.reason)

@kopf.daemon('kopfexamples', field='spec.how', value='endless-sync')
def endless_sync(logger, **_):
    logger.info("daemon has begun")
    while True:
        time.sleep(1)

@kopf.daemon('kopfexamples', field='spec.how', value='abandoned', cancellation_backoff=0.1, cancellation_timeout=0.1)
def abandoned(logger, **_):
    logger.info("daemon has begun")
    while True:
        time.sleep(1)

@kopf.timer('kopfexamples', interval=0.05, field='spec.how', value='timer')
def beat(logger, retry, **_):
    logger.info("daemon has begun")

@kopf.on.cleanup()
async def clean(logger, **_):
    logger.info("all is cleaned")
"""


@pytest.mark.parametrize("how", ["async", "sync"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_daemons_and_their_results_are_stored(start: Start, api: Api, how: str, number: int) -> None:
    operator = start(OPERATOR)
    api.create("one", how=how)
    operator.wait_for("daemon has begun")
    began = time.monotonic()
    assert operator.stop(number) == 0
    assert time.monotonic() - began < 6
    assert "OPERATOR_EXITING" in operator.output
    assert "Traceback" not in operator.output
    assert operator.output.index("daemon ends") < operator.output.index("all is cleaned")
    assert api.get("one")["status"] == {f"waiting_{how}/spec.how": "bye"}
    assert api.get("one")["metadata"]["finalizers"] == ["trioperator.dev/finalizer"]


@pytest.mark.parametrize("how", ["endless-async", "endless-sync", "abandoned", "timer"])
def test_daemons_that_do_not_stop_are_abandoned_within_the_grace(start: Start, api: Api, how: str) -> None:
    operator = start(OPERATOR)
    api.create("one", how=how)
    operator.wait_for("daemon has begun")
    began = time.monotonic()
    assert operator.stop() == 0
    assert time.monotonic() - began < 7
    assert "all is cleaned" in operator.output
    assert "Traceback" not in operator.output
    if how == "endless-async":
        assert "daemon ends" in operator.output
    if how == "abandoned":
        assert "did not exit in time. Leaving it orphaned." in operator.output


def test_a_second_signal_does_not_wait_for_daemons(start: Start, api: Api) -> None:
    operator = start(OPERATOR.replace("exit_timeout = 1", "exit_timeout = 100").replace("grace = 6", "grace = 1000"))
    api.create("one", how="endless-async")
    api.create("two", how="endless-sync")
    operator.wait_for("daemon has begun", count=2)
    operator.process.send_signal(signal.SIGTERM)
    operator.wait_for("Signal SIGTERM is received: the operator stops")
    assert operator.stop(signal.SIGINT) == 130  # another one, as the same one at once would count as one
    assert "daemon ends" in operator.output


def test_a_restarted_operator_spawns_its_daemons_again(start: Start, api: Api) -> None:
    first = start(OPERATOR)
    api.create("one", how="sync")
    first.wait_for("daemon has begun")
    first.stop(signal.SIGKILL)
    second = start(OPERATOR)
    second.wait_for("daemon has begun")
    assert second.stop() == 0
