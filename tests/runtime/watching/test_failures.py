"""Tests for :mod:`trioperator._runtime.watching.failures`: backoffs, warnings, and what others see of them."""

from __future__ import annotations

import logging
import math

import pytest
import trio
from trio.testing import MockClock

from trioperator._kube.objects import BrokenObject, parse_object
from trioperator._kube.outage import Outage
from trioperator._runtime.watching.failures import BrokenObjects, Failures, WatchStatus
from trioperator.errors import ApiError, ConnectionLostError, TrioperatorError

PATH = "/apis/example.com/v1/widgets"
LOST = ConnectionLostError("it is gone")


def fail(failures: Failures, status: WatchStatus, error: TrioperatorError = LOST, outage: Outage | None = None) -> None:
    failures.add()
    failures.report(error, status, 1.0, is_listing=True, outage=outage or Outage())


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.levelno >= logging.WARNING for record in caplog.records)


@pytest.fixture
def failures() -> Failures:
    return Failures(PATH, consequence="Nothing is called.", can_do_without=False)


async def test_the_age_is_that_of_the_last_stream(failures: Failures, autojump_clock: MockClock) -> None:
    assert failures.age == -math.inf
    failures.open(trio.current_time())
    await trio.sleep(5)
    assert failures.age == 5
    failures.begin()
    assert failures.age == -math.inf


async def test_a_first_list_that_is_refused_three_times_is_unlistable(failures: Failures) -> None:
    status = WatchStatus()
    for count in range(1, 4):
        assert not status.unlistable.is_set()
        fail(failures, status, ApiError.of("no", status=403))
        assert failures.are_long == (count == 3)
    assert status.unlistable.is_set()
    assert status.is_refused


async def test_a_first_list_that_fails_for_minutes_is_unlistable(failures: Failures) -> None:
    status = WatchStatus()
    for _ in range(9):
        fail(failures, status)
    assert not status.unlistable.is_set()
    fail(failures, status)
    assert status.unlistable.is_set()
    assert not status.is_refused


async def test_the_first_failure_and_each_tenth_are_warned_of(
    failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    status = WatchStatus()
    counts = []
    for _ in range(21):
        fail(failures, status)
        counts.append(warnings(caplog))
    assert counts == [1] * 9 + [2] * 10 + [3] * 2
    assert "Cannot list" in caplog.text
    assert "Nothing is called." in caplog.text


async def test_a_right_that_is_not_needed_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    failures, status = Failures(PATH, consequence="", can_do_without=True), WatchStatus()
    for _ in range(30):
        fail(failures, status, ApiError.of("no", status=403))
    assert warnings(caplog) == 1


async def test_of_many_watches_that_lose_the_server_one_warns(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    for _ in range(5):
        status = WatchStatus()
        status.sync()
        fail(Failures(PATH, consequence="", can_do_without=False), status, outage=outage)
    assert warnings(caplog) == 1


@pytest.mark.parametrize(("synced", "text"), [(True, "goes on"), (False, "begins")])
async def test_the_end_of_what_was_warned_of_is_logged(
    failures: Failures, caplog: pytest.LogCaptureFixture, synced: bool, text: str
) -> None:
    caplog.set_level(logging.INFO)
    status = WatchStatus()
    if synced:
        status.sync()
    fail(failures, status)
    failures.end(status)
    assert any(text in record.getMessage() for record in caplog.records if record.levelno == logging.INFO)


async def test_delays_grow_and_follow_the_server(failures: Failures) -> None:
    failures.add()
    assert failures.delay(LOST) <= 0.7
    assert failures.delay(LOST, first=0.1) == 0.1
    for _ in range(20):
        failures.add()
    assert 20 <= failures.delay(LOST) <= 40
    assert 100 <= failures.delay(ApiError.of("no", status=429, retry_after=100.0)) <= 125
    failures.clear()
    assert failures.count == 0


async def test_restarts_count_once_there_was_a_watch() -> None:
    status = WatchStatus()
    status.count_restart("ended")
    status.sync()
    status.count_restart("ended")
    status.count_restart("ended")
    assert status.restarts == {"ended": 2}


def test_an_object_that_cannot_be_read_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    broken = BrokenObjects(PATH)
    one, other = (parse_object(b'{"metadata":{"name":"%s","uid":"%s"}}' % (name, name)) for name in (b"a", b"b"))
    for obj in (one, other, one):
        broken.report(BrokenObject(obj, "too deep"))
    assert warnings(caplog) == 2
    broken.report(BrokenObject(None, "odd"))
    assert PATH in caplog.records[-1].getMessage()


def test_watches_are_blind_after_five_in_a_row() -> None:
    failures = Failures("/widgets", consequence="", can_do_without=False)
    for blind in (True, True, True, True, False, True, True, True, True):
        failures.add(is_blind=blind)
        assert not failures.are_blind
    failures.add(is_blind=True)
    assert failures.are_blind
    failures.clear()
    assert not failures.are_blind


async def test_a_kind_that_is_listed_instead_of_watched_is_said_to_be_handled_late(
    failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    refused, status = ApiError.of("no", status=403), WatchStatus()
    for _ in range(10):
        failures.add(is_blind=True)
        failures.report(refused, status, 1.0, is_listing=False, outage=Outage())
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(texts) == 2
    assert texts[0].endswith("Nothing is called.")
    assert texts[1].endswith("changes are handled late.")
