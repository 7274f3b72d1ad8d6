"""What the fixtures of all tests do for the run itself."""

from __future__ import annotations

import socket

import pytest


def test_workers_send_what_they_ask_for_each_test_at_once(pytestconfig: pytest.Config) -> None:
    if not hasattr(pytestconfig, "workerinput") or not pytestconfig.getoption("reruns", None):
        pytest.skip("only where pytest-xdist runs it, and what fails is asked once more")
    questions: socket.socket = pytestconfig.failures_db.sock  # type: ignore[attr-defined]
    assert questions.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
