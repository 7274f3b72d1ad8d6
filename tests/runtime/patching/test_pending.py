"""Pending patches: what handlers want stored, until it is stored, and who observes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.runtime.objects import body, make, raw
from trioperator._logs import get_logger
from trioperator._model.patch import Patch, PatchFn, preview
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.patching.pending import PendingPatches, SentPatch

LOGGER = get_logger("trioperator.test")


class Observer:
    """An observer that records its notifications."""

    def __init__(self) -> None:
        self.contributions: list[tuple[Mapping[str, Any], bool]] = []
        self.states: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]] = []

    def contributed(self, patch: Mapping[str, Any], *, opaque: bool) -> None:
        self.contributions.append((patch, opaque))

    def stored(self, body: Mapping[str, Any], pending: Mapping[str, Any] | None) -> None:
        self.states.append((body, pending))


@pytest.fixture
def pending() -> PendingPatches:
    return PendingPatches()


@pytest.fixture
def state() -> ObjectState:
    return make_state()


def make_state(name: str = "w", **spec: Any) -> ObjectState:
    cache, queue = make()
    cache.observe("ADDED", raw(5, name=name, uid=name, **spec))
    (state,) = queue.added
    for event in state.take_events():
        state.advance(event)
    return state


def contribute(pending: PendingPatches, state: ObjectState, patch: Any, *fns: PatchFn, by: str = "Handler") -> bool:
    return pending.contribute(state, patch, fns, by=by, logger=LOGGER)


def fn(body: dict[str, Any]) -> None:
    raise AssertionError


def other_fn(body: dict[str, Any]) -> None:
    raise AssertionError


# Contributions.


def test_nothing_is_pending_at_first(pending: PendingPatches, state: ObjectState) -> None:
    assert pending.get(state) is None
    assert len(pending) == 0


def test_contributions_are_merged_with_the_later_ones_on_top_and_kept_apart_by_their_handlers(
    pending: PendingPatches, state: ObjectState
) -> None:
    assert contribute(pending, state, {"spec": {"a": 1, "b": 1}}, by="first")
    assert contribute(pending, state, {"spec": {"b": 2}, "status": {"c": 3}}, fn, by="second")
    patch = pending.get(state)
    assert patch is not None
    assert patch == {"spec": {"a": 1, "b": 2}, "status": {"c": 3}}
    assert list(patch.fns) == [fn]
    assert [(item.by, item.patch, item.fns) for item in patch.contributions] == [
        ("first", {"spec": {"a": 1, "b": 1}}, ()),
        ("second", {"spec": {"b": 2}, "status": {"c": 3}}, (fn,)),
    ]


def test_a_function_alone_is_a_contribution(pending: PendingPatches, state: ObjectState) -> None:
    assert contribute(pending, state, {}, fn)
    patch = pending.get(state)
    assert patch
    assert patch == {}
    assert list(patch.fns) == [fn]


def test_a_value_wins_over_functions_of_earlier_calls_of_the_same_handler(
    pending: PendingPatches, state: ObjectState
) -> None:
    def change(body: dict[str, Any]) -> None:
        body.setdefault("status", {}).update({"a": "earlier", "b": "earlier"})

    pending.contribute(state, {}, [change], by="one", logger=LOGGER)
    pending.contribute(state, {"status": {"c": "later"}}, [], by="one", logger=LOGGER)
    assert dict(pending.get(state) or {}) == {"status": {"c": "later"}}  # nothing undoes it
    pending.contribute(state, {"status": {"a": "later"}}, [], by="one", logger=LOGGER)
    after = preview({}, pending.get(state) or Patch())
    assert after["status"] == {"a": "later", "b": "earlier", "c": "later"}


def test_an_empty_contribution_is_none(pending: PendingPatches, state: ObjectState) -> None:
    observer = Observer()
    pending.observe(state, observer)
    assert not contribute(pending, state, {})
    assert pending.get(state) is None
    assert observer.contributions == []


def test_every_object_has_a_pending_patch_of_its_own(pending: PendingPatches, state: ObjectState) -> None:
    other = make_state("other")
    contribute(pending, state, {"spec": {"a": 1}})
    assert pending.get(other) is None
    contribute(pending, other, {"spec": {"a": 2}})
    assert (pending.get(state), pending.get(other)) == ({"spec": {"a": 1}}, {"spec": {"a": 2}})
    assert len(pending) == 2


@pytest.mark.parametrize("bad", [object(), {1, 2}.__iter__(), {("a", "b"): 1}])
def test_what_is_not_json_serializable_is_reported_and_dropped(
    bad: Any, pending: PendingPatches, state: ObjectState, caplog: pytest.LogCaptureFixture
) -> None:
    assert not contribute(pending, state, {"spec": {"bad": bad}}, by="the handler")
    assert pending.get(state) is None
    assert contribute(pending, state, {"spec": {"good": 1}})
    assert pending.get(state) == {"spec": {"good": 1}}
    assert (
        "the handler has a result or a patch that is not JSON-serializable, and it is dropped: spec.bad" in caplog.text
    )


def test_endless_data_are_reported_and_dropped(
    pending: PendingPatches, state: ObjectState, caplog: pytest.LogCaptureFixture
) -> None:
    endless: dict[str, Any] = {}
    endless["spec"] = endless
    assert not contribute(pending, state, endless)
    assert "not JSON-serializable" in caplog.text


def test_functions_are_kept_though_the_patch_is_not_json_serializable(
    pending: PendingPatches, state: ObjectState
) -> None:
    assert contribute(pending, state, {"spec": {"bad": object()}}, fn)
    patch = pending.get(state)
    assert patch is not None
    assert (dict(patch), list(patch.fns)) == ({}, [fn])


def test_what_a_handler_changes_later_in_its_own_data_is_not_stored(
    pending: PendingPatches, state: ObjectState
) -> None:
    data = {"spec": {"list": [1]}}
    contribute(pending, state, data)
    data["spec"]["list"].append(2)
    assert pending.get(state) == {"spec": {"list": [1]}}


# Taking and putting back.


def test_a_taken_patch_is_not_pending_any_more(pending: PendingPatches, state: ObjectState) -> None:
    contribute(pending, state, {"spec": {"a": 1}})
    patch, waiting = pending.take(state)
    assert patch == {"spec": {"a": 1}}
    assert waiting == []
    assert pending.get(state) is None
    assert len(pending) == 0


def test_taking_nothing_is_an_empty_patch(pending: PendingPatches, state: ObjectState) -> None:
    patch, waiting = pending.take(state)
    assert not patch
    assert patch.contributions == ()
    assert waiting == []


def test_what_is_put_back_comes_before_what_was_contributed_meanwhile(
    pending: PendingPatches, state: ObjectState
) -> None:
    contribute(pending, state, {"spec": {"a": 1, "b": 1}}, fn, by="first")
    taken, waiting = pending.take(state)
    contribute(pending, state, {"spec": {"b": 2}}, other_fn, by="second")
    pending.put_back(state, taken, waiting)
    patch = pending.get(state)
    assert patch is not None
    assert patch == {"spec": {"a": 1, "b": 2}}
    assert list(patch.fns) == [fn, other_fn]
    assert [item.by for item in patch.contributions] == ["first", "second"]


def test_putting_back_an_empty_patch_leaves_what_was_contributed_meanwhile(
    pending: PendingPatches, state: ObjectState
) -> None:
    taken, waiting = pending.take(state)
    pending.put_back(state, taken, waiting)
    assert pending.get(state) is None
    contribute(pending, state, {"spec": {"a": 1}})
    pending.put_back(state, taken, waiting)
    assert pending.get(state) == {"spec": {"a": 1}}


def test_what_was_sent_without_a_response_is_remembered_with_later_contributions(
    pending: PendingPatches, state: ObjectState
) -> None:
    contribute(pending, state, {}, fn)
    taken, waiting = pending.take(state)
    sent = SentPatch(wanted={"spec": {"a": 1}}, ops={None: []}, count=1)
    taken.sent = sent
    contribute(pending, state, {"spec": {"b": 2}})
    pending.put_back(state, taken, waiting)
    contribute(pending, state, {"spec": {"c": 3}})
    patch = pending.get(state)
    assert patch is not None
    assert patch.sent is sent


def test_what_one_has_contributed_is_withdrawn(pending: PendingPatches, state: ObjectState) -> None:
    contribute(pending, state, {"spec": {"a": 1}}, fn, by="first")
    contribute(pending, state, {"spec": {"b": 2}}, by="second")
    assert pending.withdraw(state, "first")
    assert not pending.withdraw(state, "first")
    patch = pending.get(state)
    assert patch == {"spec": {"b": 2}}
    assert not patch.fns


def test_what_may_be_stored_already_is_not_withdrawn(pending: PendingPatches, state: ObjectState) -> None:
    contribute(pending, state, {}, fn)
    taken, waiting = pending.take(state)
    taken.sent = SentPatch(wanted={"spec": {"a": 1}}, ops={None: []}, count=1)
    pending.put_back(state, taken, waiting)
    assert not pending.withdraw(state, "Handler")
    patch = pending.get(state)
    assert patch is not None
    assert list(patch.fns) == [fn]


# Those who wait for a patch to be stored.


async def test_those_who_wait_are_taken_with_the_patch_and_put_back_with_it(
    pending: PendingPatches, state: ObjectState
) -> None:
    contribute(pending, state, {"spec": {"a": 1}})
    first, second = pending.wait_for(state), pending.wait_for(state)
    assert pending.is_awaited(state)
    taken, waiting = pending.take(state)
    assert waiting == [first, second]
    assert not pending.is_awaited(state)
    third = pending.wait_for(state)
    pending.put_back(state, taken, waiting)
    assert pending.is_awaited(state)
    _, waiting = pending.take(state)
    assert {id(event) for event in waiting} == {id(event) for event in (first, second, third)}
    assert not any(event.is_set() for event in waiting)


async def test_a_forgotten_patch_is_dropped_and_those_who_wait_for_it_are_woken(
    pending: PendingPatches, state: ObjectState
) -> None:
    other = make_state("other")
    contribute(pending, state, {"spec": {"a": 1}})
    contribute(pending, other, {"spec": {"a": 1}})
    stored, others = pending.wait_for(state), pending.wait_for(other)
    pending.forget(state)
    assert pending.get(state) is None
    assert not pending.is_awaited(state)
    assert stored.is_set()
    assert not others.is_set()
    assert pending.get(other) == {"spec": {"a": 1}}
    pending.forget(state)
    assert len(pending) == 1


# Observers.


def test_observers_are_notified_of_contributions_to_their_object_while_they_observe_it(
    pending: PendingPatches, state: ObjectState
) -> None:
    one, two, other = Observer(), Observer(), Observer()
    pending.observe(state, one)
    pending.observe(state, two)
    pending.observe(make_state("other"), other)
    contribute(pending, state, {"spec": {"a": 1}})
    pending.unobserve(state, one)
    contribute(pending, state, {}, fn)
    assert one.contributions == [({"spec": {"a": 1}}, False)]
    assert two.contributions == [({"spec": {"a": 1}}, False), ({}, True)]
    assert other.contributions == []


def test_observers_are_notified_of_the_stored_state_and_of_what_is_still_pending(
    pending: PendingPatches, state: ObjectState
) -> None:
    observer = Observer()
    pending.observe(state, observer)
    pending.notify_stored(state, body(6))
    contribute(pending, state, {"spec": {"a": 1}})
    pending.notify_stored(state, body(7))
    assert observer.states == [(body(6), None), (body(7), {"spec": {"a": 1}})]


def test_an_object_is_observed_until_its_last_observer_is_gone(pending: PendingPatches, state: ObjectState) -> None:
    one, two = Observer(), Observer()
    assert not pending.is_observed(state)
    pending.observe(state, one)
    pending.observe(state, two)
    assert pending.is_observed(state)
    pending.unobserve(state, one)
    assert pending.is_observed(state)
    pending.unobserve(state, one)  # again, without effect
    pending.unobserve(state, two)
    assert not pending.is_observed(state)
    assert len(pending) == 0


def test_forgetting_a_patch_does_not_remove_observers(pending: PendingPatches, state: ObjectState) -> None:
    observer = Observer()
    pending.observe(state, observer)
    contribute(pending, state, {"spec": {"a": 1}})
    pending.forget(state)
    assert pending.is_observed(state)
    contribute(pending, state, {"spec": {"a": 2}})
    assert [patch for patch, _ in observer.contributions] == [{"spec": {"a": 1}}, {"spec": {"a": 2}}]


def test_contributions_are_merged_onto_the_newest_state_of_the_object(pending: PendingPatches) -> None:
    state = make_state(a={"x": 1})
    contribute(pending, state, {"spec": {"a": None}})
    contribute(pending, state, {"spec": {"a": {"y": 2}}})
    patch = pending.get(state)
    assert patch is not None
    assert msgspec.json.encode(dict(patch)) == b'{"spec":{"a":{"x":null,"y":2}}}'
