"""The progress of one unfinished cause."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.handling.factory import change_handler
from trioperator._handling.calls.handler_state import HandlerState
from trioperator._handling.handlers.handler import ChangeHandler, Reason
from trioperator._runtime.progress.states import CauseProgress

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def after(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def state(**fields: Any) -> HandlerState:
    return HandlerState(started=NOW, **{"purpose": "create", **fields})


def handlers(*ids: str) -> list[ChangeHandler]:
    return [change_handler(id=id) for id in ids]


def test_nothing_is_to_be_stored_at_first() -> None:
    progress = CauseProgress(Reason.CREATE)
    assert (progress.states, progress.save_at) == ({}, None)


def test_it_has_states_of_its_own() -> None:
    states = {"a": state()}
    progress = CauseProgress(Reason.CREATE, states)
    progress.move("a", state(retries=1))
    assert progress.states["a"].retries == 1
    assert states["a"].retries == 0


def test_the_next_cause_takes_over_when_to_save_and_the_interruptions_but_no_states() -> None:
    before = CauseProgress(Reason.CREATE, {"a": state()})
    before.plan_save(7)
    before.count_interruption("a", interrupted=True)
    progress = CauseProgress(Reason.UPDATE, before=before)
    assert (progress.purpose, progress.states, progress.save_at) == (Reason.UPDATE, {}, 7)
    assert progress.interruptions("a") == 1


def test_interruptions_are_counted_in_a_row_for_each_handler() -> None:
    progress = CauseProgress(Reason.CREATE)
    for _ in range(2):
        progress.count_interruption("a", interrupted=True)
    progress.count_interruption("b", interrupted=True)
    assert (progress.interruptions("a"), progress.interruptions("b"), progress.interruptions("c")) == (2, 1, 0)
    progress.count_interruption("a", interrupted=False)
    assert (progress.interruptions("a"), progress.interruptions("b")) == (0, 1)
    progress.count_interruption("a", interrupted=False)
    assert progress.interruptions("a") == 0


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, None),
        ({"a": {"success": True}, "b": {"failure": True}}, None),
        ({"a": {}, "b": {"delayed": after(5)}}, 0.0),
        ({"a": {"delayed": after(8)}, "b": {"delayed": after(5)}}, 5.0),
        ({"a": {"delayed": after(8)}, "b": {"success": True}}, 8.0),
        ({"a": {"delayed": after(-8)}}, 0.0),
    ],
)
def test_the_next_handler_that_has_not_ended_is_waited_for(states: Any, expected: float | None) -> None:
    progress = CauseProgress(Reason.CREATE, {id: state(**fields) for id, fields in states.items()})
    assert progress.wait(handlers(*states), now=NOW) == expected


def test_only_the_given_handlers_are_waited_for() -> None:
    progress = CauseProgress(Reason.CREATE, {"a": state(success=True), "b": state(delayed=after(5))})
    assert progress.wait(handlers("a"), now=NOW) is None


def test_sub_handlers_begin_for_the_reason_of_the_cause_and_are_referred_to_by_their_parents() -> None:
    progress = CauseProgress(Reason.UPDATE, {"a": state(), "b": state()})
    progress.add_subhandlers(handlers("a/x", "a/y"), parents=["a"], now=after(3))
    assert progress.states["a"].subrefs == ("a/x", "a/y")
    assert progress.states["b"].subrefs == ()
    assert progress.states["a/x"] == HandlerState(started=after(3), purpose="update")


def test_nested_sub_handlers_are_referred_to_by_all_their_parents() -> None:
    progress = CauseProgress(Reason.CREATE, {"a": state()})
    progress.add_subhandlers(handlers("a/x"), parents=["a"], now=NOW)
    progress.add_subhandlers(handlers("a/x/1"), parents=["a", "a/x"], now=NOW)
    assert progress.states["a"].subrefs == ("a/x", "a/x/1")
    assert progress.states["a/x"].subrefs == ("a/x/1",)


def test_sub_handlers_that_have_ended_are_resumed_with_what_they_refer_to() -> None:
    ended = state(success=True, subrefs=("a/x/1",))
    progress = CauseProgress(Reason.CREATE, {"a": state(), "a/x": ended})
    progress.add_subhandlers(handlers("a/x"), parents=["a"], now=after(3))
    assert progress.states["a/x"] == ended
    assert progress.states["a"].subrefs == ("a/x", "a/x/1")
