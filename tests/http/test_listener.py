"""Tests for :mod:`trioperator._http.listener`, on real sockets."""

from __future__ import annotations

import contextlib
import errno
import logging
import resource

import pytest
import trio

from tests.http.serving import CLOSE, GET, serving, talk
from trioperator._concurrency.backoff import Backoff
from trioperator._http import listener
from trioperator._http.listener import _Sparing, limit_connections, raise_file_limit


async def test_a_server_that_fails_is_restarted_at_the_same_port(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "_RESTART", Backoff(initial=0.02, maximum=1))
    monkeypatch.setattr(listener, "_ACCEPTORS", 1)
    accept = trio.SocketListener.accept
    failures = iter(range(3))

    async def fail(self: trio.SocketListener) -> trio.SocketStream:
        if next(failures, None) is not None:
            raise OSError(errno.EINVAL, "the accept loop")
        return await accept(self)

    monkeypatch.setattr(trio.SocketListener, "accept", fail)
    async with serving() as endpoint:
        with trio.fail_after(60):
            while True:
                with contextlib.suppress(OSError):
                    if await talk(endpoint, GET + CLOSE):
                        break
                await trio.sleep(0.02)
    assert [record.message.split(" at ")[0] for record in caplog.records if record.levelno >= logging.WARNING] == [
        "The web server"
    ] * 3


def test_servers_leave_files_for_all_else() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        webhooks, others = limit_connections(1000, share=0.7), limit_connections(200, share=0.1)
        assert webhooks + 3 * others <= 1024 - 200
        assert limit_connections(10, share=0.7) == 10
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        assert limit_connections(1000, share=0.7) == 16
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(hard, 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_that_cannot_be_accepted_are_one_line_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparing = _Sparing()
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    records = [logging.makeLogRecord({"msg": "accept", "exc_info": (ValueError, ValueError(), None)}) for _ in range(5)]
    assert [sparing.filter(record) for record in records[:3]] == [True, False, False]
    now[0] += 61
    assert [sparing.filter(record) for record in records[3:]] == [True, False]
    assert all(record.exc_info is None for record in records)


async def test_a_server_spares_the_log_of_connections_that_cannot_be_accepted() -> None:
    log = logging.getLogger("trio.serve_listeners")
    log.removeFilter(listener._sparing)
    async with serving():
        assert listener._sparing in log.filters
