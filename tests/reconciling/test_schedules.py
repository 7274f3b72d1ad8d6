"""Tests for :mod:`trioperator._reconciling.schedules`."""

from __future__ import annotations

import datetime

import pytest

from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._model.resource import Resource, Selector
from trioperator._reconciling.schedules import ChildKey, HandlerSchedule, ObjectSchedule

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
PODS = Resource("", "v1", "pods", kind="Pod")


def make_handler(**options: float) -> ReconcileHandler:
    return ReconcileHandler(fn=lambda: None, id="x", selector=Selector.parse("widgets"), **options)  # type: ignore[arg-type]


def test_a_handler_is_due_at_first_after_changes_and_triggers_and_when_it_says() -> None:
    schedule = HandlerSchedule()
    assert schedule.is_due(1, now=0)
    schedule.begin(1, NOW)
    assert not schedule.is_due(1, now=0)
    assert schedule.is_due(2, now=0)
    schedule.succeed(10)
    assert not schedule.is_due(1, now=9.9)
    assert schedule.is_due(1, now=10)
    schedule.triggered = True
    assert schedule.is_due(1, now=0)


def test_the_backoff_grows_with_errors_in_a_row_up_to_a_limit() -> None:
    schedule, handler, delays = HandlerSchedule(), make_handler(), []
    for _ in range(20):
        schedule.begin(1, NOW)
        delays.append(schedule.get_backoff(handler))
        schedule.fail(1)
    assert delays[:4] == [0.1, 0.2, 0.4, 0.8]
    assert delays[-1] == 600
    schedule.begin(2, NOW)
    assert schedule.get_backoff(handler) == 0.1, "a change is a new reason"
    assert schedule.get_backoff(make_handler(backoff=7)) == 7


def test_an_early_call_that_fails_changes_neither_the_backoff_nor_when_the_next_one_is_due() -> None:
    schedule, handler = HandlerSchedule(), make_handler()
    for at in (0.0, 1.0, 2.0):
        schedule.begin(1, NOW, at=at)
        schedule.fail(at + schedule.get_backoff(handler))
    assert (schedule.failures, schedule.due) == (3, 2.4)
    for at in (2.1, 2.2, 2.3):
        schedule.triggered = True
        schedule.begin(1, NOW, at=at)
        assert at + schedule.get_backoff(handler) == pytest.approx(2.4)
        schedule.fail(at + schedule.get_backoff(handler))
    assert schedule.failures == 3
    assert schedule.due == pytest.approx(2.4)
    schedule.begin(1, NOW, at=2.4)
    assert schedule.get_backoff(handler) == 0.8
    schedule.fail(3.2)
    schedule.begin(2, NOW, at=2.5)
    assert schedule.get_backoff(handler) == 0.1, "a change is a new reason"


@pytest.mark.parametrize("ends", [True, False])
def test_errors_are_counted_until_a_success_or_the_end(ends: bool) -> None:
    schedule = HandlerSchedule()
    schedule.begin(1, NOW)
    schedule.fail(5)
    assert (schedule.failures, schedule.due) == (1, 5)
    if ends:
        schedule.fail(None)
    else:
        schedule.succeed(None)
    assert (schedule.failures, schedule.started, schedule.due) == (0, None, None)


def test_handlers_that_do_not_match_any_more_are_forgotten() -> None:
    one, two, schedule = make_handler(), make_handler(), ObjectSchedule()
    before = dict(schedule.match([one, two]))
    assert list(before) == [one, two]
    assert schedule.match([two])[two] is before[two]
    assert not schedule.trigger([one])
    assert schedule.trigger([one, two])
    assert schedule.match([one, two])[one] is not before[one]


def test_an_object_is_due_when_its_first_handler_is() -> None:
    schedule = ObjectSchedule()
    one, two = schedule.match([make_handler(), make_handler()]).values()
    assert schedule.due is None
    one.due, two.due = 7, 5
    assert schedule.due == 5
    one.triggered = two.triggered = False
    schedule.expedite()
    assert one.triggered
    assert two.triggered


A, B = ChildKey(PODS, "default", "a"), ChildKey(PODS, "default", "b")


def test_what_was_desired_is_kept_until_what_replaces_it_is_there() -> None:
    schedule = ObjectSchedule()
    one, two = schedule.match([make_handler(), make_handler()]).values()
    one.children.desire(frozenset({A}))
    two.children.desire(frozenset())
    one.children.settle()
    one.children.desire(frozenset({B}))
    assert schedule.find_kept() == {A, B}
    one.children.settle()
    assert schedule.find_kept() == {B}


def test_what_a_handler_desired_is_kept_when_it_does_not_match_any_more() -> None:
    handler, schedule = make_handler(), ObjectSchedule()
    schedule.match([handler])[handler].children.desire(frozenset({A}))
    schedule.match([])
    schedule.match([])
    assert schedule.find_kept() == {A}
    schedule.match([handler])
    assert schedule.find_kept() == frozenset(), "it is asked again"


def test_a_handler_is_unblocked_by_the_name_that_was_in_the_way() -> None:
    schedule = ObjectSchedule()
    (own,) = schedule.match([make_handler()]).values()
    own.triggered = False
    own.children.blocked.add(("default", "a"))
    assert not schedule.unblock("default", "b")
    assert schedule.unblock("default", "a")
    assert own.triggered


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (ChildKey(PODS, "default", "a"), "Pod default/a"),
        (ChildKey(Resource("", "v1", "nodes"), "", "n"), "nodes n"),
    ],
)
def test_a_child_is_named_by_its_kind_and_its_name(key: ChildKey, text: str) -> None:
    assert str(key) == text


def test_a_handler_that_cannot_be_called_is_not_due_at_a_time() -> None:
    schedule = HandlerSchedule()
    schedule.begin(1, NOW)
    schedule.succeed(5)
    schedule.wait()
    assert schedule.due is None
    assert schedule.is_due(1, now=0)
