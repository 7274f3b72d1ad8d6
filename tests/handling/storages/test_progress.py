"""Storages of the progress of handlers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.levels import TOO_MANY
from tests.model.strategies import Untouched, untimed
from trioperator._handling.storages.progress import (
    AnnotationsProgressStorage,
    MultiProgressStorage,
    ProgressRecord,
    ProgressStorage,
    SmartProgressStorage,
    StatusProgressStorage,
)
from trioperator._model.body import Body
from trioperator._model.patch import Patch, apply_merge

RECORD: ProgressRecord = {
    "started": "2026-01-02T03:04:05.678901+00:00",
    "stopped": None,
    "delayed": "2026-01-02T03:05:05.678901+00:00",
    "purpose": "create",
    "retries": 1,
    "success": False,
    "failure": False,
    "message": "Not ready",
    "subrefs": ["p/x", "p/y"],
}
FIELDS = (*RECORD, "attempted", "base")
TEXT = (
    '{"started":"2026-01-02T03:04:05.678901+00:00","delayed":"2026-01-02T03:05:05.678901+00:00","purpose":"create",'
    '"retries":1,"success":false,"failure":false,"message":"Not ready","subrefs":["p/x","p/y"]}'
)
KOPF = "kopf.zalando.org"
MAKERS: list[Callable[[], ProgressStorage]] = [
    AnnotationsProgressStorage,
    lambda: AnnotationsProgressStorage(prefix=KOPF, verbose=True),
    lambda: AnnotationsProgressStorage(prefix="a-very-long-prefix.of-an-operator.example.com"),
    StatusProgressStorage,
    lambda: StatusProgressStorage(field="status.mine"),
    lambda: MultiProgressStorage([StatusProgressStorage(), AnnotationsProgressStorage()]),
    SmartProgressStorage,
]
each_storage = pytest.mark.parametrize("make", MAKERS)

records = st.fixed_dictionaries(
    {},
    optional={
        "started": st.just("2026-01-02T03:04:05.678901+00:00"),
        "delayed": st.none() | st.just("2026-01-02T03:04:05.678901+00:00"),
        "purpose": st.sampled_from(["create", "update", None]),
        "retries": st.integers(0, 1000),
        "success": st.booleans(),
        "failure": st.booleans(),
        "message": st.none() | st.text(st.characters(codec="utf-8"), max_size=50),
        "subrefs": st.none() | st.lists(st.text("ab/", max_size=5), max_size=3),
        "attempted": st.none() | st.just("2026-01-02T03:04:05.678901+00:00"),
        "base": st.none() | st.sampled_from(["", "0123abcd"]),
    },
)


def body_with(annotations: dict[str, Any] | None = None, status: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": "x", "annotations": annotations or {}}, "status": status or {}}


def stored(storage: ProgressStorage, raw: dict[str, Any], key: str, record: ProgressRecord) -> dict[str, Any]:
    """Store a record on an object, as the API server would."""
    patch = Patch()
    with Untouched(raw, record):
        storage.store(key=key, record=record, body=Body(raw), patch=patch)
    result: dict[str, Any] = apply_merge(raw, patch)
    return result


def plain(record: ProgressRecord | None) -> dict[str, Any] | None:
    return None if record is None else {key: value for key, value in record.items() if value is not None}


@each_storage
@given(key=st.sampled_from(["fn", "a/b", "Cls.<locals>.fn", "lambda:/x.py:5", "n" * 100]), record=records)
@untimed
def test_what_is_stored_is_fetched(make: Callable[[], ProgressStorage], key: str, record: ProgressRecord) -> None:
    storage = make()
    raw = stored(storage, body_with(), key, record)
    assert plain(storage.fetch(key=key, body=Body(raw))) == plain(record)
    assert storage.fetch(key=f"{key}x", body=Body(raw)) is None


@each_storage
@given(key=st.sampled_from(["fn", "a/b", "lambda:/x.py:5", "n" * 100]), record=records)
@untimed
def test_an_object_has_records_from_the_first_to_the_last(
    make: Callable[[], ProgressStorage], key: str, record: ProgressRecord
) -> None:
    storage = make()
    others = {"trioperator.dev/last-handled-configuration": "{}", "trioperator.dev/kopf-managed": "yes", "x": "y"}
    raw = body_with(others, {"replicas": 1})
    assert not storage.has_records(body=Body(raw))
    raw = stored(storage, raw, key, record)
    assert storage.has_records(body=Body(raw))
    patch = Patch()
    storage.purge(key=key, body=Body(raw), patch=patch)
    assert not storage.has_records(body=Body(apply_merge(raw, patch)))


@each_storage
def test_a_newer_record_replaces_the_older_one_completely(make: Callable[[], ProgressStorage]) -> None:
    storage = make()
    raw = stored(storage, body_with(), "fn", RECORD)
    raw = stored(storage, raw, "fn", {"retries": 2, "success": True})
    assert plain(storage.fetch(key="fn", body=Body(raw))) == {"retries": 2, "success": True}


@each_storage
def test_purging_keeps_other_records(make: Callable[[], ProgressStorage]) -> None:
    storage = make()
    raw = stored(storage, stored(storage, body_with(), "fn", RECORD), "other", RECORD)
    patch = Patch()
    storage.purge(key="fn", body=Body(raw), patch=patch)
    raw = apply_merge(raw, patch)
    assert storage.fetch(key="fn", body=Body(raw)) is None
    assert storage.fetch(key="other", body=Body(raw)) is not None


@each_storage
def test_purging_a_missing_record_patches_nothing(make: Callable[[], ProgressStorage]) -> None:
    for raw in (body_with(), {}, {"metadata": None, "status": None}):
        patch = Patch()
        make().purge(key="fn", body=Body(raw), patch=patch)
        assert not patch


@each_storage
def test_purging_reverts_a_record_of_the_same_patch(make: Callable[[], ProgressStorage]) -> None:
    storage, patch, body = make(), Patch(), Body(body_with())
    storage.store(key="fn", record=RECORD, body=body, patch=patch)
    storage.purge(key="fn", body=body, patch=patch)
    assert storage.fetch(key="fn", body=Body(apply_merge(body_with(), patch))) is None


@each_storage
def test_the_touch_field_is_set_and_removed(make: Callable[[], ProgressStorage]) -> None:
    storage, raw = make(), body_with()
    patch = Patch()
    storage.touch(body=Body(raw), patch=patch, value=None)
    assert not patch
    storage.touch(body=Body(raw), patch=patch, value="now")
    assert "now" in repr(patch)
    raw = apply_merge(raw, patch)
    patch = Patch()
    storage.touch(body=Body(raw), patch=patch, value=None)
    assert "now" not in repr(apply_merge(raw, patch))


@each_storage
def test_its_data_is_not_part_of_the_essence(make: Callable[[], ProgressStorage]) -> None:
    storage = make()
    clean = {"metadata": {"annotations": {"note": "x"}}, "status": {"phase": "y"}, "spec": {}}
    patch = Patch()
    storage.store(key="fn", record=RECORD, body=Body(clean), patch=patch)
    storage.touch(body=Body(clean), patch=patch, value="now")
    essence = apply_merge(clean, patch)
    with Untouched(essence):
        assert storage.clear(essence=essence) == clean
    assert storage.clear(essence=apply_merge({"spec": {}}, patch)) == {"spec": {}}


@each_storage
def test_an_essence_without_its_data_is_returned_unchanged(make: Callable[[], ProgressStorage]) -> None:
    essence = {"metadata": {"annotations": {"note": "x"}}, "spec": {"a": 1}, "status": {"phase": 1}}
    assert make().clear(essence=essence) is essence


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "5", '"x"', '{"retries":"many"}', '{"success":"yes"}', "\x00"])
def test_unreadable_annotations_count_as_absent(text: str) -> None:
    assert AnnotationsProgressStorage(prefix=KOPF).fetch(key="fn", body=Body(body_with({f"{KOPF}/fn": text}))) is None


@pytest.mark.parametrize("value", ["", "x", 5, [], True, {"retries": "many"}, {"subrefs": 5}])
def test_an_unreadable_status_counts_as_absent(value: Any) -> None:
    storage = StatusProgressStorage()
    assert storage.fetch(key="fn", body=Body(body_with(status={"trioperator": {"progress": {"fn": value}}}))) is None
    assert storage.fetch(key="fn", body=Body(body_with(status={"trioperator": value}))) is None
    storage.purge(key="fn", body=Body(body_with(status={"trioperator": value})), patch={})


def test_an_annotation_that_is_not_a_string_counts_as_absent() -> None:
    assert AnnotationsProgressStorage(prefix=KOPF).fetch(key="fn", body=Body(body_with({f"{KOPF}/fn": 5}))) is None


class TestAnnotations:
    def test_records_are_written_as_kopf_writes_them(self) -> None:
        patch = Patch()
        AnnotationsProgressStorage(prefix=KOPF).store(key="a/b", record=RECORD, body=Body(body_with()), patch=patch)
        assert patch == {"metadata": {"annotations": {f"{KOPF}/a.b": TEXT}}}

    def test_the_order_of_a_record_does_not_matter(self) -> None:
        patch = Patch()
        shuffled: ProgressRecord = dict(reversed(RECORD.items()))  # type: ignore[assignment]
        AnnotationsProgressStorage(prefix=KOPF).store(key="fn", record=shuffled, body=Body(body_with()), patch=patch)
        assert patch.meta.annotations[f"{KOPF}/fn"] == TEXT

    def test_verbose_records_include_empty_fields(self) -> None:
        patch = Patch()
        storage = AnnotationsProgressStorage(prefix=KOPF, verbose=True)
        storage.store(key="fn", record={"retries": 1}, body=Body({}), patch=patch)
        assert json.loads(patch.meta.annotations[f"{KOPF}/fn"]) == dict.fromkeys(FIELDS) | {"retries": 1}

    def test_records_written_by_kopf_are_read(self) -> None:
        body = Body(body_with({f"{KOPF}/fn": TEXT}))
        assert plain(AnnotationsProgressStorage(prefix=KOPF).fetch(key="fn", body=body)) == plain(RECORD)
        assert AnnotationsProgressStorage().fetch(key="fn", body=body) is None

    def test_unknown_fields_of_a_record_are_ignored(self) -> None:
        body = Body(body_with({f"{KOPF}/fn": '{"retries":3,"newer":{"x":1}}'}))
        assert plain(AnnotationsProgressStorage(prefix=KOPF).fetch(key="fn", body=body)) == {"retries": 3}

    def test_both_generations_of_keys_are_written_read_and_purged(self) -> None:
        key, newer, older = "x" * 63, f"{KOPF}/{'x' * 63}", f"{KOPF}/{'x' * 39}-GINbRg"
        storage = AnnotationsProgressStorage(prefix=KOPF)
        raw = stored(storage, body_with(), key, RECORD)
        assert set(raw["metadata"]["annotations"]) == {newer, older}
        body = Body(body_with({older: '{"retries":1}'}))
        assert plain(storage.fetch(key=key, body=body)) == {"retries": 1}
        body = Body(body_with({older: '{"retries":1}', newer: '{"retries":2}'}))
        assert plain(storage.fetch(key=key, body=body)) == {"retries": 2}
        patch = Patch()
        storage.purge(key=key, body=body, patch=patch)
        assert patch == {"metadata": {"annotations": {newer: None, older: None}}}
        newest_only = AnnotationsProgressStorage(prefix=KOPF, v1=False)
        assert set(stored(newest_only, body_with(), key, RECORD)["metadata"]["annotations"]) == {newer}

    def test_the_older_key_is_read_if_the_newer_one_is_broken(self) -> None:
        body = Body(body_with({f"{KOPF}/{'x' * 63}": "{", f"{KOPF}/{'x' * 39}-GINbRg": '{"retries":1}'}))
        assert AnnotationsProgressStorage(prefix=KOPF).fetch(key="x" * 63, body=body) is not None

    @pytest.mark.parametrize(
        ("prefix", "marked"),
        [
            ("op.dev", True),
            ("trioperator.dev", True),
            ("my.kopf.zalando.org", True),
            (KOPF, False),
            ("kopf.dev", False),
        ],
    )
    def test_prefixes_other_than_kopfs_are_marked(self, prefix: str, marked: bool) -> None:
        storage = AnnotationsProgressStorage(prefix=prefix)
        raw = stored(storage, body_with(), "fn", RECORD)
        assert (raw["metadata"]["annotations"].get(f"{prefix}/kopf-managed") == "yes") is marked
        patch = Patch()
        storage.store(key="fn", record=RECORD, body=Body(raw), patch=patch)
        assert f"{prefix}/kopf-managed" not in patch.meta.annotations

    def test_replica_sets_do_not_inherit_the_progress_of_their_deployment(self) -> None:
        metadata = {"annotations": {f"{KOPF}/fn": TEXT}, "ownerReferences": [{"kind": "Deployment"}]}
        raw = {"kind": "ReplicaSet", "metadata": metadata}
        storage = AnnotationsProgressStorage(prefix=KOPF)
        assert storage.fetch(key="fn", body=Body(raw)) is None
        assert f"{KOPF}/fn-ofDRS" in stored(storage, raw, "fn", RECORD)["metadata"]["annotations"]

    def test_a_patch_that_removes_all_annotations_can_be_filled(self) -> None:
        patch: dict[str, Any] = {"metadata": {"annotations": None}}
        AnnotationsProgressStorage(prefix=KOPF).store(key="fn", record=RECORD, body=Body(body_with()), patch=patch)
        assert patch == {"metadata": {"annotations": {f"{KOPF}/fn": TEXT}}}

    @pytest.mark.parametrize("prefix", ["", "x" * 300])
    def test_an_invalid_prefix_is_rejected(self, prefix: str) -> None:
        with pytest.raises(ValueError, match="prefix"):
            AnnotationsProgressStorage(prefix=prefix)

    def test_the_touch_key_is_configurable(self) -> None:
        patch = Patch()
        AnnotationsProgressStorage(prefix=KOPF, touch_key="ping").touch(body=Body({}), patch=patch, value="now")
        assert patch == {"metadata": {"annotations": {f"{KOPF}/ping": "now"}}}


class TestStatus:
    def test_records_are_nested_and_include_empty_fields_to_remove_older_ones(self) -> None:
        patch = Patch()
        StatusProgressStorage(name="kopf").store(key="a/b", record={"retries": 1}, body=Body({}), patch=patch)
        assert patch == {"status": {"kopf": {"progress": {"a/b": dict.fromkeys(FIELDS) | {"retries": 1}}}}}

    def test_the_fields_are_configurable(self) -> None:
        patch = Patch()
        storage = StatusProgressStorage(name="me", field=["status", "my.{name}"], touch_field="status.{name}-touched")
        storage.touch(body=Body({}), patch=patch, value="now")
        storage.store(key="fn", record={"retries": 1}, body=Body({}), patch=patch)
        assert set(patch.status) == {"me-touched", "my.me"}


class TestSeveral:
    def test_all_are_written_and_the_first_that_has_a_record_is_read(self) -> None:
        status, annotations = StatusProgressStorage(), AnnotationsProgressStorage()
        several = MultiProgressStorage([status, annotations])
        raw = stored(several, body_with(), "fn", RECORD)
        assert status.fetch(key="fn", body=Body(raw)) is not None
        assert annotations.fetch(key="fn", body=Body(raw)) is not None
        raw = stored(annotations, raw, "fn", {"retries": 7})
        assert plain(several.fetch(key="fn", body=Body(raw))) == plain(RECORD)
        raw = stored(annotations, body_with(), "fn", {"retries": 7})
        assert plain(several.fetch(key="fn", body=Body(raw))) == {"retries": 7}

    def test_all_are_flushed(self) -> None:
        flushed: list[str] = []

        class Remembering(StatusProgressStorage):
            def flush(self) -> None:
                flushed.append(self.name)

        MultiProgressStorage([Remembering(name="a"), Remembering(name="b")]).flush()
        assert flushed == ["a", "b"]


class TestSmart:
    def test_records_are_written_to_annotations_only(self) -> None:
        patch = Patch()
        SmartProgressStorage().store(key="fn", record=RECORD, body=Body(body_with()), patch=patch)
        SmartProgressStorage().touch(body=Body(body_with()), patch=patch, value="now")
        assert set(patch) == {"metadata"}

    def test_records_left_in_the_status_are_read_and_purged(self) -> None:
        body = Body(body_with(status={"kopf": {"progress": {"fn": {"retries": 4}}}}))
        storage = SmartProgressStorage(prefix=KOPF, name="kopf")
        assert plain(storage.fetch(key="fn", body=body)) == {"retries": 4}
        patch = Patch()
        storage.purge(key="fn", body=body, patch=patch)
        assert patch == {"status": {"kopf": {"progress": {"fn": None}}}}

    def test_annotations_take_precedence_over_the_status(self) -> None:
        raw = body_with({f"{KOPF}/fn": '{"retries":5}'}, {"kopf": {"progress": {"fn": {"retries": 4}}}})
        storage = SmartProgressStorage(prefix=KOPF, name="kopf")
        assert plain(storage.fetch(key="fn", body=Body(raw))) == {"retries": 5}


def test_a_custom_storage_needs_only_fetch_store_and_purge() -> None:
    class InMemory(ProgressStorage):
        def __init__(self) -> None:
            self.records: dict[str, ProgressRecord] = {}

        def fetch(self, *, key: str, body: Body) -> ProgressRecord | None:
            return self.records.get(key)

        def store(self, *, key: str, record: ProgressRecord, body: Body, patch: dict[str, Any]) -> None:
            self.records[key] = record

        def purge(self, *, key: str, body: Body, patch: dict[str, Any]) -> None:
            self.records.pop(key, None)

    storage, patch = InMemory(), Patch()
    storage.store(key="fn", record=RECORD, body=Body({}), patch=patch)
    assert storage.fetch(key="fn", body=Body({})) == RECORD
    storage.touch(body=Body({}), patch=patch, value="now")
    storage.flush()
    assert not patch
    assert storage.clear(essence={"spec": {}}) == {"spec": {}}


# What others have written so deep that nothing can read it: more levels than any decoder has.
DEEP = "[" * TOO_MANY + "]" * TOO_MANY


@pytest.mark.parametrize("text", [DEEP, f'{{"retries": {DEEP}}}', f'{{"more": {DEEP}, "retries": 1}}'])
def test_records_that_are_nested_too_deeply_are_absent(text: str) -> None:
    body = Body({"metadata": {"annotations": {"trioperator.dev/p": text}}})
    assert SmartProgressStorage().fetch(key="p", body=body) is None


@each_storage
def test_records_with_a_base_are_purged_whatever_handlers_they_are_of(make: Callable[[], ProgressStorage]) -> None:
    storage, long = make(), "a/handler/with/a/very/long/id/" + "x" * 80
    raw = stored(storage, {"metadata": {"name": "w"}}, "kopfs", RECORD)
    kept = stored(storage, raw, "forged", {"retries": 3})
    raw = stored(storage, stored(storage, kept, "fn", {**RECORD, "base": ""}), long, {**RECORD, "base": "0123abcd"})
    patch = dict[str, Any]()
    storage.purge_based(body=Body(raw), patch=patch)
    assert apply_merge(raw, patch) == kept


def test_what_is_no_record_is_not_purged() -> None:
    storage, prefix = AnnotationsProgressStorage(), "trioperator.dev"
    essence = json.dumps({"base": "x", "started": "x", "spec": {}})
    annotations = {
        f"{prefix}/last-handled-configuration": essence,
        "example.com/fn": essence,
        f"{prefix}/text": '"base"',
        f"{prefix}/broken": '{"base": ',
        f"{prefix}/deep": '{"base":' * TOO_MANY,
    }
    patch = dict[str, Any]()
    storage.purge_based(body=Body({"metadata": {"annotations": annotations}}), patch=patch)
    assert not patch
    for progress in ("text", {"fn": "text"}, None):
        StatusProgressStorage().purge_based(body=Body({"status": {"trioperator": {"progress": progress}}}), patch=patch)
    assert not patch


def test_records_of_a_deployment_that_its_replica_sets_copy_are_not_purged() -> None:
    storage = AnnotationsProgressStorage()
    record: ProgressRecord = {**RECORD, "base": "0123abcd"}
    raw = stored(storage, {"metadata": {"name": "w"}}, "fn", record)
    raw |= {"kind": "ReplicaSet", "metadata": raw["metadata"] | {"ownerReferences": [{"kind": "Deployment"}]}}
    patch = dict[str, Any]()
    storage.purge_based(body=Body(stored(storage, raw, "fn", record)), patch=patch)
    assert patch == {"metadata": {"annotations": {"trioperator.dev/fn-ofDRS": None}}}
