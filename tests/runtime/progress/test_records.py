"""Records on objects: the states of handlers, the seen configuration, and the last-handled one."""

from __future__ import annotations

import datetime
import json
from typing import Any

import msgspec
import pytest

from tests.runtime.harness import make_state, patched
from trioperator._concurrency.clock import wall_now
from trioperator._handling.calls.handler_state import MAX_ID, MAX_SUBREFS, HandlerState
from trioperator._handling.guard import guarded
from trioperator._handling.storages.annotation_keys import annotation_keys
from trioperator._handling.storages.diffbase import AnnotationsDiffBaseStorage
from trioperator._handling.storages.progress import (
    AnnotationsProgressStorage,
    MultiProgressStorage,
    ProgressStorage,
    SmartProgressStorage,
    StatusProgressStorage,
)
from trioperator._model.body import Body
from trioperator._model.patch import Patch
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.progress.records import RecordStore

NOW = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
SEEN = "trioperator.dev/seen-configuration"
MANAGED = "trioperator.dev/kopf-managed"
LAST = "trioperator.dev/last-handled-configuration"


class OwnStorage(AnnotationsProgressStorage):
    """A storage of the user's."""


def make_records(progress: ProgressStorage | None = None) -> RecordStore:
    return RecordStore(progress=progress or SmartProgressStorage(), diffbase=AnnotationsDiffBaseStorage())


def make_object(**annotations: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "1", "annotations": annotations}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": 1}}


def make(*ids: str, **annotations: Any) -> ObjectState:
    return make_state(make_object(**annotations), *ids)


def body(state: ObjectState) -> Body:
    assert state.body is not None
    return Body(state.body)


def state(**fields: Any) -> HandlerState:
    return HandlerState(started=NOW, **{"purpose": "create", **fields})


def store(records: RecordStore, object: ObjectState, states: dict[str, HandlerState], *seen: bytes) -> dict[str, Any]:
    """Store states on an object, and return its annotations."""
    patch = Patch()
    records.store(object, states, seen=seen, body=body(object), patch=patch)
    assert object.body is not None
    object.body = patched(dict(object.body), patch)
    annotations: dict[str, Any] = object.body["metadata"]["annotations"]
    return annotations


def encode(**spec: Any) -> bytes:
    return msgspec.json.encode({"spec": spec})


async def test_an_object_without_records_has_no_states() -> None:
    object = make("a", "b")
    assert make_records().fetch(object, body(object)) == ({}, ())


async def test_what_was_stored_is_fetched() -> None:
    object, records = make("a", "b"), make_records()
    states = {"a": state(success=True), "b": state(retries=2, delayed=NOW)}
    store(records, object, states, encode(size=1))
    assert records.fetch(object, body(object)) == (states, (encode(size=1),))


async def test_records_of_handlers_that_the_operator_does_not_have_are_left_alone() -> None:
    object, records = make("a"), make_records()
    annotations = store(records, object, {"a": state(), "other": state()})
    assert {"trioperator.dev/a", "trioperator.dev/other"} <= annotations.keys()
    assert records.fetch(object, body(object))[0].keys() == {"a"}
    patch = Patch()
    records.purge(object, {}, body=body(object), patch=patch)
    assert patched(dict(object.body or {}), patch)["metadata"]["annotations"].keys() == {
        "trioperator.dev/other",
        MANAGED,
    }


async def test_records_of_a_former_cause_say_only_which_sub_handlers_have_records() -> None:
    object, records = make("a", "b", **{LAST: '{"spec":{"size":0}}'}), make_records()
    states = {"a": state(success=True), "b": state(retries=2, subrefs=("b/x",)), "b/x": state(failure=True)}
    store(records, object, states)
    assert records.fetch(object, body(object))[0] == states
    assert object.body is not None
    object.body["metadata"]["annotations"][LAST] = '{"spec":{"size":1}}'
    found, _ = records.fetch(object, body(object))
    assert [(key, each.finished, each.retries, each.subrefs) for key, each in found.items()] == [
        ("a", False, 0, ()),
        ("b", False, 0, ("b/x",)),
    ]
    patch = Patch()
    records.purge(object, {}, body=body(object), patch=patch)
    assert patched(dict(object.body), patch)["metadata"]["annotations"].keys() == {LAST, MANAGED}


async def test_records_of_a_creation_do_not_count_once_it_was_handled() -> None:
    object, records = make("a"), make_records()
    store(records, object, {"a": state(retries=2)})
    assert records.fetch(object, body(object))[0]["a"].retries == 2
    assert object.body is not None
    object.body["metadata"]["annotations"][LAST] = '{"spec":{}}'
    assert records.fetch(object, body(object))[0]["a"].retries == 0


