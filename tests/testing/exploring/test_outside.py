"""Tests for :mod:`trioperator.testing.exploring.outside`: nothing gets out, and nothing hangs."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time

import pytest
import trio

from trioperator.testing.exploring.outside import Deadline, OutsideCallError, describe_path, refuse_outside_calls
from trioperator.testing.rights import handler_at_work


def test_connections_are_refused_in_the_context_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        address = server.getsockname()
        with refuse_outside_calls() as refused, pytest.raises(OutsideCallError, match="plays do not reach"):
            client.connect(address)
        assert len(refused) == 1
        assert f"connects to 127.0.0.1:{address[1]} (tests/" in refused[0]
        assert "test_outside.py:" in refused[0]
        client.connect(address)


def test_names_are_not_looked_up() -> None:
    with refuse_outside_calls() as refused, pytest.raises(OutsideCallError):
        socket.getaddrinfo("db.example.com", 5432)
    assert "looks up db.example.com" in refused[0]


def test_programs_of_handlers_are_refused() -> None:
    token = handler_at_work.set("create_fn")
    try:
        with refuse_outside_calls() as refused, pytest.raises(OutsideCallError, match="Handler 'create_fn' starts"):
            subprocess.run([sys.executable, "-c", ""], check=True)
    finally:
        handler_at_work.reset(token)
    assert len(refused) == 1


def test_files_of_libraries_are_no_places_of_users() -> None:
    assert describe_path(trio.__file__, 1) is None
    assert describe_path("/project/.venv/bin/trioperator", 1) is None
    assert describe_path(__file__, 7) is not None


def test_what_waits_for_ever_is_cancelled_and_its_thread_found() -> None:
    deadline, go_on = Deadline(0.05, on_blocked=print), threading.Event()

    async def main() -> None:
        with trio.CancelScope() as scope, deadline.guard(scope):
            await trio.to_thread.run_sync(go_on.wait, abandon_on_cancel=True)

    trio.run(main)
    go_on.set()
    assert deadline.place is not None


def test_a_loop_that_is_blocked_is_reported_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trioperator.testing.exploring.outside._GRACE", 0.05)
    places: list[str | None] = []
    deadline = Deadline(0.05, on_blocked=places.append)

    def block() -> None:
        while not places:
            time.sleep(0.001)

    async def main() -> None:
        with trio.CancelScope() as scope, deadline.guard(scope):
            block()
            await trio.lowlevel.checkpoint()

    trio.run(main)
    assert len(places) == 1
    assert "test_outside.py:" in str(places[0])


class PassingClock(trio.abc.Clock):
    """A clock on which time has passed, whenever somebody looks at it."""

    def __init__(self) -> None:
        self.looks = 0

    def start_clock(self) -> None:
        """Do nothing."""

    def current_time(self) -> float:
        """Return a later time than before."""
        self.looks += 1
        return float(self.looks)

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return for how long nothing is due."""
        return 999.0


def test_what_goes_on_has_its_seconds_of_the_processor_however_long_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    deadline, reads = Deadline(0.001, on_blocked=print), list[float]()

    async def main() -> None:
        looked_often, token = trio.Event(), trio.lowlevel.current_trio_token()

        def process_time() -> float:
            reads.append(0.0)
            if len(reads) == 5:
                token.run_sync_soon(looked_often.set)
            return 0.0

        monkeypatch.setattr("trioperator.testing.exploring.outside.time.process_time", process_time)
        with trio.CancelScope() as scope, deadline.guard(scope):
            await looked_often.wait()
        assert not scope.cancelled_caught

    trio.run(main, clock=PassingClock())
    assert deadline.place is None


def test_what_ends_in_time_is_left_alone() -> None:
    deadline = Deadline(60, on_blocked=print)

    async def main() -> None:
        with trio.CancelScope() as scope, deadline.guard(scope):
            await trio.lowlevel.checkpoint()
        assert not scope.cancelled_caught

    trio.run(main)
    assert deadline.place is None
