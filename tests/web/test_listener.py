"""Tests for :mod:`trioperator.web.listener`, on real sockets."""

from __future__ import annotations

import contextlib
import errno
import logging
import subprocess
import sys

import pytest
import trio

from tests.web.test_server import CLOSE, GET, serving, talk
from trioperator.backoff import Backoff
from trioperator.web import listener


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


def test_webhooks_are_served_without_the_web_server_of_the_other_endpoints() -> None:
    code = (
        "import sys, trioperator.web.webhook_listener, trioperator.web.admission_app;"
        "print([name for name in sys.modules if name.partition('.')[0] in ('hypercorn', 'h11', 'h2', 'wsproto')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