async def test_records_of_kopf_count_for_any_cause() -> None:
    record = json.dumps({"started": NOW.isoformat(), "purpose": "create", "retries": 2, "success": True})
    object = make("a", **{"trioperator.dev/a": record, LAST: '{"spec":{}}'})
    assert make_records().fetch(object, body(object))[0]["a"].success


async def test_the_seen_configuration_counts_only_if_a_handler_was_called() -> None:
    object, records = make("a"), make_records()
    store(records, object, {"a": state()}, encode(size=1))
    assert records.fetch(object, body(object))[1] == ()
    for called in (state(retries=1), state(attempted=NOW), state(success=True), state(failure=True)):
        store(records, object, {"a": called}, encode(size=1))
        assert records.fetch(object, body(object))[1] == (encode(size=1),)


async def test_the_seen_configuration_counts_alone_too_as_a_mark_of_what_is_held() -> None:
    object, records = make("a"), make_records()
    mark = records.make_mark(object, [encode(size=1)], body=body(object))
    object.body = patched(dict(object.body or {}), mark)
    assert records.fetch(object, body(object)) == ({}, (encode(size=1),))
    assert not records.make_mark(object, [encode(size=2)], body=body(object))  # one is enough
    purging = Patch()
    records.purge(object, {}, body=body(object), patch=purging)
    assert SEEN not in patched(dict(object.body), purging)["metadata"]["annotations"]


async def test_states_of_nested_sub_handlers_are_fetched_by_the_references_of_their_parent() -> None:
    object, records = make("a"), make_records()
    states = {"a": state(subrefs=("a/x", "a/x/1")), "a/x": state(subrefs=("a/x/1",)), "a/x/1": state(success=True)}
    store(records, object, states)
    assert records.fetch(object, body(object))[0] == states


async def test_references_to_others_than_own_sub_handlers_are_ignored() -> None:
    object, records = make("a", "b"), make_records()
    store(records, object, {"a": state(subrefs=("b", "c", "a/x")), "b": state(), "c": state()})
    states, _ = records.fetch(object, body(object))
    assert states.keys() == {"a", "b"}
    assert states["a"].subrefs == ("a/x",)


async def test_a_forged_record_purges_no_annotations_of_others() -> None:
    object, records = make("a", **{"trioperator.dev/c": "{}"}), make_records()
    store(records, object, {"a": state(subrefs=("c", "a/x"))})
    patch = Patch()
    records.purge(object, {}, body=body(object), patch=patch)
    assert "trioperator.dev/c" not in patch["metadata"]["annotations"]


async def test_an_incomplete_record_begins_now(autojump_clock: object) -> None:
    object = make("a", **{"trioperator.dev/a": json.dumps({"retries": 3})})
    states, _ = make_records().fetch(object, body(object))
    assert states == {"a": HandlerState(started=wall_now(), retries=3)}


async def test_all_that_was_stored_is_purged_known_or_not() -> None:
    object, records = make("a", "b"), make_records()
    store(
        records,
        object,
        {"a": state(subrefs=("a/x",)), "a/x": state(), "b": state(), "b/y": state()},
        encode(size=1),
    )
    patch = Patch()
    records.purge(object, {"b": state(subrefs=("b/y",))}, body=body(object), patch=patch)
    assert patched(dict(object.body or {}), patch)["metadata"]["annotations"].keys() == {MANAGED}


async def test_purging_an_object_without_records_changes_nothing() -> None:
    object, patch = make("a", other="x"), Patch()
    make_records().purge(object, {}, body=body(object), patch=patch)
    assert patch == {}


@pytest.mark.parametrize(
    "storage",
    [
        SmartProgressStorage(),
        AnnotationsProgressStorage(prefix="trioperator.dev"),
        guarded(OwnStorage(prefix="trioperator.dev")),
        StatusProgressStorage(),
        MultiProgressStorage([AnnotationsProgressStorage(prefix="trioperator.dev")]),
        MultiProgressStorage([StatusProgressStorage(), AnnotationsProgressStorage(prefix="trioperator.dev")]),
    ],
    ids=["smart", "annotations", "own", "status", "one of several", "several"],
)
async def test_the_seen_configuration_is_stored_and_removed_with_the_progress(storage: ProgressStorage) -> None:
    object, records = make("a"), make_records(storage)
    before, patch = object.body, Patch()
    records.store(
        object, {"a": state(success=True)}, seen=[encode(size=1), encode(size=2)], body=body(object), patch=patch
    )
    assert before is not None
    object.body = patched(dict(before), patch)
    assert records.fetch(object, body(object)) == ({"a": state(success=True)}, (encode(size=1), encode(size=2)))
    fewer = Patch()
    records.store_seen(object, [encode(size=3)], body=body(object), patch=fewer)
    object.body = patched(dict(object.body), fewer)
    assert records.fetch(object, body(object))[1] == (encode(size=3),)
    purging = Patch()
    records.purge(object, {}, body=body(object), patch=purging)
    object.body = patched(dict(object.body), purging)
    assert records.fetch(object, body(object)) == ({}, ())
    assert "seen-configuration" not in str(object.body)


