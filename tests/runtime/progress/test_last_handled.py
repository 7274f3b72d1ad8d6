"""The last-handled configuration: its transitions, and that every handler sees the newest one in the end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioperator._handling.arguments.cause import detect_reason
from trioperator._handling.handlers.handler import Reason
from trioperator._runtime.progress.last_handled import LastHandled


def encode(size: int) -> bytes:
    return msgspec.json.encode({"spec": {"size": size}})


def decode(configuration: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(configuration)
    return decoded


# C is the current configuration, A and B are others, R is the recorded one.
A, B, C, R = (encode(size) for size in range(4))


def seen(*configurations: bytes) -> LastHandled:
    """Return what is known after handlers have seen these configurations."""
    last_handled = LastHandled()
    for configuration in configurations:
        last_handled.see(configuration)
    return last_handled


def missing(configuration: bytes) -> LastHandled:
    """Return what is known after a cause that was recorded as R, though a handler has seen another one last."""
    last_handled = seen(R, configuration)
    assert last_handled.finish(configuration) == R
    last_handled.record(R, configuration, finished=True)
    return last_handled


# What handlers of the unfinished cause have seen.


def test_nothing_was_seen_at_first() -> None:
    last_handled = LastHandled()
    assert last_handled.to_store == ()
    assert last_handled.finish(C) == C
    assert last_handled.settle(C) == C


def test_resuming_takes_up_what_was_stored_with_the_progress() -> None:
    last_handled = seen(B)
    last_handled.resume([A])
    assert last_handled.to_store[:1] == (A,)
    assert last_handled.finish(C) == last_handled.settle(C) == A
    last_handled.resume(())
    assert last_handled.to_store == ()
    assert last_handled.finish(C) == last_handled.settle(C) == C


def test_resuming_does_not_forget_what_was_missed() -> None:
    last_handled = missing(A)
    last_handled.resume(())
    assert last_handled.settle(C) == A


def test_what_another_process_has_missed_counts_only_if_this_one_has_recorded_nothing() -> None:
    last_handled = LastHandled()
    assert not last_handled.is_missed
    last_handled.miss(A)
    assert last_handled.is_missed
    assert last_handled.settle(C) == A
    assert last_handled.finish(C) == C
    last_handled.record(C, C, finished=True)
    last_handled.miss(B)
    assert last_handled.settle(C) == C


def test_what_is_missed_by_a_record_is_known_before_it_is_stored() -> None:
    assert seen(A, C).find_missed(A, C, finished=True) == C
    assert seen(C).find_missed(C, C, finished=True) is None
    assert LastHandled().find_missed(A, C, finished=False) == C
    assert LastHandled().find_missed(C, C, finished=False) is None


def test_another_cause_forgets_what_was_seen_and_not_what_was_missed() -> None:
    last_handled = missing(A)
    last_handled.see(B)
    last_handled.supersede()
    assert last_handled.to_store == (A,)
    assert last_handled.finish(C) == C
    assert last_handled.settle(C) == A


def test_a_restore_forgets_what_was_recorded_and_missed_and_not_what_was_seen() -> None:
    last_handled = missing(B)
    last_handled.see(A)
    last_handled.rewind()
    assert not last_handled.is_recorded
    assert last_handled.finish(C) == A
    last_handled.supersede()
    assert last_handled.settle(C) == C


def test_an_update_that_no_handler_has_ended_with_yet_is_taken_back_for_those_that_were_called() -> None:
    last_handled = LastHandled()
    last_handled.record(A, A, finished=True)
    last_handled.attempt(B)
    assert last_handled.to_store == (B,)
    assert last_handled.settle(A) == B
    last_handled.attempt(C)
    assert last_handled.settle(A) == C
    last_handled.see(B)
    assert last_handled.to_store == (B,)
    last_handled.see(C)
    assert last_handled.finish(C) == B
    last_handled.supersede()
    last_handled.see(C)
    assert last_handled.finish(C) == C
    last_handled.record(C, C, finished=True)
    assert not last_handled.is_missed


def test_the_first_configuration_that_was_seen_is_the_one_to_be_stored() -> None:
    last_handled = LastHandled()
    for configuration in (A, B, A, C):
        last_handled.see(configuration)
        assert last_handled.to_store[:1] == (A,)


def test_the_first_and_the_last_of_many_configurations_are_remembered() -> None:
    last_handled = seen(A, B, C)
    assert last_handled.finish(A) == C
    assert last_handled.finish(C) == A
    assert last_handled.finish(B) == A


# The end of a cause.


@pytest.mark.parametrize(
    ("configurations", "handled", "missed"),
    [
        ([], C, None),  # there are no handlers
        ([C], C, None),
        ([A], A, None),
        ([A, C], A, C),
        ([C, A], A, C),
        ([A, B], A, B),
        ([A, B, C], A, C),
    ],
)
def test_finishing_records_a_configuration_that_was_seen_before_the_current_one(
    configurations: list[bytes], handled: bytes, missed: bytes | None
) -> None:
    last_handled = seen(*configurations)
    assert last_handled.finish(C) == handled
    last_handled.record(handled, C, finished=True)
    assert last_handled.to_store == (() if missed is None else (missed,))
    assert last_handled.settle(handled) == (missed or handled)  # as if the object were changed back to it
    assert last_handled.recall(None, handled) == decode(handled)


def test_finishing_with_a_single_configuration_misses_none() -> None:
    last_handled = missing(A)
    last_handled.see(C)
    last_handled.record(last_handled.finish(C), C, finished=True)
    assert last_handled.settle(C) == C


@pytest.mark.parametrize(
    ("missed", "configurations", "handled"),
    [
        (None, [], C),
        (None, [C], C),
        (None, [A], A),
        (None, [C, A], A),
        (None, [A, B], A),
        (A, [], A),
        (A, [C], A),
        (A, [B], B),
    ],
)
def test_a_change_that_was_taken_back_records_what_was_seen_of_it_or_else_what_was_missed(
    missed: bytes | None, configurations: list[bytes], handled: bytes
) -> None:
    last_handled = LastHandled() if missed is None else missing(missed)
    for configuration in configurations:
        last_handled.see(configuration)
    assert last_handled.settle(C) == handled
    last_handled.record(handled, C, finished=False)
    assert last_handled.to_store == (() if handled == C else (C,))
    assert last_handled.settle(handled) == C  # where that is not the recorded one, it is missed from now on
    assert last_handled.recall(None, handled) == decode(handled)


def test_nothing_is_missed_after_the_current_configuration_was_settled() -> None:
    last_handled = missing(A)
    last_handled.record(A, C, finished=False)
    last_handled.record(C, C, finished=False)
    assert last_handled.settle(A) == A


def test_asking_what_to_record_changes_nothing() -> None:
    last_handled = missing(B)
    last_handled.see(A)
    for _ in range(2):
        assert last_handled.finish(C) == A
        assert last_handled.settle(C) == A
        assert last_handled.to_store[:1] == (A,)


# The record on the object, and in memory where somebody removes it.


@pytest.mark.parametrize("stored", [None, decode(A)])
def test_before_anything_was_recorded_only_what_is_stored_counts(stored: dict[str, Any] | None) -> None:
    last_handled = LastHandled()
    assert last_handled.recall(stored, C) == stored
    assert not last_handled.is_kept


def test_what_is_stored_counts_though_something_else_was_recorded() -> None:
    last_handled = LastHandled()
    last_handled.record(R, R, finished=True)
    assert last_handled.recall(decode(A), C) == decode(A)
    assert last_handled.recall(decode(R), R) == decode(R)
    assert not last_handled.is_kept


def test_a_record_that_was_removed_is_kept_in_memory() -> None:
    last_handled = LastHandled()
    last_handled.record(R, R, finished=True)
    assert last_handled.recall(None, R) == decode(R)
    assert last_handled.is_kept
    assert last_handled.recall(None, C) == decode(R)
    last_handled.keep(C)
    last_handled.record(C, C, finished=True)
    assert last_handled.recall(None, C) == last_handled.recall(None, A) == decode(C)
    assert last_handled.is_kept


def test_a_record_that_was_removed_with_a_change_counts_as_empty() -> None:
    last_handled = LastHandled()
    last_handled.record(R, R, finished=True)
    assert last_handled.recall(None, C) == {}
    assert not last_handled.is_kept
    assert last_handled.recall(None, R) == decode(R)  # changed back, so that it is what was recorded
    assert last_handled.is_kept


def test_a_record_that_is_back_on_the_object_is_not_kept_any_more() -> None:
    last_handled = LastHandled()
    last_handled.record(R, R, finished=True)
    last_handled.recall(None, R)
    assert last_handled.recall(decode(A), R) == decode(A)
    last_handled.confirm()
    assert not last_handled.is_kept
    assert last_handled.recall(None, C) == {}


def test_what_was_seen_and_missed_is_not_touched_by_the_record() -> None:
    last_handled = missing(A)
    last_handled.see(B)
    last_handled.recall(None, R)
    last_handled.keep(R)
    last_handled.recall(decode(R), R)
    last_handled.confirm()
    assert last_handled.to_store == (B,)
    assert last_handled.settle(C) == B
    last_handled.supersede()
    assert last_handled.settle(C) == A


# All of it together.


class Life:
    """The life of one object with its handlers, all of them for creation and update, and with its operators.

    A model of a reconcile as far as it concerns the last-handled configuration. Handlers succeed with the current
    configuration, or are to be called again. Whenever nothing is left to do, each of them must have seen the current
    configuration last.
    """

    def __init__(self, handlers: int) -> None:
        self.handlers = range(handlers)
        self.last_seen: dict[int, bytes] = {}
        # What is on the object.
        self.current = A
        self.record: bytes | None = None
        self.stored_seen: tuple[bytes, ...] = ()
        self.stored_states: dict[int, Reason] = {}
        self.start()

    def start(self) -> None:
        """Start an operator, with nothing in memory."""
        self.last_handled = LastHandled()
        self.purpose: Reason | None = None  # of the unfinished cause
        self.states: dict[int, Reason] = {}  # of the handlers that have succeeded: for which cause
        self.is_unsaved = False
        self.initial = True
        self.has_body = True  # there is a state to be reconciled

    # What happens.

    def change(self, size: int) -> None:
        """Change the object, or change it back. Its handlers are called for that by the next reconcile."""
        self.has_body = self.has_body or encode(size) != self.current
        self.current = encode(size)

    def change_between(self, calls: int, size: int) -> None:
        """Change the object between two handlers, after so many calls."""
        self.reconcile(calls)
        self.change(size)

    def remove_record(self) -> None:
        """Remove the record from the object, as somebody does that replaces all annotations."""
        self.has_body = self.has_body or self.record is not None
        self.record = None

    def save(self) -> None:
        """Store the progress of the unfinished cause."""
        if self.purpose is not None and self.is_unsaved:
            self.is_unsaved = False
            self.stored_states = dict(self.states)
            self.stored_seen = self.last_handled.to_store or self.stored_seen

    def restart(self) -> None:
        """Stop the operator in order, and start another one."""
        self.save()
        self.start()

    def fail(self) -> None:
        """Reconcile the newest state. One handler is called, and fails for now, if it does that for an update."""
        self.reconcile(1, fails=True)

    def reconcile(self, calls: int, *, fails: bool = False) -> None:
        """Reconcile the newest state. No more than so many handlers are called, as if the object had changed then."""
        if not self.has_body:
            return
        is_current = self.record == self.current
        if is_current:
            old: Any = decode(self.current)
            self.last_handled.confirm()
        else:
            old = self.last_handled.recall(None if self.record is None else decode(self.record), self.current)
        changed = old != decode(self.current)
        reason = detect_reason({}, finalized=False, handled=old is not None, changed=changed, initial=self.initial)
        if reason is Reason.NOOP:
            self._settle()
            return
        self._begin(reason)
        selected = () if reason is Reason.RESUME else self.handlers
        for handler in [handler for handler in selected if handler not in self.states][:calls]:
            self.last_seen[handler] = self.current
            self.is_unsaved = True
            if fails and reason is Reason.UPDATE:
                self.last_handled.attempt(self.current)
            else:
                self.states[handler] = reason
                self.last_handled.see(self.current)
        if all(handler in self.states for handler in selected):
            self._finish(reason)

    def come_to_rest(self) -> None:
        """Reconcile until nothing is left to do."""
        for _ in range(10):
            self.reconcile(len(self.handlers))
        assert not self.has_body
        assert self.purpose is None
        self._check()

    # The parts of a reconcile.

    def _begin(self, reason: Reason) -> None:
        if self.purpose is None:
            self.states = dict(self.stored_states)
            is_over = not self.states and reason is not Reason.RESUME
            is_superseded = reason is not Reason.RESUME and reason not in self.states.values()
            self.last_handled.resume(() if is_over or is_superseded else self.stored_seen)
            if is_over and self.stored_seen:
                self.last_handled.miss(self.stored_seen[0])
        elif self.purpose is not reason and reason is not Reason.RESUME:
            self.last_handled.supersede()
        self.purpose = reason
        self.states = {handler: purpose for handler, purpose in self.states.items() if purpose is reason}

    def _settle(self) -> None:
        before = self._stored
        if self.purpose is None and not self.last_handled.is_recorded:
            self.last_handled.resume(self.stored_seen)
        self._purge()
        handled = self.last_handled.settle(self.current)
        if handled != self.current:
            self._record(handled)
        self._note(handled, finished=False)
        self._end()
        self.has_body = self._stored != before or handled != self.current
        if handled == self.current:
            self._check()

    def _finish(self, reason: Reason) -> None:
        before = self._stored
        self._purge()
        resumed = reason is Reason.RESUME
        handled = self.last_handled.settle(self.current) if resumed else self.last_handled.finish(self.current)
        self._record(handled)
        self._note(handled, finished=not resumed)
        self._end()
        self.initial = False
        # Not guaranteed: where the record is kept in memory, no request may be needed to finish a cause. Then there is
        # no response to be reconciled, and another configuration that was recorded waits for the next watch event.
        is_watch_event_needed = handled != self.current
        self.has_body = self._stored != before or is_watch_event_needed
        if handled == self.current:
            self._check()

    def _purge(self) -> None:
        self.stored_states, self.stored_seen = {}, ()

    def _note(self, handled: bytes, *, finished: bool) -> None:
        missed = self.last_handled.find_missed(handled, self.current, finished=finished)
        self.stored_seen = () if missed is None else (missed,)
        self.last_handled.record(handled, self.current, finished=finished)

    def _record(self, configuration: bytes) -> None:
        if self.last_handled.is_kept:
            self.last_handled.keep(configuration)
        else:
            self.record = configuration

    def _end(self) -> None:
        self.purpose, self.states = None, {}
        self.is_unsaved = False
        self.last_handled.supersede()

    @property
    def _stored(self) -> tuple[Any, ...]:
        return self.record, self.stored_seen, dict(self.stored_states)

    def _check(self) -> None:
        """Check that every handler has last seen the current configuration, which is recorded as handled."""
        assert self.last_seen == dict.fromkeys(self.handlers, self.current)


# All handlers are called by "reconcile", and by "change_between" as many as are called before the object changes.
EVENTS = st.one_of(
    st.sampled_from([("reconcile", 3), ("reconcile", 3), ("fail",), ("save",), ("restart",), ("remove_record",)]),
    st.tuples(st.just("change"), st.integers(0, 2)),
    st.tuples(st.just("change_between"), st.integers(1, 2), st.integers(0, 2)),
)


@settings(max_examples=500)
@given(handlers=st.integers(1, 3), events=st.lists(EVENTS, max_size=20))
def test_when_nothing_is_left_to_do_every_handler_has_last_seen_the_current_configuration(
    handlers: int, events: list[tuple[Any, ...]]
) -> None:
    life = Life(handlers)
    for name, *arguments in events:
        getattr(life, name)(*arguments)
    life.come_to_rest()
