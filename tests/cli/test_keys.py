"""Tests for :mod:`trioperator.cli.keys`."""

from __future__ import annotations

import io
import os
import sys
import termios
import time

import pytest

from trioperator.cli.keys import reading_keys


def test_a_key_is_read_without_enter_and_the_terminal_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = os.openpty()
    with os.fdopen(follower) as terminal, os.fdopen(leader, "wb", buffering=0) as keyboard:
        monkeypatch.setattr(sys, "stdin", terminal)
        before = termios.tcgetattr(follower)
        with reading_keys() as read:
            assert read(0) == ""
            keyboard.write(b"q")
            assert read(60) == "q"
        assert termios.tcgetattr(follower) == before


def test_without_a_terminal_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("q"))
    began = time.monotonic()
    with reading_keys() as read:
        assert read(0.05) == ""
    assert time.monotonic() - began >= 0.05