# The last-handled configuration.


async def test_a_configuration_is_recorded_unless_it_is_there() -> None:
    object, records = make("a"), make_records()
    patch = Patch()
    assert not records.record_handled(object, encode(size=1), body=body(object), patch=patch)
    assert json.loads(patch["metadata"]["annotations"][LAST]) == {"spec": {"size": 1}}
    assert object.body is not None
    object.body = patched(dict(object.body), patch)
    again = Patch()
    assert not records.record_handled(object, encode(size=1), body=body(object), patch=again)
    assert again == {}
    assert not records.record_handled(object, encode(size=2), body=body(object), patch=again)
    assert json.loads(again["metadata"]["annotations"][LAST]) == {"spec": {"size": 2}}


async def test_a_configuration_that_is_known_not_to_be_stored_is_recorded_as_it_was_decoded() -> None:
    object, records, patch = make("a"), make_records(), Patch()
    records.record_handled(object, encode(size=1), body=body(object), patch=patch, essence={"spec": {"size": 1}})
    assert json.loads(patch["metadata"]["annotations"][LAST]) == {"spec": {"size": 1}}


async def test_a_configuration_that_becomes_too_big_is_reported_once() -> None:
    object, records = make("a"), make_records()
    patch = Patch()
    assert records.record_handled(object, encode(text="x" * 300_000), body=body(object), patch=patch)
    assert object.body is not None
    object.body = patched(dict(object.body), patch)
    assert len(object.body["metadata"]["annotations"][LAST]) < 10_000
    assert not records.record_handled(object, encode(text="y" * 300_000), body=body(object), patch=Patch())


# What others have written.


async def test_a_record_with_very_many_subhandlers_is_read_in_part(caplog: pytest.LogCaptureFixture) -> None:
    object = make("a")
    assert object.body is not None
    refs = [f"a/{number:06}" for number in range(100_000)]
    progress = {"a": {"subrefs": refs}, **{ref: {"retries": 1} for ref in refs}}
    object.body = {**object.body, "status": {"trioperator": {"progress": progress}}}
    states, _ = make_records().fetch(object, body(object))
    assert list(states) == ["a", *refs[:MAX_SUBREFS]]
    assert f"the handler 'a' names sub-handlers that are ignored: only {MAX_SUBREFS} count" in caplog.text
    patch = Patch()
    make_records().purge(object, states, body=body(object), patch=patch)
    assert len(patch["status"]["trioperator"]["progress"]) == MAX_SUBREFS + 1


async def test_long_ids_of_subhandlers_are_not_kept_in_memory() -> None:
    records = make_records()
    annotation_keys.cache_clear()
    for number in range(100):
        refs = (f"a/{number}{'x' * MAX_ID}", f"a/{number}")
        object = make("a", **{"trioperator.dev/a": json.dumps({"subrefs": refs})})
        states, _ = records.fetch(object, body(object))
        assert states["a"].subrefs == (f"a/{number}",)
    assert annotation_keys.cache_info().currsize == 102


async def test_a_forged_record_of_a_subhandler_does_not_remove_other_annotations() -> None:
    forged = {"a": state(subrefs=("a/x",)), "a/x": state(subrefs=("last-handled-configuration", "a/y"))}
    object, records = make("a"), make_records()
    store(records, object, forged)
    states, _ = records.fetch(object, body(object))
    assert states["a/x"].subrefs == ()
    patch = Patch()
    records.purge(object, {}, body=body(object), patch=patch)
    assert set(patch["metadata"]["annotations"]) == {"trioperator.dev/a", "trioperator.dev/a.x"}


async def test_a_seen_configuration_that_is_nested_too_deeply_is_absent() -> None:
    object, records = make("a"), make_records()
    store(records, object, {"a": state(success=True)}, encode(size=1))
    assert object.body is not None
    for text in ("[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000):
        object.body["metadata"]["annotations"][SEEN] = text
        assert records.fetch(object, body(object)) == ({"a": state(success=True)}, ())
