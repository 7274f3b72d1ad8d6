"""Stopping of one daemon in stages, in virtual time."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.runtime.daemons.making import add, async_fn, make_daemons, sync_fn
from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.handlers.handler import TimerHandler
from trioperator._model.resource import Selector
from trioperator._runtime.daemons.daemon import Daemon
from trioperator._runtime.daemons.stopping import has_timeout, stop_in_stages, warn_of_abandoned

CANCELLED = DaemonStoppingReason.DAEMON_CANCELLED


def make(fn: Any = async_fn, **options: Any) -> Daemon:
    daemon = add(make_daemons(), fn=fn, **options)
    daemon.stop(DaemonStoppingReason.RESOURCE_DELETED)
    return daemon


def make_timer() -> Daemon:
    daemons = make_daemons()
    timer = TimerHandler(fn=async_fn, id="timer", selector=Selector.parse("widgets"), finalizer=True, interval=5)
    daemon = Daemon(daemons.state, timer, "timer", daemons)
    daemons.add(daemon, "timer")
    return daemon


async def stop(daemon: Daemon, *, ends_at: float | None = None, polling: float = 60) -> tuple[bool, float, bool]:
    """Stop a daemon; return whether it has ended, after how long, and whether its task was cancelled."""
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        if ends_at is not None:

            @nursery.start_soon
            async def end() -> None:
                await trio.sleep(ends_at)
                daemon.ended.set()

        ended = await stop_in_stages(daemon, polling=polling)
        took = trio.current_time() - began
        nursery.cancel_scope.cancel()
    is_cancelled = isinstance(daemon.canceller, trio.CancelScope) and daemon.canceller.cancel_called
    return ended, took, is_cancelled


def test_only_daemons_with_a_cancellation_timeout_are_given_up() -> None:
    async def check() -> None:
        assert has_timeout(make(cancellation_timeout=5))
        assert has_timeout(make(cancellation_timeout=0))
        assert not has_timeout(make(cancellation_backoff=5))
        assert not has_timeout(make_timer())

    trio.run(check)


async def test_a_daemon_that_has_ended_is_not_waited_for(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    daemon = make(cancellation_backoff=5, cancellation_timeout=5)
    daemon.ended.set()
    assert await stop(daemon) == (True, 0, False)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("options", "ends_at", "expected"),
    [
        ({"cancellation_backoff": 5, "cancellation_timeout": 10}, 3, (True, 3, False)),
        ({"cancellation_backoff": 5, "cancellation_timeout": 10}, 8, (True, 8, True)),
        ({"cancellation_backoff": 5, "cancellation_timeout": 10}, None, (False, 15, True)),
        ({"cancellation_timeout": 10}, 3, (True, 3, True)),
        ({"cancellation_timeout": 10}, None, (False, 10, True)),
        ({"cancellation_timeout": 0}, None, (False, 0, True)),
        ({"cancellation_backoff": 5}, 3, (True, 3, False)),
        ({"cancellation_backoff": 5}, 1000, (True, 1000, False)),
        ({}, 1000, (True, 1000, False)),
    ],
)
async def test_each_stage_takes_its_time(
    options: dict[str, float], ends_at: float | None, expected: Any, autojump_clock: MockClock
) -> None:
    assert await stop(make(**options), ends_at=ends_at) == expected


async def test_a_thread_is_signalled_at_each_stage_and_abandoned_in_the_end(autojump_clock: MockClock) -> None:
    daemon = make(sync_fn, cancellation_backoff=5, cancellation_timeout=10)
    assert await stop(daemon) == (False, 15, False)
    reason = daemon.stopper.stopped.reason
    assert reason is not None
    assert CANCELLED in reason


@pytest.mark.parametrize(("own", "reminders"), [(None, 3), (10, 6)])
async def test_a_daemon_without_a_timeout_is_polled_for(
    own: float | None, reminders: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    daemon = make(cancellation_polling=own)
    assert await stop(daemon, ends_at=65, polling=20) == (True, 65, False)
    text = f"Daemon 'daemon' is still exiting. The next check is in {own or 20} seconds."
    assert caplog.messages == ["Daemon 'daemon' is signalled to exit gracefully.", *[text] * reminders]


async def test_a_timer_is_polled_for(autojump_clock: MockClock) -> None:
    assert await stop(make_timer(), ends_at=1000) == (True, 1000, False)


async def test_stages_are_logged(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    await stop(make(cancellation_backoff=5, cancellation_timeout=10))
    assert caplog.messages == [
        "Daemon 'daemon' is signalled to exit gracefully.",
        "Daemon 'daemon' is signalled to exit by force.",
    ]


async def test_an_abandoned_daemon_is_warned_of(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    daemon = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_abandoned(daemon)
    [warning] = caught
    assert (warning.category, str(warning.message)) == (ResourceWarning, "Daemon 'daemon' did not exit in time.")
    assert caplog.messages == ["Daemon 'daemon' did not exit in time. Leaving it orphaned."]


async def test_a_warning_that_is_an_error_is_only_logged(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_abandoned(make())
    assert "Leaving it orphaned" in caplog.text
