"""Tests for :mod:`trioperator._runtime.watching.callbacks`."""

from __future__ import annotations

from trioperator._runtime.watching.callbacks import Callbacks


def test_nobody_needs_to_be_told_and_nothing_is_written_unless_somebody_says_so() -> None:
    callbacks = Callbacks()
    for callback in (callbacks.rewind, callbacks.restored, callbacks.announce, callbacks.unserved):
        callback()
    callbacks.refused(ValueError())
    assert callbacks.newest_written() == -1
