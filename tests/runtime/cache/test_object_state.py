"""The state of one object: idle and open, its newest body, its revisions, who listens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.runtime.objects import body, cached, make, raw
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.cache.watch_event import WatchEvent
from trioperator._runtime.workqueue import Lane


def test_an_object_is_open_from_its_watch_event_until_nothing_is_left_to_do() -> None:
    cache, queue = make()
    cache.observe(None, raw(5))
    state = queue.added[0]
    assert state.body is None  # its watch event is pending
    (event,) = state.take_events()
    state.advance(event)
    assert state.body == body(5)
    state.close()
    assert [state.body, state.last_object, state.events] == [None] * 3


def test_an_idle_object_stays_idle_with_an_older_watch_event() -> None:
    _, _, state = cached()
    state.update(body(9))
    state.close()
    state.advance(WatchEvent("MODIFIED", 7, raw(7)))
    assert state.body is None
    state.advance(WatchEvent("MODIFIED", 10, raw(10)))
    assert state.body == body(10)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (lambda state: state.advance(WatchEvent("MODIFIED", 6, raw(6))), True),
        (lambda state: state.advance(WatchEvent("MODIFIED", 4, raw(4))), False),
        (lambda state: state.advance(WatchEvent("DELETED", 6, raw(6))), True),
        (lambda state: state.update(body(6)), True),
        (lambda state: state.update(body(5)), True),  # a response that has changed nothing
        (lambda state: state.restart(), True),
        (lambda state: state.close(), False),
    ],
)
def test_each_new_body_has_a_new_revision(change: Callable[[ObjectState], None], differs: bool) -> None:
    _, _, state = cached()
    before = state.revision
    change(state)
    assert (state.revision != before) is differs


def test_a_restarted_object_is_idle_and_takes_the_next_state_whatever_its_version() -> None:
    _, _, state = cached()
    state.restart()
    assert state.body is None
    state.advance(WatchEvent(None, 3, raw(3)))
    assert state.body == body(3)


def test_an_older_watch_event_does_not_replace_the_response_to_an_own_write() -> None:
    _, _, state = cached("event", "create")
    state.update(body(9, size=2))
    state.advance(WatchEvent("MODIFIED", 7, raw(7, size=1)))
    assert state.body == body(9, size=2)
    state.advance(WatchEvent("MODIFIED", 10, raw(10, size=3)))
    assert state.body == body(10, size=3)


def test_a_deleted_object_stays_deleted_with_its_last_state() -> None:
    _, _, state = cached()
    assert not state.has_vanished()
    state.advance(WatchEvent("DELETED", 6, raw(6, size=2)))
    assert state.gone
    assert state.has_vanished()
    state.advance(WatchEvent("MODIFIED", 7, raw(7, size=3)))
    assert state.body == body(6, size=2)


def test_the_last_state_is_not_decoded_of_an_object_whose_deletion_is_handled() -> None:
    _, _, state = cached("delete")
    state.close()
    state.mark_deletion_handled()
    state.advance(WatchEvent("DELETED", 6, raw(6)))
    assert state.gone
    assert state.body is None


def test_an_object_has_vanished_as_soon_as_its_deletion_is_pending() -> None:
    cache, _, state = cached()
    cache.observe("DELETED", raw(6))
    assert not state.gone
    assert state.has_vanished()


def test_listeners_get_newer_states_only_while_they_listen() -> None:
    cache, _, state = cached("event", "create")
    heard: list[tuple[str | None, int]] = []
    with state.listening(lambda event: heard.append((event.type, event.version))):
        cache.observe("MODIFIED", raw(6))
        state.update(body(9))
        cache.observe("MODIFIED", raw(9))  # the echo
        cache.observe("DELETED", raw(9))
    cache.observe("DELETED", raw(10))
    assert heard == [("MODIFIED", 6), ("MODIFIED", 9), ("DELETED", 9)]
    assert not state.cache.shared.listeners


def test_who_begins_to_listen_is_told_what_is_pending() -> None:
    cache, _, state = cached()
    heard: list[tuple[str | None, int]] = []
    cache.observe("MODIFIED", raw(6))
    state.update(body(6))
    cache.observe("MODIFIED", raw(7))
    with state.listening(lambda event: heard.append((event.type, event.version))):
        assert heard == [("MODIFIED", 7)]
        cache.observe("DELETED", raw(8))
    assert heard == [("MODIFIED", 7), ("DELETED", 8)]
    with state.listening(lambda event: heard.append((event.type, event.version))):
        assert heard[-1] == ("DELETED", 8)


def test_an_object_is_requeued_without_a_watch_event_unless_it_is_gone() -> None:
    _, queue, state = cached()
    state.requeue()
    assert (queue.added, queue.lanes) == ([state], [Lane.FRESH])
    assert not state.events
    state.advance(WatchEvent("DELETED", 6, raw(6)))
    state.requeue()
    assert queue.added == [state]


def test_objects_in_a_namespace_share_its_name_in_memory() -> None:
    cache, _ = make()
    for uid in ("one", "other"):
        cache.observe(None, raw(1, uid=uid))
    one, other = cache
    assert one.namespace is other.namespace
