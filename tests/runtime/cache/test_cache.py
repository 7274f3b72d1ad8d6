"""The object cache: what is new of an object, and what is not."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from tests.runtime.objects import Queue, body, make, raw, take
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._kube.objects import parse_object
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.kind import Memory
from trioperator._runtime.cache.leaving import LEFT, Leaving
from trioperator._runtime.workqueue import Lane


def test_an_added_object_is_cached_by_its_uid_and_queued() -> None:
    cache, queue = make()
    assert cache.observe("ADDED", raw(5)) == "u"
    (state,) = cache
    assert queue.added == [state]
    assert queue.lanes == [Lane.FRESH]
    assert (state.namespace, state.name, state.uid, state.initial) == ("ns", "w", "u", False)
    assert take(state) == [("ADDED", 5)]
    assert not state.events


def test_an_object_of_the_initial_list_is_queued_in_the_initial_lane() -> None:
    cache, queue = make()
    cache.observe(None, raw(5))
    (state,) = queue.added
    assert state.initial
    assert queue.lanes == [Lane.INITIAL]


def test_an_event_of_an_initial_object_queues_it_in_the_fresh_lane() -> None:
    cache, queue = make()
    cache.observe(None, raw(5))
    cache.observe("MODIFIED", raw(6))
    assert queue.added[0] is queue.added[1]
    assert queue.lanes == [Lane.INITIAL, Lane.FRESH]
    assert take(queue.added[0]) == [("MODIFIED", 6)]  # only the newest state counts


def test_the_echo_of_an_own_write_is_dropped_and_what_comes_after_is_not() -> None:
    cache, queue = make()
    cache.observe("ADDED", raw(5))
    state = queue.added.pop()
    take(state)
    state.update(body(9))
    cache.observe("MODIFIED", raw(7))  # somebody else's, of which our own write knows
    cache.observe("MODIFIED", raw(9))
    assert queue.added == []
    cache.observe("MODIFIED", raw(10))
    assert queue.added == [state]
    assert state.has_newer()
    assert take(state) == [("MODIFIED", 10)]


def test_an_echo_that_comes_before_the_response_is_dropped_with_the_response() -> None:
    cache, queue = make()
    cache.observe("ADDED", raw(5))
    state = queue.added.pop()
    take(state)
    cache.observe("MODIFIED", raw(9))
    assert state.events
    state.update(body(9))
    assert not state.events
    cache.observe("MODIFIED", raw(10))
    state.update(body(9))
    assert take(state) == [("MODIFIED", 10)]


def test_an_echo_that_comes_before_the_response_reaches_event_handlers() -> None:
    cache, queue = make("event", "create")
    cache.observe("ADDED", raw(5))
    state = queue.added.pop()
    take(state)
    cache.observe("MODIFIED", raw(9))
    state.update(body(9))
    assert take(state) == [("MODIFIED", 9)]


def test_a_deletion_that_comes_before_the_response_is_not_dropped() -> None:
    cache, queue = make()
    cache.observe("ADDED", raw(5))
    state = queue.added.pop()
    take(state)
    cache.observe("DELETED", raw(8))
    state.update(body(9))
    assert take(state) == [("DELETED", 8)]


def test_echoes_reach_event_handlers() -> None:
    cache, queue = make("event", "create")
    cache.observe("ADDED", raw(5))
    state = queue.added.pop()
    take(state)
    state.update(body(9))
    cache.observe("MODIFIED", raw(9))
    assert queue.added == [state]
    assert not state.has_newer()
    assert take(state) == [("MODIFIED", 9)]


def test_a_late_response_does_not_set_the_version_back() -> None:
    cache, queue = make()
    cache.observe("ADDED", raw(12))
    take(queue.added[0])
    queue.added[0].update(body(9))
    assert queue.added[0].version == 12


def test_an_object_that_is_listed_again_unchanged_is_not_queued() -> None:
    for handlers in (("create",), ("event",)):
        cache, queue = make(*handlers)
        cache.observe(None, raw(5))
        cache.observe(None, raw(5))
        assert len(queue.added) == 1
        take(queue.added[0])
        cache.observe(None, raw(5))
        assert len(queue.added) == 1
        cache.observe(None, raw(6))
        assert len(queue.added) == 2


def test_an_object_that_is_listed_in_an_older_version_shows_a_restore_unless_it_was_read_meanwhile() -> None:
    restores: list[str] = []
    cache, _ = make()
    cache.versions.report_restores(lambda: restores.append("restored"))
    cache.observe(None, raw(5))
    cache.observe(LEFT, raw(9))
    cache.observe(None, raw(7))  # the list was on its way
    assert not restores
    cache.observe("MODIFIED", raw(11))
    cache.observe(None, raw(11))
    assert not restores
    cache.observe(None, raw(10))
    assert restores == ["restored"]


def test_a_deleted_object_is_queued_and_leaves_the_cache() -> None:
    cache, queue = make()
    cache.observe("ADDED", raw(5))
    state = queue.added[0]
    cache.observe("DELETED", raw(6))
    assert len(cache) == 0
    assert take(state) == [("DELETED", 6)]


def test_a_deletion_older_than_an_own_write_is_not_dropped() -> None:
    cache, queue = make()
    cache.observe("ADDED", raw(5))
    state = queue.added[0]
    take(state)
    state.update(body(9))
    cache.observe("DELETED", raw(9))
    assert state.has_newer()
    assert take(state) == [("DELETED", 9)]


def test_the_deletion_of_an_uncached_object_is_for_event_handlers_only() -> None:
    cache, queue = make("create")
    assert cache.observe("DELETED", raw(6)) == "u"
    assert (len(cache), queue.added) == (0, [])
    cache, queue = make("event")
    cache.observe("DELETED", raw(6))
    assert len(cache) == 0
    assert take(queue.added[0]) == [("DELETED", 6)]


def test_a_new_object_of_the_same_name_has_a_state_of_its_own() -> None:
    cache, queue = make()
    cache.observe("ADDED", raw(5, uid="one"))
    cache.observe("DELETED", raw(6, uid="one"))
    cache.observe("ADDED", raw(7, uid="two"))
    assert [state.uid for state in cache] == ["two"]
    assert queue.added[0] is not queue.added[-1]


def test_objects_without_a_uid_are_cached_by_their_names() -> None:
    cache, queue = make()
    assert cache.observe("ADDED", raw(5, uid=None)) == "ns/w"
    cache.observe("ADDED", raw(6, uid=None, name="x"))
    cache.observe("MODIFIED", raw(7, uid=None))
    assert len(cache) == 2
    assert queue.added[0] is queue.added[2]
    cache.replace({"ns/x"})
    assert [state.name for state in cache] == ["x"]


def test_an_object_missing_from_a_list_counts_as_deleted() -> None:
    cache, queue = make()
    for name in "abc":
        cache.observe(None, raw(5, name=name, uid=name))
    for state in queue.added:
        take(state)
    queue.added.clear()
    cache.replace({"a", "c"})
    assert sorted(state.name for state in cache) == ["a", "c"]
    (state,) = queue.added
    (event,) = state.take_events()
    assert (state.name, event.type) == ("b", "DELETED")
    assert event.decode() == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "b", "namespace": "ns", "uid": "b"},
    }


def test_optional_delete_handlers_get_the_last_state_of_an_object_missing_from_a_list() -> None:
    cache, queue = make("gone")
    cache.observe(None, raw(5, size=1))
    cache.observe("MODIFIED", raw(6, size=2))
    state = queue.added[0]
    take(state)
    cache.replace(set())
    (event,) = state.take_events()
    assert event.decode()["spec"] == {"size": 2}


def test_held_objects_are_queued_on_release_each_once_and_in_its_most_urgent_lane() -> None:
    cache, queue = make()
    cache.backlog.hold()
    cache.observe(None, raw(5, name="a", uid="a"))
    cache.observe(None, raw(5, name="b", uid="b"))
    cache.observe("MODIFIED", raw(6, name="b", uid="b"))
    cache.observe("ADDED", raw(7, name="c", uid="c"))
    assert queue.added == []
    cache.backlog.release()
    queued = [(state.name, lane) for state, lane in zip(queue.added, queue.lanes, strict=True)]
    assert queued == [("a", Lane.INITIAL), ("b", Lane.FRESH), ("c", Lane.FRESH)]
    cache.observe("ADDED", raw(8, name="d", uid="d"))
    assert queue.added[-1].name == "d"


def test_held_objects_without_pending_watch_events_are_not_queued() -> None:
    cache, queue = make()
    cache.backlog.hold()
    cache.observe(None, raw(5))
    take(next(iter(cache)))
    cache.backlog.release()
    assert queue.added == []


@pytest.mark.parametrize("kinds", [("create",), ("event",), ("create", "gone")])
def test_a_retired_cache_has_no_handlers_and_requeues_its_objects_once_more(kinds: tuple[str, ...]) -> None:
    cache, queue = make(*kinds)
    for name in "abc":
        cache.observe(None, raw(5, name=name, uid=name))
    for state in queue.added:
        take(state)
    queue.added.clear()
    cache.retire()
    assert cache.kind.retired
    assert cache.kind.handlers == KindHandlers()
    assert [state.name for state in queue.added] == ["a", "b", "c"]
    assert {state.cache.kind for state in queue.added} == {cache.kind}


# Opaque versions: of some aggregated APIs.


async def test_opaque_versions_are_ordered_by_their_arrival(autojump_clock: MockClock) -> None:
    cache, queue = make("event")
    for version in ("zz", "aa", "mm"):
        cache.observe("MODIFIED", raw(version))
    versions = [version for _, version in take(queue.added[0])]
    assert versions == sorted(versions)
    assert len(set(versions)) == 3


async def test_the_echo_of_an_opaque_write_is_awaited_and_dropped(autojump_clock: MockClock) -> None:
    cache, queue = make()
    cache.observe("ADDED", raw("a"))
    state = queue.added.pop()
    take(state)
    state.update(body("c"))
    cache.observe("MODIFIED", raw("b"))  # from before our write
    cache.observe("MODIFIED", raw("c"))
    assert queue.added == []
    cache.observe("MODIFIED", raw("d"))
    assert queue.added == [state]
    assert state.has_newer()


async def test_an_opaque_echo_that_never_comes_is_not_awaited_longer_than_the_timeout(
    autojump_clock: MockClock,
) -> None:
    cache, queue = make()
    cache.observe("ADDED", raw("a"))
    state = queue.added.pop()
    take(state)
    state.update(body("c"))
    await trio.sleep(4.9)
    cache.observe("MODIFIED", raw("b"))
    assert queue.added == []
    await trio.sleep(0.2)
    cache.observe("MODIFIED", raw("d"))
    assert queue.added == [state]


async def test_two_opaque_writes_are_awaited_until_the_last(autojump_clock: MockClock) -> None:
    cache, queue = make()
    cache.observe("ADDED", raw("a"))
    state = queue.added.pop()
    take(state)
    state.update(body("b"))
    state.update(body("c"))
    cache.observe("MODIFIED", raw("b"))
    cache.observe("MODIFIED", raw("c"))
    assert queue.added == []
    cache.observe("MODIFIED", raw("d"))
    assert queue.added == [state]


async def test_a_deletion_before_the_echo_of_an_opaque_write_is_not_dropped(autojump_clock: MockClock) -> None:
    cache, queue = make()
    cache.observe("ADDED", raw("a"))
    state = queue.added.pop()
    take(state)
    state.update(body("b"))
    cache.observe("DELETED", raw("x"))
    assert queue.added == [state]
    assert state.has_newer()


@pytest.mark.parametrize("unseen", [False, True])
async def test_nothing_is_expected_of_an_object_that_is_gone(unseen: bool, autojump_clock: MockClock) -> None:
    cache, queue = make()
    cache.observe("ADDED", raw("a"))
    queue.added[0].update(body("b"))
    assert cache.versions.is_expected("u")
    if unseen:
        cache.replace(set())
    else:
        cache.observe("DELETED", raw("x"))
    assert not cache.versions.is_expected("u")


async def test_a_change_after_an_opaque_echo_that_came_before_the_response_is_not_lost(
    autojump_clock: MockClock,
) -> None:
    cache, queue = make()
    cache.observe("ADDED", raw("a"))
    state = queue.added.pop()
    take(state)
    cache.observe("MODIFIED", raw("b"))  # before the response to the patch
    state.update(body("b"))
    take(state)
    queue.added.clear()
    await trio.sleep(1)
    cache.observe("MODIFIED", raw("c"))
    assert queue.added == [state]
    assert state.has_newer()


async def test_a_change_that_a_list_brings_instead_of_an_opaque_echo_is_not_lost(autojump_clock: MockClock) -> None:
    cache, queue = make()
    cache.observe("ADDED", raw("a"))
    state = queue.added.pop()
    take(state)
    state.update(body("b"))
    cache.observe(None, raw("c"))  # the watch was interrupted, and never brings "b"
    await trio.sleep(10)
    assert queue.added == [state]


async def test_a_change_queued_with_an_early_opaque_echo_is_not_lost(autojump_clock: MockClock) -> None:
    cache, queue = make()
    cache.observe("ADDED", raw("a"))
    state = queue.added.pop()
    take(state)
    cache.observe("MODIFIED", raw("b"))  # before the response to the patch
    cache.observe("MODIFIED", raw("c"))
    state.update(body("b"))
    assert state.has_newer()


# On standby.


def make_standby(*kinds: str, memories: dict[str, Memory] | None = None) -> tuple[ObjectCache, Queue]:
    cache, queue = make(*kinds)
    if memories is not None:
        cache.leaving = Leaving(memories)
    queue.owned = False
    return cache, queue


def activate(cache: ObjectCache, queue: Queue) -> None:
    """End the standby, as a router does when a shard is owned."""
    queue.owned = True
    for state in list(cache):
        cache.take_over(state)


@pytest.mark.parametrize("kind", ["create", "event"])
def test_a_standby_keeps_the_newest_state_of_each_object_as_if_it_was_listed(kind: str) -> None:
    cache, queue = make_standby(kind)
    cache.observe(None, raw(5, name="a", uid="a"))
    cache.observe("ADDED", raw(6, name="b", uid="b"))
    for version in range(7, 300):
        cache.observe("MODIFIED", raw(version, name="a", uid="a"))
    assert queue.added == []
    activate(cache, queue)
    assert [(state.name, state.initial, lane) for state, lane in zip(queue.added, queue.lanes, strict=True)] == [
        ("a", True, Lane.INITIAL),
        ("b", True, Lane.INITIAL),
    ]
    (event,) = queue.added[0].take_events()
    assert (event.type, event.version) == (None, 299)


def test_a_standby_drops_what_is_deleted() -> None:
    cache, queue = make_standby("create", "event", "gone")
    for name in ("a", "b", "c"):
        cache.observe(None, raw(5, name=name, uid=name))
    cache.observe("DELETED", raw(6, name="a", uid="a"))
    cache.observe("DELETED", raw(6, name="unknown", uid="u"))
    cache.replace(["c"])
    activate(cache, queue)
    assert [state.name for state in queue.added] == ["c"]
    cache.observe("DELETED", raw(7, name="c", uid="c"))
    assert queue.added[-1].name == "c"


@pytest.mark.parametrize(
    ("kinds", "kept"), [(("create",), False), (("event",), False), (("gone",), True), (("index",), False)]
)
def test_what_a_standby_has_kept_is_dropped_when_it_is_handled_unless_handlers_need_it(
    kinds: tuple[str, ...], kept: bool
) -> None:
    cache, queue = make_standby(*kinds)
    cache.observe(None, raw(5))
    (state,) = cache
    assert (state.last_object is not None) is (kinds != ("index",))  # nothing is ever done for it
    activate(cache, queue)
    assert (state.last_object is not None) is kept


def test_what_is_taken_over_while_the_cache_is_held_is_queued_on_release() -> None:
    cache, queue = make_standby()
    cache.backlog.hold()
    cache.observe(None, raw(5))
    activate(cache, queue)
    assert queue.added == []
    cache.backlog.release()
    assert queue.lanes == [Lane.INITIAL]


def test_an_object_that_was_deleted_after_it_was_taken_over_while_held_is_queued_for_that() -> None:
    cache, queue = make_standby("create", "gone")
    cache.backlog.hold()
    cache.observe(None, raw(5))
    activate(cache, queue)
    cache.observe("DELETED", raw(6))
    cache.backlog.release()
    (state,) = queue.added
    assert [event.type for event in state.take_events()] == ["DELETED"]


@pytest.mark.parametrize(
    ("type", "on_standby", "initial"), [(None, False, True), ("ADDED", False, False), ("ADDED", True, True)]
)
def test_an_object_that_is_indexed_first_is_initial_if_it_was_when_it_came(
    type: str | None, on_standby: bool, initial: bool
) -> None:
    cache, queue = make("create", "index")
    queue.owned = not on_standby
    state = cache.admit(type, raw(5))
    assert cache.admit("MODIFIED", raw(6)) is state
    activate(cache, queue)
    cache.observe("MODIFIED", raw(6))
    assert queue.added == [state]
    assert state.initial is initial


def test_objects_that_are_only_indexed_are_known_and_not_queued() -> None:
    cache, queue = make("index")
    cache.observe(None, raw(5))
    assert len(cache) == 1
    cache.observe("DELETED", raw(6))
    assert not queue.added
    assert len(cache) == 0


def test_what_is_remembered_of_an_object_is_taken_once() -> None:
    memories = {"a": Memory({"n": 1}, initial=False, ended=frozenset("d")), "b": Memory(None, initial=True)}
    cache, _ = make_standby("create", memories=memories)
    for name in ("a", "b", "c"):
        cache.observe(None, raw(5, name=name, uid=name))
    assert {state.name: state.initial for state in cache} == {"a": False, "b": True, "c": True}
    assert cache.objects["a"].get_memo() == {"n": 1}
    assert {state.name: state.remember().ended for state in cache} == {"a": {"d"}, "b": set(), "c": set()}
    assert not memories


def test_an_object_that_cannot_be_decoded_is_deleted_by_a_list_without_it() -> None:
    cache, _ = make("gone")
    metadata = b'{"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "5"}'
    cache.observe(None, parse_object(b'{"metadata": %b, "spec": "\xff"}' % metadata))
    (state,) = cache
    take(state)
    cache.replace(set())
    (event,) = state.take_events()
    assert event.type == "DELETED"
    assert event.decode()["metadata"] == {"name": "w", "namespace": "ns", "uid": "u"}


def test_an_object_without_a_uid_is_cached_by_its_name() -> None:
    cache, _ = make()
    obj = raw(5, uid=None)
    assert cache.observe("ADDED", obj) == obj.key == "ns/w"


def test_a_cache_of_what_the_server_divides_has_only_what_is_handled_here() -> None:
    cache, queue = make()
    cache.be_partial()
    cache.observe(None, raw(1))
    queue.owned = False
    cache.observe(None, raw(2, uid="foreign"))
    assert [state.uid for state in cache] == ["u"]
    cache.observe("MODIFIED", raw(3))
    assert [state.seen_version for state in cache] == [3], "it may be being drained"
    cache.give_up(0)
    assert not len(cache)
    cache.be_whole()
    cache.observe(None, raw(4))
    assert [state.last_object is not None for state in cache] == [True], "it is followed"
    cache.give_up(0)
    assert len(cache) == 1


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_deletion_before_the_list_of_another_version_is_handled_once(is_seen: bool) -> None:
    before, queue = make("event")
    before.observe("ADDED", raw(5))
    (state,) = queue.added
    take(state)
    after, later = make("event")
    after.predecessors.add(before)
    if is_seen:
        before.observe("DELETED", raw(6))
    before.retire()
    after.replace(())
    assert [other.uid for other in later.added] == ([] if is_seen else ["u"])
    assert take(state) == ([("DELETED", 6)] if is_seen else [])
    assert not after.objects


def test_a_memo_that_is_made_in_an_earlier_version_is_shared_with_the_one_that_has_taken_over() -> None:
    (earlier, _), (newer, _) = make("create"), make("create")
    earlier.shared.memo = newer.shared.memo = {}
    earlier.observe("ADDED", raw(5))
    newer.succeed(earlier)
    newer.observe(None, raw(5))
    (before,), (after,) = earlier, newer
    newer.predecessors.hand_over(after)
    assert before.get_memo() is after.get_memo()
