"""The object table: what is news of an object, and what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import trio
from trio.testing import MockClock

import trioperator
from trioperator.handling.registry import KindHandlers
from trioperator.kube.objects import RawObject, parse_object
from trioperator.model.resource import Resource
from trioperator.runtime.table import Kind, Known, ObjectTable

on = trioperator.on
WIDGETS = Resource("example.com", "v1", "widgets", kind="Widget", subresources=frozenset({"status"}))


class Queue:
    """Remember what was queued."""

    def __init__(self) -> None:
        self.added: list[Known] = []

    def add(self, known: Known) -> None:
        self.added.append(known)


def make(*kinds: str) -> tuple[ObjectTable, Queue]:
    """Make a table for handlers of these kinds, of changes by default."""
    registry = trioperator.OperatorRegistry()

    async def fn(**_: Any) -> None:
        pass

    for kind in kinds or ("create",):
        match kind:
            case "event":
                on.event("widgets", registry=registry)(fn)
            case "gone":
                on.delete("widgets", optional=True, registry=registry)(fn)
            case _:
                on.create("widgets", registry=registry)(fn)
    queue = Queue()
    kind_of = Kind(WIDGETS, KindHandlers.of(registry.resource_handlers()))
    return ObjectTable(kind_of, queue, memo=None, consistency_timeout=5.0), queue


def raw(version: int | str, *, name: str = "w", uid: str | None = "u", **spec: Any) -> RawObject:
    """Make an object as the server sends it."""
    return parse_object(msgspec.json.encode(body(version, name=name, uid=uid, **spec)))


def body(version: int | str, *, name: str = "w", uid: str | None = "u", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "resourceVersion": str(version)} | ({"uid": uid} if uid else {})
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec}


def absorb(known: Known) -> list[tuple[str | None, int]]:
    """Take what a worker would take."""
    notices = list(known.take())
    for notice in notices:
        known.version = max(known.version, notice.version)
    return [(notice.type, notice.version) for notice in notices]


def test_an_object_is_known_by_its_uid_and_queued() -> None:
    table, queue = make()
    assert table.observe("ADDED", raw(5)) == "u"
    (known,) = table
    assert queue.added == [known]
    assert (known.namespace, known.name, known.uid, known.initial, known.fresh) == ("ns", "w", "u", False, True)
    assert absorb(known) == [("ADDED", 5)]
    assert not known.has_work


def test_what_a_list_finds_is_initial_and_not_fresh() -> None:
    table, queue = make()
    table.observe(None, raw(5))
    (known,) = queue.added
    assert (known.initial, known.fresh) == (True, False)


def test_a_queued_initial_object_becomes_fresh_by_an_event() -> None:
    table, queue = make()
    table.observe(None, raw(5))
    table.observe("MODIFIED", raw(6))
    assert queue.added[0] is queue.added[1]
    assert queue.added[0].fresh
    assert absorb(queue.added[0]) == [("MODIFIED", 6)]  # only the newest state counts


def test_the_echo_of_an_own_write_is_dropped_and_what_comes_after_is_not() -> None:
    table, queue = make()
    table.observe("ADDED", raw(5))
    known = queue.added.pop()
    absorb(known)
    table.wrote(known, body(9))
    table.observe("MODIFIED", raw(7))  # somebody else's, of which our own write knows
    table.observe("MODIFIED", raw(9))
    assert queue.added == []
    table.observe("MODIFIED", raw(10))
    assert queue.added == [known]
    assert known.has_newer()
    assert absorb(known) == [("MODIFIED", 10)]


def test_an_echo_that_is_faster_than_the_answer_is_dropped_with_the_answer() -> None:
    table, queue = make()
    table.observe("ADDED", raw(5))
    known = queue.added.pop()
    absorb(known)
    table.observe("MODIFIED", raw(9))
    assert known.has_work
    table.wrote(known, body(9))
    assert not known.has_work
    table.observe("MODIFIED", raw(10))
    table.wrote(known, body(9))
    assert absorb(known) == [("MODIFIED", 10)]


def test_an_echo_that_is_faster_than_the_answer_reaches_event_handlers() -> None:
    table, queue = make("event", "create")
    table.observe("ADDED", raw(5))
    known = queue.added.pop()
    absorb(known)
    table.observe("MODIFIED", raw(9))
    table.wrote(known, body(9))
    assert absorb(known) == [("MODIFIED", 9)]


def test_a_deletion_that_is_faster_than_the_answer_is_not_dropped() -> None:
    table, queue = make()
    table.observe("ADDED", raw(5))
    known = queue.added.pop()
    absorb(known)
    table.observe("DELETED", raw(8))
    table.wrote(known, body(9))
    assert absorb(known) == [("DELETED", 8)]


def test_echoes_reach_event_handlers() -> None:
    table, queue = make("event", "create")
    table.observe("ADDED", raw(5))
    known = queue.added.pop()
    absorb(known)
    table.wrote(known, body(9))
    table.observe("MODIFIED", raw(9))
    assert queue.added == [known]
    assert not known.has_newer()
    assert absorb(known) == [("MODIFIED", 9)]


def test_an_answer_that_comes_late_does_not_set_the_version_back() -> None:
    table, queue = make()
    table.observe("ADDED", raw(12))
    absorb(queue.added[0])
    table.wrote(queue.added[0], body(9))
    assert queue.added[0].version == 12


def test_what_is_listed_once_more_is_no_news() -> None:
    for handlers in (("create",), ("event",)):
        table, queue = make(*handlers)
        table.observe(None, raw(5))
        table.observe(None, raw(5))
        assert len(queue.added) == 1
        absorb(queue.added[0])
        table.observe(None, raw(5))
        assert len(queue.added) == 1
        table.observe(None, raw(6))
        assert len(queue.added) == 2


def test_a_deletion_is_noted_and_the_object_is_not_known_any_more() -> None:
    table, queue = make()
    table.observe("ADDED", raw(5))
    known = queue.added[0]
    table.observe("DELETED", raw(6))
    assert len(table) == 0
    assert absorb(known) == [("DELETED", 6)]


def test_a_deletion_older_than_an_own_write_is_noted_too() -> None:
    table, queue = make()
    table.observe("ADDED", raw(5))
    known = queue.added[0]
    absorb(known)
    table.wrote(known, body(9))
    table.observe("DELETED", raw(9))
    assert known.has_newer()
    assert absorb(known) == [("DELETED", 9)]


def test_the_deletion_of_what_was_never_known_is_for_event_handlers_only() -> None:
    table, queue = make("create")
    assert table.observe("DELETED", raw(6)) == "u"
    assert (len(table), queue.added) == (0, [])
    table, queue = make("event")
    table.observe("DELETED", raw(6))
    assert len(table) == 0
    assert absorb(queue.added[0]) == [("DELETED", 6)]


def test_a_new_object_of_the_same_name_is_another_one() -> None:
    table, queue = make()
    table.observe("ADDED", raw(5, uid="one"))
    table.observe("DELETED", raw(6, uid="one"))
    table.observe("ADDED", raw(7, uid="two"))
    assert [known.uid for known in table] == ["two"]
    assert queue.added[0] is not queue.added[-1]


def test_objects_without_a_uid_are_known_by_their_names() -> None:
    table, queue = make()
    assert table.observe("ADDED", raw(5, uid=None)) == "ns/w"
    table.observe("ADDED", raw(6, uid=None, name="x"))
    table.observe("MODIFIED", raw(7, uid=None))
    assert len(table) == 2
    assert queue.added[0] is queue.added[2]
    table.conclude({"ns/x"})
    assert [known.name for known in table] == ["x"]


def test_what_has_vanished_from_a_list_is_gone() -> None:
    table, queue = make()
    for name in "abc":
        table.observe(None, raw(5, name=name, uid=name))
    for known in queue.added:
        absorb(known)
    queue.added.clear()
    table.conclude({"a", "c"})
    assert sorted(known.name for known in table) == ["a", "c"]
    (known,) = queue.added
    (notice,) = known.take()
    assert (known.name, notice.type) == ("b", "DELETED")
    assert notice.decode() == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "b", "namespace": "ns", "uid": "b"},
    }


def test_the_last_state_of_what_has_vanished_is_there_for_optional_delete_handlers() -> None:
    table, queue = make("gone")
    table.observe(None, raw(5, size=1))
    table.observe("MODIFIED", raw(6, size=2))
    known = queue.added[0]
    absorb(known)
    table.conclude(set())
    (notice,) = known.take()
    assert notice.decode()["spec"] == {"size": 2}


def test_nothing_is_kept_of_bodies_where_nobody_needs_them() -> None:
    table, queue = make()
    table.observe(None, raw(5))
    known = queue.added[0]
    absorb(known)
    known.forget_state()
    assert (known.body, known.last, known.notices, known.pending, known.unfinished) == (None,) * 5


# Opaque versions: of some aggregated APIs.


async def test_opaque_versions_count_as_they_come(autojump_clock: MockClock) -> None:
    table, queue = make("event")
    for version in ("zz", "aa", "mm"):
        table.observe("MODIFIED", raw(version))
    versions = [version for _, version in absorb(queue.added[0])]
    assert versions == sorted(versions)
    assert len(set(versions)) == 3


async def test_the_echo_of_an_opaque_write_is_awaited_and_dropped(autojump_clock: MockClock) -> None:
    table, queue = make()
    table.observe("ADDED", raw("a"))
    known = queue.added.pop()
    absorb(known)
    table.wrote(known, body("c"))
    table.observe("MODIFIED", raw("b"))  # from before our write
    table.observe("MODIFIED", raw("c"))
    assert queue.added == []
    table.observe("MODIFIED", raw("d"))
    assert queue.added == [known]
    assert known.has_newer()


async def test_an_opaque_echo_that_never_comes_is_not_awaited_longer_than_the_timeout(
    autojump_clock: MockClock,
) -> None:
    table, queue = make()
    table.observe("ADDED", raw("a"))
    known = queue.added.pop()
    absorb(known)
    table.wrote(known, body("c"))
    await trio.sleep(4.9)
    table.observe("MODIFIED", raw("b"))
    assert queue.added == []
    await trio.sleep(0.2)
    table.observe("MODIFIED", raw("d"))
    assert queue.added == [known]


async def test_two_opaque_writes_are_awaited_until_the_last(autojump_clock: MockClock) -> None:
    table, queue = make()
    table.observe("ADDED", raw("a"))
    known = queue.added.pop()
    absorb(known)
    table.wrote(known, body("b"))
    table.wrote(known, body("c"))
    table.observe("MODIFIED", raw("b"))
    table.observe("MODIFIED", raw("c"))
    assert queue.added == []
    table.observe("MODIFIED", raw("d"))
    assert queue.added == [known]


async def test_a_deletion_in_the_window_of_an_opaque_write_is_noted(autojump_clock: MockClock) -> None:
    table, queue = make()
    table.observe("ADDED", raw("a"))
    known = queue.added.pop()
    absorb(known)
    table.wrote(known, body("b"))
    table.observe("DELETED", raw("x"))
    assert queue.added == [known]
    assert known.has_newer()


async def test_a_change_after_an_opaque_echo_that_was_faster_than_the_answer_is_not_lost(
    autojump_clock: MockClock,
) -> None:
    table, queue = make()
    table.observe("ADDED", raw("a"))
    known = queue.added.pop()
    absorb(known)
    table.observe("MODIFIED", raw("b"))  # the stream was faster than the answer to the patch
    table.wrote(known, body("b"))
    absorb(known)
    queue.added.clear()
    await trio.sleep(1)
    table.observe("MODIFIED", raw("c"))
    assert queue.added == [known]
    assert known.has_newer()


async def test_a_change_that_a_list_brings_instead_of_an_opaque_echo_is_not_lost(autojump_clock: MockClock) -> None:
    table, queue = make()
    table.observe("ADDED", raw("a"))
    known = queue.added.pop()
    absorb(known)
    table.wrote(known, body("b"))
    table.observe(None, raw("c"))  # the stream was interrupted, and "b" is history
    await trio.sleep(10)
    assert queue.added == [known]


async def test_a_change_queued_with_a_faster_opaque_echo_is_not_lost(autojump_clock: MockClock) -> None:
    table, queue = make()
    table.observe("ADDED", raw("a"))
    known = queue.added.pop()
    absorb(known)
    table.observe("MODIFIED", raw("b"))  # the stream was faster than the answer to the patch
    table.observe("MODIFIED", raw("c"))
    table.wrote(known, body("b"))
    assert known.has_newer()
