"""Tests for :mod:`trioperator.apiserver.writing.followups`: all follow-ups run, in the order of their changes."""

from __future__ import annotations

from functools import partial

import pytest

from trioperator.apiserver.writing.followups import FollowUps


def test_followups_run_in_order_after_those_that_are_queued() -> None:
    followups, done = FollowUps(), list[str]()

    def cause() -> None:
        done.append("one")
        followups.add(partial(done.append, "three"))
        followups.run()  # a follow-up writes, too, and its write runs follow-ups

    followups.add(cause)
    followups.add(partial(done.append, "two"))
    assert done == []
    followups.run()
    assert done == ["one", "two", "three"]
    followups.run()
    assert len(done) == 3


def test_deferred_followups_are_like_all_others_by_default() -> None:
    followups, done = FollowUps(), list[str]()
    followups.defer(partial(done.append, "one"))
    followups.add(partial(done.append, "two"))
    followups.run()
    assert done == ["one", "two"]


def test_deferred_followups_wait_until_they_are_run() -> None:
    followups, done = FollowUps(), list[str]()
    followups.is_prompt = False

    def cause() -> None:
        done.append("two")
        followups.defer(partial(done.append, "three"))

    followups.defer(cause)
    followups.add(partial(done.append, "one"))
    followups.run()
    assert done == ["one"]
    followups.run_deferred()
    assert done == ["one", "two", "three"]


def test_a_followup_that_fails_is_logged_and_does_not_prevent_the_next_ones(caplog: pytest.LogCaptureFixture) -> None:
    followups, done = FollowUps(), list[str]()

    def fail() -> None:
        raise LookupError

    followups.add(fail)
    followups.add(partial(done.append, "one"))
    followups.run()
    assert done == ["one"]
    assert "failed to follow up a write" in caplog.text
    assert "LookupError" in caplog.text
