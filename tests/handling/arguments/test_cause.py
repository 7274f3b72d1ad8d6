"""Causes: their detection, and the arguments of handlers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.handling.factory import WIDGETS, change_cause, change_handler, event_cause, event_handler
from trioperator._handling.arguments.cause import (
    ACTIVITY_KWARGS,
    ATTEMPT_KWARGS,
    CHANGE_KWARGS,
    EVENT_KWARGS,
    ActivityCause,
    ChangeCause,
    detect_reason,
)
from trioperator._handling.handlers.handler import Activity, Reason
from trioperator._logs import get_logger
from trioperator._model.patch import Patch
from trioperator.settings import OperatorSettings

LIVING: dict[str, Any] = {"metadata": {"name": "w"}}
DYING: dict[str, Any] = {"metadata": {"name": "w", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
FLAGS = ("finalized", "handled", "changed", "initial")


def detect(body: Any, *flags: str) -> Reason:
    return detect_reason(body, **{name: name in flags for name in FLAGS})


@pytest.mark.parametrize(
    ("body", "flags", "expected"),
    [
        (LIVING, (), Reason.CREATE),
        (LIVING, ("initial",), Reason.CREATE),
        (LIVING, ("finalized",), Reason.CREATE),
        (LIVING, ("changed",), Reason.CREATE),
        (LIVING, ("handled",), Reason.NOOP),
        (LIVING, ("handled", "initial"), Reason.RESUME),
        (LIVING, ("handled", "changed"), Reason.UPDATE),
        (LIVING, ("handled", "changed", "initial"), Reason.UPDATE),
        (DYING, (), Reason.FREE),
        (DYING, ("finalized",), Reason.DELETE),
        ({}, (), Reason.CREATE),
        ({"metadata": None}, ("handled",), Reason.NOOP),
        ({"metadata": {"deletionTimestamp": None}}, ("handled",), Reason.NOOP),
    ],
)
def test_reasons_are_detected(body: Any, flags: tuple[str, ...], expected: Reason) -> None:
    assert detect(body, *flags) is expected


def test_deletion_takes_precedence() -> None:
    for values in itertools.product((False, True), repeat=4):
        flags = dict(zip(FLAGS, values, strict=True))
        expected = Reason.DELETE if flags["finalized"] else Reason.FREE
        assert detect_reason(DYING, **flags) is expected


# --------------------------------------------------------------------------------------------- arguments

RAW: dict[str, Any] = {
    "kind": "Widget",
    "metadata": {"name": "w", "namespace": "ns", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {"size": 1},
    "status": {"phase": "made"},
}


def test_handlers_of_objects_get_the_object() -> None:
    kwargs = event_cause(RAW, memo="memo").kwargs
    assert kwargs["resource"] is WIDGETS
    assert kwargs["memo"] == "memo"
    assert (kwargs["name"], kwargs["namespace"], kwargs["uid"]) == ("w", "ns", "u")
    assert kwargs["body"] == RAW
    assert kwargs["spec"] == {"size": 1}
    assert kwargs["status"] == {"phase": "made"}
    assert kwargs["meta"] == RAW["metadata"]
    assert kwargs["labels"] == {"a": "b"}
    assert kwargs["annotations"] == {"c": "d"}


@pytest.mark.parametrize("type", [None, "ADDED", "MODIFIED", "DELETED"])
def test_handlers_of_events_get_the_event(type: str | None) -> None:
    kwargs = event_cause(RAW, type=type).kwargs
    assert kwargs["type"] == type
    assert kwargs["event"] == {"type": type, "object": RAW}


def test_handlers_of_changes_get_the_change() -> None:
    kwargs = change_cause(old={"spec": {"size": 0}}, new={"spec": {"size": 1}}, raw=RAW).kwargs
    assert kwargs["reason"] == "update"
    assert kwargs["old"] == {"spec": {"size": 0}}
    assert kwargs["new"] == {"spec": {"size": 1}}
    assert kwargs["diff"] == (("change", ("spec", "size"), 0, 1),)


def test_the_diff_of_a_creation_is_one_item_for_the_whole_object() -> None:
    kwargs = change_cause(old=None, new={"spec": {"size": 1}}, reason=Reason.CREATE).kwargs
    assert kwargs["old"] is None
    assert kwargs["diff"] == (("add", (), None, {"spec": {"size": 1}}),)


@pytest.mark.parametrize(
    ("old", "new", "expected_old", "expected_new", "differences"),
    [
        ({"spec": {"f": 1}}, {"spec": {"f": 2}}, 1, 2, [("change", (), 1, 2)]),
        ({"spec": {"f": {"a": 1}}}, {"spec": {"f": {"a": 2}}}, {"a": 1}, {"a": 2}, [("change", ("a",), 1, 2)]),
        ({"spec": {}}, {"spec": {"f": 2}}, None, 2, [("add", (), None, 2)]),
        ({"spec": {"f": 1}}, {}, 1, None, [("remove", (), 1, None)]),
        (None, {"spec": {"f": 2}}, None, 2, [("add", (), None, 2)]),
        ({"spec": {"f": 1, "g": 1}}, {"spec": {"f": 1, "g": 2}}, 1, 1, []),
    ],
)
def test_a_field_handler_gets_the_change_of_its_field(
    old: Any, new: Any, expected_old: Any, expected_new: Any, differences: Any
) -> None:
    cause = change_cause(old=old, new=new)
    kwargs = cause.kwargs_for(change_handler(field=("spec", "f")), Patch())
    assert (kwargs["old"], kwargs["new"]) == (expected_old, expected_new)
    assert kwargs["diff"] == tuple(differences)
    whole = cause.kwargs_for(change_handler(), Patch())
    assert (whole["old"], whole["new"]) == (old, new)


def test_each_handler_gets_its_own_patch() -> None:
    cause = change_cause(old=None, new={})
    first, second = Patch(), Patch()
    assert cause.kwargs_for(change_handler(), first)["patch"] is first
    assert cause.kwargs_for(change_handler(field=("spec",)), second)["patch"] is second
    assert event_cause({}).kwargs_for(event_handler(), first)["patch"] is first


def test_arguments_are_computed_once_and_on_demand() -> None:
    made: list[int] = []

    def make_memo() -> str:
        made.append(1)
        return "memo"

    cause = ChangeCause(
        resource=WIDGETS,
        raw=RAW,
        get_memo=make_memo,
        logger=get_logger("tests"),
        reason=Reason.UPDATE,
        initial=False,
        old={},
        new={},
    )
    assert not made
    assert cause.kwargs is cause.kwargs
    cause.kwargs_for(change_handler(), Patch())
    assert made == [1]


def test_views_show_the_newer_state_of_the_object() -> None:
    cause = change_cause(old=None, new={}, raw=RAW)
    kwargs = cause.kwargs
    cause.body._replace_raw({"spec": {"size": 2}, "status": {"phase": "new"}, "metadata": {"labels": {"x": "y"}}})
    assert (kwargs["spec"], kwargs["status"], kwargs["labels"]) == ({"size": 2}, {"phase": "new"}, {"x": "y"})
    assert cause.raw is RAW


def test_handlers_get_exactly_the_documented_arguments() -> None:
    attempt = dict.fromkeys(ATTEMPT_KWARGS)
    activity = ActivityCause(
        activity=Activity.STARTUP, settings=OperatorSettings(), memo="memo", logger=get_logger("tests")
    )
    assert {*attempt, *activity.kwargs} == ACTIVITY_KWARGS
    assert {*attempt, *event_cause({}).kwargs} == EVENT_KWARGS
    assert {*attempt, *change_cause(old=None, new={}).kwargs} == CHANGE_KWARGS
    assert {
        *attempt,
        *change_cause(old=None, new={}).kwargs_for(change_handler(field=("f",)), Patch()),
    } == CHANGE_KWARGS


def test_activities_get_the_settings_themselves() -> None:
    settings = OperatorSettings()
    cause = ActivityCause(activity=Activity.CLEANUP, settings=settings, memo="memo", logger=get_logger("tests"))
    assert cause.kwargs["settings"] is settings
    assert cause.kwargs["activity"] == "cleanup"
