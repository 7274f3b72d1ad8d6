"""States of the handlers of an unfinished cause."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.handling.factory import change_handler
from trioperator._handling.calls.handler_state import HandlerState, apply_outcome, build_result_patch, states_for_cause
from trioperator._handling.handlers.handler import Reason
from trioperator._handling.handlers.outcome import Outcome
from trioperator._handling.storages.progress import AnnotationsProgressStorage
from trioperator._model.body import Body
from trioperator._model.patch import Patch, apply_merge
from trioperator.errors import PermanentError, TemporaryError

UTC = datetime.UTC
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def after(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


# ----------------------------------------------------------------------------------------------- records


def test_a_record_is_stored_as_kopf_stores_it() -> None:
    state = HandlerState(started=NOW, purpose="create", delayed=after(10), retries=1, message="Not ready")
    storage = AnnotationsProgressStorage(prefix="kopf.zalando.org")
    patch = Patch()
    storage.store(key="fn", record=state.to_record(), body=Body({}), patch=patch)
    assert patch["metadata"]["annotations"]["kopf.zalando.org/fn"] == (
        '{"started":"2026-01-02T03:04:05.678901+00:00","delayed":"2026-01-02T03:04:15.678901+00:00",'
        '"purpose":"create","retries":1,"success":false,"failure":false,"message":"Not ready"}'
    )


def test_times_always_include_microseconds() -> None:
    record = HandlerState(started=datetime.datetime(2026, 1, 2, tzinfo=UTC)).to_record()
    assert record["started"] == "2026-01-02T00:00:00.000000+00:00"


def test_a_new_record_has_no_results() -> None:
    record = HandlerState(started=NOW, purpose="update").to_record()
    assert {key: value for key, value in record.items() if value is not None} == {
        "started": "2026-01-02T03:04:05.678901+00:00",
        "purpose": "update",
        "retries": 0,
        "success": False,
        "failure": False,
    }


_TIMES = st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(UTC))
_STATES = st.builds(
    HandlerState,
    started=_TIMES,
    purpose=st.none() | st.sampled_from([reason.value for reason in Reason]),
    stopped=st.none() | _TIMES,
    delayed=st.none() | _TIMES,
    retries=st.integers(0, 10**6),
    success=st.booleans(),
    failure=st.booleans(),
    message=st.none() | st.text(),
    attempted=st.none() | _TIMES,
)
_LATER = datetime.datetime(2200, 1, 1, tzinfo=UTC)


@given(_STATES)
def test_a_record_round_trips(state: HandlerState) -> None:
    assert HandlerState.from_record(state.to_record(), now=_LATER) == state
    assert HandlerState.from_record(json.loads(json.dumps(state.to_record())), now=_LATER) == state


@given(_STATES)
def test_a_stored_record_round_trips(state: HandlerState) -> None:
    storage = AnnotationsProgressStorage()
    patch = Patch()
    storage.store(key="fn/spec.field", record=state.to_record(), body=Body({}), patch=patch)
    record = storage.fetch(key="fn/spec.field", body=Body(apply_merge({}, patch)))
    assert record is not None
    assert HandlerState.from_record(record, now=_LATER) == state


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({}, HandlerState(started=NOW)),
        ({"started": "nonsense"}, HandlerState(started=NOW)),
        ({"started": 5, "stopped": [], "delayed": {}}, HandlerState(started=NOW)),
        ({"retries": "3"}, HandlerState(started=NOW)),
        ({"retries": None}, HandlerState(started=NOW)),
        ({"retries": True}, HandlerState(started=NOW)),
        ({"success": "yes", "failure": 1}, HandlerState(started=NOW)),
        ({"purpose": 5, "message": {"a": 1}}, HandlerState(started=NOW)),
        ({"started": "2026-01-02T03:04:05.678901"}, HandlerState(started=NOW)),
        ({"started": "2026-01-02T03:04:05.678901Z"}, HandlerState(started=NOW)),
        ({"subrefs": ["b", "a", "b"], "unknown": 1}, HandlerState(started=NOW, subrefs=("a", "b"))),
    ],
)
def test_invalid_fields_of_a_record_count_as_absent(record: Any, expected: HandlerState) -> None:
    assert HandlerState.from_record(record, now=NOW) == expected


@pytest.mark.parametrize(
    ("started", "attempted", "delayed", "due"),
    [
        (-50, -30, 70, 70),  # as it should be
        (3550, 3570, 3670, 100),  # set back by an hour, or more: it has waited for 30 s, which nobody knows
        (-550, 3050, 3150, 100),  # set back since the last attempt, and not to before the first one
        (3550, None, 3670, 120),  # a record of Kopf's
        (-50, None, 3670, 3670),
    ],
)
def test_a_handler_is_due_after_its_delay_at_the_latest_though_the_clock_was_set_back(
    started: float, attempted: float | None, delayed: float, due: float
) -> None:
    last = None if attempted is None else after(attempted)
    record = HandlerState(started=after(started), attempted=last, delayed=after(delayed)).to_record()
    state = HandlerState.from_record(record, now=NOW)
    assert state.seconds_until_due(NOW) == due
    assert max(state.started, state.attempted or state.started) <= NOW
    if last is not None and state.attempted is not None:
        assert state.attempted - state.started == last - after(started)


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_record_with_times_at_the_ends_of_the_calendar_is_read(time: str) -> None:
    late = {"started": time, "attempted": time, "delayed": NOW.isoformat()}
    assert HandlerState.from_record(late, now=NOW).is_due(NOW)  # type: ignore[arg-type]
    assert HandlerState.from_record({**late, "delayed": time}, now=NOW).is_due(NOW)  # type: ignore[typeddict-item]


# ---------------------------------------------------------------------------------------------- outcomes

FRESH = HandlerState(started=NOW, purpose="create")


def test_a_success_finishes_a_handler() -> None:
    state = apply_outcome(FRESH, Outcome(final=True, result=5), now=after(3))
    assert state == HandlerState(started=NOW, purpose="create", stopped=after(3), retries=1, success=True)
    assert state.finished
    assert not state.is_due(after(1000))


def test_a_failure_finishes_a_handler_with_its_message() -> None:
    state = apply_outcome(FRESH, Outcome(final=True, error=PermanentError("never")), now=after(3))
    assert state == HandlerState(
        started=NOW, purpose="create", stopped=after(3), retries=1, failure=True, message="never"
    )
    assert state.finished
    assert not state.is_due(after(1000))


def test_a_retried_handler_is_due_after_the_delay() -> None:
    state = apply_outcome(FRESH, Outcome(final=False, error=TemporaryError("wait"), delay=10), now=after(3))
    assert state == HandlerState(
        started=NOW, purpose="create", delayed=after(13), attempted=after(3), retries=1, message="wait"
    )
    assert not state.finished
    assert not state.is_due(after(12.9))
    assert state.is_due(after(13))


@pytest.mark.parametrize("delay", [math.inf, 1e12, 1e300])
def test_a_delay_beyond_the_calendar_lasts_to_its_end(delay: float) -> None:
    state = apply_outcome(FRESH, Outcome(final=False, error=TemporaryError("wait"), delay=delay), now=NOW)
    assert state.retries == 1
    assert not state.is_due(after(3600 * 24 * 365 * 1000))
    assert HandlerState.from_record(state.to_record(), now=NOW) == state


@pytest.mark.parametrize("delay", ["10", math.nan, datetime.timedelta(seconds=10)])
def test_a_delay_is_a_number(delay: Any) -> None:
    with pytest.raises(TypeError, match=r"TemporaryError has delay=.* a number of seconds"):
        TemporaryError("wait", delay=delay)


def test_a_subclass_of_temporary_error_always_has_a_delay() -> None:
    class NotReady(TemporaryError):
        def __init__(self) -> None: ...

    assert NotReady().delay == TemporaryError().delay == 60


def test_a_success_after_errors_clears_the_delay_and_message() -> None:
    waiting = apply_outcome(FRESH, Outcome(final=False, error=TemporaryError("wait"), delay=10), now=NOW)
    state = apply_outcome(waiting, Outcome(final=True), now=after(10))
    assert (state.retries, state.delayed, state.message, state.success) == (2, None, None, True)


def test_an_error_without_a_message_is_stored_by_its_type() -> None:
    assert apply_outcome(FRESH, Outcome(final=True, error=ValueError()), now=NOW).message == "ValueError()"


def test_a_long_message_is_cut() -> None:
    message = apply_outcome(FRESH, Outcome(final=True, error=ValueError("x" * 10**6)), now=NOW).message
    assert message is not None
    assert len(message) == 1024


def test_a_new_handler_is_due() -> None:
    assert FRESH.is_due(NOW)


@given(st.lists(st.floats(0, 100), max_size=9))
def test_each_attempt_counts_once_and_the_start_stays(delays: list[float]) -> None:
    state = FRESH
    for delay in delays:
        state = apply_outcome(state, Outcome(final=False, error=ValueError("x"), delay=delay), now=after(50))
    assert state.retries == len(delays)
    assert state.started == NOW


# ------------------------------------------------------------------------------------------- superseding

WAITING = HandlerState(started=NOW, purpose="create", delayed=after(60), retries=2, message="wait")
DONE = HandlerState(started=NOW, purpose="create", stopped=after(1), retries=1, success=True)
FAILED = HandlerState(started=NOW, purpose="create", stopped=after(1), retries=1, failure=True)


def initial_state(stored: HandlerState | None, *, reason: Reason, **options: Any) -> HandlerState:
    handler = change_handler(id="fn", **options)
    states = states_for_cause([handler], {} if stored is None else {"fn": stored}, reason=reason, now=after(100))
    assert set(states) == {"fn"}
    return states["fn"]


def test_a_handler_without_a_state_starts_now() -> None:
    assert initial_state(None, reason=Reason.CREATE) == HandlerState(started=after(100), purpose="create")


@pytest.mark.parametrize("state", [WAITING, DONE, FAILED])
def test_a_handler_continues_with_the_same_cause(state: HandlerState) -> None:
    assert initial_state(state, reason=Reason.CREATE) == state


def test_an_unfinished_handler_keeps_its_retries_in_another_cause() -> None:
    state = initial_state(WAITING, reason=Reason.UPDATE)
    assert state.purpose == "update"
    assert (state.started, state.delayed, state.retries) == (NOW, None, 2)


@pytest.mark.parametrize("state", [DONE, FAILED])
def test_a_finished_handler_starts_over_for_another_cause(state: HandlerState) -> None:
    assert initial_state(state, reason=Reason.UPDATE) == HandlerState(started=after(100), purpose="update")


def test_a_handler_that_starts_over_keeps_its_sub_handlers() -> None:
    # Otherwise their records would stay on the object.
    stored = DONE.with_subrefs(["fn/a", "fn/b"])
    assert initial_state(stored, reason=Reason.UPDATE).subrefs == ("fn/a", "fn/b")


@pytest.mark.parametrize("state", [DONE, FAILED])
def test_a_resuming_handler_runs_once_whatever_happens_meanwhile(state: HandlerState) -> None:
    assert initial_state(state, reason=Reason.UPDATE, initial=True).finished


def test_records_without_a_purpose_belong_to_the_current_cause() -> None:
    old = HandlerState(started=NOW, retries=1, success=True)
    assert initial_state(old, reason=Reason.UPDATE) == old


def test_handlers_that_are_not_selected_have_no_state() -> None:
    handlers = [change_handler(id="a"), change_handler(id="b")]
    states = states_for_cause(handlers, {"b": WAITING, "c": WAITING}, reason=Reason.CREATE, now=after(100))
    assert list(states) == ["a", "b"]
    assert states["b"] is WAITING


# ----------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, {}),
        (100, {"status": {"fn": 100}}),
        (0, {"status": {"fn": 0}}),
        (False, {"status": {"fn": False}}),
        ("", {"status": {"fn": ""}}),
        ([], {"status": {"fn": []}}),
        ({}, {"status": {"fn": {}}}),
        ({"a": {"b": 1}}, {"status": {"fn": {"a": {"b": 1}}}}),
        (Body({"spec": {"a": 1}}), {"status": {"fn": {"spec": {"a": 1}}}}),
    ],
)
def test_a_result_goes_to_the_status_under_the_id(result: Any, expected: Any) -> None:
    assert build_result_patch(result, handler_id="fn") == expected


def test_the_id_is_taken_as_it_is() -> None:
    assert build_result_patch(1, handler_id="fn/spec.field") == {"status": {"fn/spec.field": 1}}


def test_a_mapping_is_merged_with_earlier_results() -> None:
    body = {"status": {"fn": {"a": 1}}}
    assert apply_merge(body, build_result_patch({"b": 2}, handler_id="fn")) == {"status": {"fn": {"a": 1, "b": 2}}}
