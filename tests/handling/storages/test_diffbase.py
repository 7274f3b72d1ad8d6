"""Storages of the last-handled configuration."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from tests.model.strategies import Untouched, objects, untimed, without_nulls
from trioperator._handling.storages.diffbase import (
    AnnotationsDiffBaseStorage,
    DiffBaseStorage,
    MultiDiffBaseStorage,
    StatusDiffBaseStorage,
    encode_essence,
    has_digests,
)
from trioperator._handling.storages.progress import AnnotationsProgressStorage, ProgressStorage, SmartProgressStorage
from trioperator._model.body import Body, BodyEssence
from trioperator._model.diff import diff
from trioperator._model.digest import DIGEST
from trioperator._model.patch import Patch, apply_merge

KOPF = "kopf.zalando.org"
LAST = "last-handled-configuration"
LIMIT = 256 * 1024
ROOM_FOR_PROGRESS = 16 * 1024
MAKERS: list[Callable[[], DiffBaseStorage]] = [
    AnnotationsDiffBaseStorage,
    lambda: AnnotationsDiffBaseStorage(prefix=KOPF),
    lambda: AnnotationsDiffBaseStorage(prefix="op.example.com", key="state"),
    lambda: AnnotationsDiffBaseStorage(prefix="a-very-long-prefix.of-an-operator.example.com"),
    StatusDiffBaseStorage,
    lambda: StatusDiffBaseStorage(field="status.mine"),
    lambda: MultiDiffBaseStorage([StatusDiffBaseStorage(), AnnotationsDiffBaseStorage()]),
    lambda: MultiDiffBaseStorage([AnnotationsDiffBaseStorage(), AnnotationsDiffBaseStorage(prefix=KOPF)]),
]
each_storage = pytest.mark.parametrize("make", MAKERS)
each_annotating_storage = pytest.mark.parametrize("make", [MAKERS[0], MAKERS[2], MAKERS[3]])


def widget(**stanzas: Any) -> dict[str, Any]:
    metadata = {"name": "w", "uid": "u", "resourceVersion": "5", "labels": {"app": "x"}}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": 1}, **stanzas}


def stored(storage: DiffBaseStorage, raw: dict[str, Any], essence: BodyEssence | None = None) -> dict[str, Any]:
    """Store an essence on an object, by default the object's own, as the API server would."""
    body, patch = Body(raw), Patch()
    if essence is None:
        essence = storage.build(body=body)
    with Untouched(raw, essence):
        storage.store(body=body, patch=patch, essence=essence)
    result: dict[str, Any] = apply_merge(raw, patch)
    return result


def is_current(
    storage: DiffBaseStorage, raw: dict[str, Any], progress: ProgressStorage | None = None, fields: Any = ()
) -> bool:
    """Return what the operator checks for each watch event."""
    essence = storage.build(body=Body(raw), extra_fields=fields)
    if progress is not None:
        essence = progress.clear(essence=essence)
    body, encoded = Body(raw), encode_essence(essence)
    found = storage.is_current(body=body, encoded=encoded)
    assert storage.compare(body=body, encoded=encoded) == (found, None if found else storage.fetch(body=body))
    return found


def size_of_annotations(raw: dict[str, Any]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in raw["metadata"]["annotations"].items())


@each_storage
def test_what_is_stored_is_fetched_and_is_current(make: Callable[[], DiffBaseStorage]) -> None:
    storage = make()
    assert storage.fetch(body=Body(widget())) is None
    assert not is_current(storage, widget())
    raw = stored(storage, widget())
    assert storage.fetch(body=Body(raw)) == {"metadata": {"labels": {"app": "x"}}, "spec": {"size": 1}}
    assert is_current(storage, raw)


@each_storage
@given(raw=objects)
@untimed
def test_storing_does_not_change_the_essence(make: Callable[[], DiffBaseStorage], raw: dict[str, Any]) -> None:
    storage = make()
    raw = without_nulls({**raw, "metadata": {"name": "x"}, "status": {}})
    after = stored(storage, raw)
    assert storage.build(body=Body(after)) == storage.build(body=Body(raw))
    assert is_current(storage, after)
    assert storage.fetch(body=Body(after)) == storage.build(body=Body(after))
    assert stored(storage, after) == after


@each_storage
def test_its_data_is_not_part_of_the_essence_even_as_an_extra_field(
    make: Callable[[], DiffBaseStorage],
) -> None:
    storage = make()
    fields = ["status", "metadata.annotations"]
    progress = AnnotationsProgressStorage(prefix=getattr(storage, "prefix", "trioperator.dev"))
    raw = widget(status={"phase": "x"})
    raw["metadata"]["annotations"] = {"note": "y"}
    essence = storage.build(body=Body(raw), extra_fields=fields)
    after = stored(storage, raw, essence)
    assert '"spec":' in repr(after)  # the text of the stored essence
    assert '"spec":' not in repr(storage.build(body=Body(after), extra_fields=fields))
    if not isinstance(storage, MultiDiffBaseStorage):
        assert progress.clear(essence=storage.build(body=Body(after), extra_fields=fields)) == essence
        assert is_current(storage, after, progress, fields)
    again = stored(storage, after, essence)
    assert again == after


@each_storage
def test_a_change_is_not_current_and_shows_in_the_diff(make: Callable[[], DiffBaseStorage]) -> None:
    storage = make()
    raw = apply_merge(stored(storage, widget()), {"spec": {"size": 2}})
    assert not is_current(storage, raw)
    changes = diff(storage.fetch(body=Body(raw)), storage.build(body=Body(raw)))
    assert changes == (("change", ("spec", "size"), 1, 2),)


@each_storage
def test_changes_by_systems_are_ignored(make: Callable[[], DiffBaseStorage]) -> None:
    storage = make()
    raw = stored(storage, widget())
    raw = apply_merge(raw, {"metadata": {"resourceVersion": "6", "generation": 2}, "status": {"phase": "Ready"}})
    assert is_current(storage, raw)


@each_storage
def test_the_order_of_keys_is_ignored(make: Callable[[], DiffBaseStorage]) -> None:
    storage = make()
    raw = stored(storage, widget(spec={"a": 1, "b": 2}))
    raw["spec"] = {"b": 2, "a": 1}
    assert is_current(storage, raw)


@each_storage
@pytest.mark.parametrize("text", ["", "{", "null", "[]", "5", '"x"', "\x00"])
def test_unreadable_data_counts_as_absent(make: Callable[[], DiffBaseStorage], text: str) -> None:
    storage = make()
    raw = stored(storage, widget(), {"spec": {"marked": 1}})

    def spoil(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: spoil(inner) for key, inner in value.items()}
        return text if isinstance(value, str) and "marked" in value else value

    spoilt = spoil(raw)
    assert spoilt != raw
    assert storage.fetch(body=Body(spoilt)) is None
    assert not is_current(storage, spoilt)


@pytest.mark.parametrize("value", [5, True, ["x"], {"x": 1}])
def test_data_that_is_not_a_string_counts_as_absent(value: Any) -> None:
    annotated = Body({"metadata": {"annotations": {f"{KOPF}/{LAST}": value}}})
    for storage, body in [
        (AnnotationsDiffBaseStorage(prefix=KOPF), annotated),
        (StatusDiffBaseStorage(), Body({"status": {"trioperator": {LAST: value}}})),
        (StatusDiffBaseStorage(), Body({"status": {"trioperator": value}})),
        (StatusDiffBaseStorage(), Body({"status": value})),
    ]:
        assert storage.fetch(body=body) is None
        assert not storage.is_current(body=body, encoded=b"{}")


@pytest.mark.parametrize("raw", [{}, {"metadata": None}, {"metadata": {"annotations": None}}])
def test_an_object_without_anything_has_no_last_handled_state(raw: dict[str, Any]) -> None:
    assert AnnotationsDiffBaseStorage().fetch(body=Body(raw)) is None
    assert AnnotationsDiffBaseStorage().build(body=Body(raw)) == {}
    assert is_current(AnnotationsDiffBaseStorage(), stored(AnnotationsDiffBaseStorage(), raw))


class TestBuilding:
    def test_extra_fields_count(self) -> None:
        body = Body(widget(status={"a": 1, "b": 2}))
        expected = {"metadata": {"labels": {"app": "x"}}, "spec": {"size": 1}, "status": {"a": 1}}
        assert AnnotationsDiffBaseStorage().build(body=body, extra_fields=["status.a"]) == expected
        assert AnnotationsDiffBaseStorage().build(body=body, extra_fields=[("status", "a")]) == expected
        assert "status" not in AnnotationsDiffBaseStorage().build(body=body, extra_fields=None)

    @pytest.mark.parametrize("storage_type", [AnnotationsDiffBaseStorage, StatusDiffBaseStorage])
    def test_ignored_fields_never_count(self, storage_type: Any) -> None:
        storage = storage_type(ignored_fields=["spec.size", ["metadata", "labels", "app"], "data.missing"])
        raw = widget(data={"x": 1})
        with Untouched(raw):
            assert storage.build(body=Body(raw)) == {"data": {"x": 1}}
        after = apply_merge(stored(storage, raw), {"spec": {"size": 5}})
        assert is_current(storage, after)

    def test_combined_storages_exclude_the_data_of_each(self) -> None:
        storage = MultiDiffBaseStorage(
            [
                AnnotationsDiffBaseStorage(ignored_fields=["spec.a"]),
                StatusDiffBaseStorage(ignored_fields=["spec.b", "data.x"]),
            ]
        )
        raw = {"spec": {"a": 1, "b": 2, "c": 3}, "data": {"x": 1}, "empty": {}}
        assert storage.build(body=Body(raw)) == {"spec": {"c": 3}, "empty": {}}

    def test_what_combined_storages_leave_empty_is_excluded(self) -> None:
        storage = MultiDiffBaseStorage(
            [
                AnnotationsDiffBaseStorage(ignored_fields=["spec.a"]),
                AnnotationsDiffBaseStorage(ignored_fields=["spec.b"]),
            ]
        )
        assert storage.build(body=Body({"spec": {"a": 1, "b": 2}})) == {}


class TestKopfsFormat:
    def test_the_state_is_written_as_kopf_writes_it(self) -> None:
        patch = Patch()
        AnnotationsDiffBaseStorage(prefix=KOPF).store(body=Body(widget()), patch=patch, essence={"spec": {"x": 1}})
        assert patch == {"metadata": {"annotations": {f"{KOPF}/{LAST}": '{"spec":{"x":1}}\n'}}}

    def test_other_prefixes_are_marked_once(self) -> None:
        raw = stored(AnnotationsDiffBaseStorage(), widget(), {"spec": {"x": 1}})
        assert raw["metadata"]["annotations"] == {
            f"trioperator.dev/{LAST}": '{"spec":{"x":1}}\n',
            "trioperator.dev/kopf-managed": "yes",
        }
        patch = Patch()
        AnnotationsDiffBaseStorage().store(body=Body(raw), patch=patch, essence={})
        assert set(patch.meta.annotations) == {f"trioperator.dev/{LAST}"}

    def test_the_status_contains_one_string(self) -> None:
        patch = Patch()
        StatusDiffBaseStorage(name="kopf").store(body=Body(widget()), patch=patch, essence={"spec": {"x": 1}})
        assert patch == {"status": {"kopf": {LAST: '{"spec":{"x":1}}'}}}

    def test_an_object_handled_by_a_kopf_operator_is_recognized(self) -> None:
        raw = widget()
        raw["metadata"]["annotations"] = {
            "note": "caf\u00e9",
            "kubectl.kubernetes.io/last-applied-configuration": "{}\n",
            f"{KOPF}/touch-dummy": "2026-01-02T03:04:05.678901",
            # As written by it: ASCII only, in its own order.
            f"{KOPF}/{LAST}": (
                '{"spec":{"size":1},"metadata":{"labels":{"app":"x"},"annotations":{"note":"caf\\u00e9"}}}\n'
            ),
        }
        storage = AnnotationsDiffBaseStorage(prefix=KOPF)
        assert is_current(storage, raw, SmartProgressStorage(prefix=KOPF, name="kopf"))
        raw["spec"] = {"size": 2}
        changes = diff(storage.fetch(body=Body(raw)), storage.build(body=Body(raw)))
        assert changes == (("change", ("spec", "size"), 1, 2),)

    def test_the_state_of_a_kopf_operator_is_not_part_of_the_essence(self) -> None:
        raw = stored(
            AnnotationsDiffBaseStorage(prefix=KOPF), stored(AnnotationsDiffBaseStorage(prefix="op.dev"), widget())
        )
        assert AnnotationsDiffBaseStorage().build(body=Body(raw)) == AnnotationsDiffBaseStorage().build(
            body=Body(widget())
        )

    def test_replica_sets_do_not_inherit_the_state_of_their_deployment(self) -> None:
        storage = AnnotationsDiffBaseStorage(prefix=KOPF)
        raw = stored(storage, widget())
        raw |= {"kind": "ReplicaSet"}
        raw["metadata"] = {**raw["metadata"], "ownerReferences": [{"kind": "Deployment"}]}
        assert storage.fetch(body=Body(raw)) is None
        assert f"{KOPF}/{LAST}-ofDRS" in stored(storage, raw)["metadata"]["annotations"]

    def test_the_older_key_is_read_if_there_is_no_newer_one(self) -> None:
        prefix = "a-very-long-prefix.of-an-operator.example.com"
        storage = AnnotationsDiffBaseStorage(prefix=prefix)
        raw = stored(storage, widget())
        older = [key for key in raw["metadata"]["annotations"] if key.startswith(prefix) and key.endswith(LAST)]
        assert len(older) == 1
        del raw["metadata"]["annotations"][older[0]]
        assert storage.fetch(body=Body(raw)) is not None
        assert is_current(storage, raw)


BIG = "x" * 400_000
HUGE: list[dict[str, Any]] = [
    widget(spec={"big": BIG, "size": 1}),
    widget(spec={"list": list(range(100_000)), "size": 1}),
    widget(spec={"wide": {f"key-{number}": "v" * 30 for number in range(12_000)}, "size": 1}),
    widget(spec={"deep": {"er": {f"key-{number}": {"a": "v" * 100, "b": 1} for number in range(4_000)}}, "size": 1}),
    widget(spec={"many": {f"key-{number}": "v" * 3000 for number in range(200)}, "size": 1}),
    widget(data={f"file-{number}": "é" * 50_000 for number in range(5)}),
    widget(**{f"stanza{number}": {"x": "y" * 10_000} for number in range(50)}),
]
each_huge = pytest.mark.parametrize("raw", HUGE, ids=["scalar", "list", "wide", "deep", "many", "data", "stanzas"])


class TestHugeObjects:
    @each_huge
    @each_annotating_storage
    def test_digests_fit_and_leave_room_for_the_progress(
        self, make: Callable[[], DiffBaseStorage], raw: dict[str, Any]
    ) -> None:
        after = stored(make(), raw)
        assert size_of_annotations(after) <= LIMIT - ROOM_FOR_PROGRESS
        assert has_digests(after)
        assert not has_digests(raw)

    @each_huge
    @each_annotating_storage
    def test_storing_digests_does_not_change_the_essence(
        self, make: Callable[[], DiffBaseStorage], raw: dict[str, Any]
    ) -> None:
        storage = make()
        after = stored(storage, raw)
        assert is_current(storage, after)
        assert storage.fetch(body=Body(after)) == storage.build(body=Body(raw))
        again = stored(storage, after)
        assert again == after

    @each_huge
    def test_a_small_change_is_detected_with_its_old_value(self, raw: dict[str, Any]) -> None:
        storage = AnnotationsDiffBaseStorage()
        after = apply_merge(stored(storage, raw), {"metadata": {"labels": {"app": "z"}}})
        assert not is_current(storage, after)
        changes = diff(storage.fetch(body=Body(after)), storage.build(body=Body(after)))
        assert changes == (("change", ("metadata", "labels", "app"), "x", "z"),)

    def test_a_change_of_a_big_value_is_detected_as_a_change_of_its_field(self) -> None:
        storage = AnnotationsDiffBaseStorage()
        after = apply_merge(stored(storage, widget(spec={"big": BIG, "size": 1})), {"spec": {"big": BIG + "!"}})
        assert not is_current(storage, after)
        ((operation, field, old, new),) = diff(storage.fetch(body=Body(after)), storage.build(body=Body(after)))
        assert (operation, field, new) == ("change", ("spec", "big"), BIG + "!")
        assert list(old) == [DIGEST]

    def test_only_as_many_values_are_replaced_as_needed(self) -> None:
        raw = widget(spec={"a": "a" * 150_000, "b": "b" * 100_000})
        text = stored(AnnotationsDiffBaseStorage(), raw)["metadata"]["annotations"][f"trioperator.dev/{LAST}"]
        essence = json.loads(text)
        assert list(essence["spec"]["a"]) == [DIGEST]
        assert essence["spec"]["b"] == raw["spec"]["b"]

    def test_annotations_of_others_reduce_the_room(self) -> None:
        raw = widget(spec={"big": "y" * 60_000})
        raw["metadata"]["annotations"] = {"note": "x" * 200_000}
        after = stored(AnnotationsDiffBaseStorage(), raw)
        assert size_of_annotations(after) <= LIMIT - ROOM_FOR_PROGRESS
        assert is_current(AnnotationsDiffBaseStorage(), after)

    def test_annotations_of_the_same_patch_change_the_room(self) -> None:
        raw = widget(spec={"big": "y" * 100_000})
        raw["metadata"]["annotations"] = {"old": "x" * 150_000}
        storage, essence = AnnotationsDiffBaseStorage(), {"spec": raw["spec"]}
        patch = Patch({"metadata": {"annotations": {"old": None}}})
        storage.store(body=Body(raw), patch=patch, essence=essence)
        assert not has_digests(patch)
        patch = Patch({"metadata": {"annotations": {"old": None, "new": "z" * 150_000}}})
        storage.store(body=Body(raw), patch=patch, essence=essence)
        assert size_of_annotations(apply_merge(raw, patch)) <= LIMIT - ROOM_FOR_PROGRESS

    @pytest.mark.parametrize("length", [20, 60, 100, 1000])
    def test_annotations_that_leave_hardly_any_room_make_no_loop(self, length: int) -> None:
        raw = widget()
        count = 250_000 // (length + 10)
        raw["metadata"]["annotations"] = {f"{number:010}": "x" * length for number in range(count)}
        storage = AnnotationsDiffBaseStorage()
        after = stored(storage, raw)
        assert size_of_annotations(after) <= LIMIT
        assert is_current(storage, after)
        assert is_current(storage, after, SmartProgressStorage())

    def test_big_extra_fields_make_no_loop(self) -> None:
        storage, progress, fields = AnnotationsDiffBaseStorage(), SmartProgressStorage(), ["status", "metadata.name"]
        raw = widget(status={"big": BIG, "trioperator": {"progress": {"fn": {"retries": 1}}}, "other": "o" * 1000})
        essence = progress.clear(essence=storage.build(body=Body(raw), extra_fields=fields))
        after = stored(storage, raw, essence)
        assert size_of_annotations(after) <= LIMIT - ROOM_FOR_PROGRESS
        assert is_current(storage, after, progress, fields)
        after = apply_merge(after, {"status": {"other": "new"}})
        assert not is_current(storage, after, progress, fields)
        newest = progress.clear(essence=storage.build(body=Body(after), extra_fields=fields))
        changes = diff(storage.fetch(body=Body(after)), newest)
        assert changes == (("change", ("status", "other"), "o" * 1000, "new"),)

    def test_a_digest_of_more_than_the_body_shows_makes_no_loop(self) -> None:
        # The progress storage leaves out what the other one keeps, and the whole status has one digest.
        storage, progress = AnnotationsDiffBaseStorage(), SmartProgressStorage()
        wide = {f"key-{number}": "v" * 30 for number in range(12_000)}
        raw = widget(status={**wide, "trioperator": {"dummy": "now"}})
        essence = progress.clear(essence=storage.build(body=Body(raw), extra_fields=["status"]))
        after = stored(storage, raw, essence)
        assert is_current(storage, after, progress, ["status"])
        after = apply_merge(after, {"status": {"trioperator": {"dummy": "later"}}})
        assert is_current(storage, after, progress, ["status"])

    def test_combined_storages_make_no_loop(self) -> None:
        storage = MultiDiffBaseStorage([AnnotationsDiffBaseStorage(), StatusDiffBaseStorage()])
        after = stored(storage, widget(spec={"big": BIG, "size": 1}))
        assert is_current(storage, after)
        assert not is_current(storage, apply_merge(after, {"spec": {"size": 2}}))

    def test_a_patch_that_stores_digests_is_recognised(self) -> None:
        patch = Patch()
        AnnotationsDiffBaseStorage().store(body=Body(widget()), patch=patch, essence={"spec": {"big": BIG}})
        assert has_digests(patch)
        assert not has_digests(Patch())
        assert not has_digests(Patch({"metadata": {"annotations": {"a": None, "b": "text"}}}))

    def test_data_that_looks_like_a_digest_is_handled_like_any_other(self) -> None:
        storage = AnnotationsDiffBaseStorage()
        raw = stored(storage, widget(spec={DIGEST: "mine", "inner": {DIGEST: "mine"}}))
        assert is_current(storage, raw)
        assert storage.fetch(body=Body(raw)) == storage.build(body=Body(raw))
        raw["spec"] = {DIGEST: "mine", "inner": {DIGEST: "other"}}
        assert not is_current(storage, raw)
        raw = stored(storage, widget(spec={DIGEST: "mine", "big": BIG}))
        assert is_current(storage, raw)
        assert storage.fetch(body=Body(raw)) == storage.build(body=Body(raw))


class TestSeveral:
    def test_the_first_storage_with_a_state_decides(self) -> None:
        first, second = AnnotationsDiffBaseStorage(), StatusDiffBaseStorage()
        storage = MultiDiffBaseStorage([first, second])
        raw = stored(second, widget())
        assert is_current(storage, raw)
        raw = stored(first, raw, {"spec": {"size": 0}})
        assert storage.fetch(body=Body(raw)) == {"spec": {"size": 0}}
        assert not is_current(storage, raw)

    def test_no_storage_has_a_state(self) -> None:
        storage = MultiDiffBaseStorage([AnnotationsDiffBaseStorage(), StatusDiffBaseStorage()])
        assert storage.fetch(body=Body(widget())) is None
        assert not is_current(storage, widget())


def test_a_custom_storage_needs_only_fetch_and_store() -> None:
    class InMemory(DiffBaseStorage):
        def __init__(self) -> None:  # as users write it: nothing of the base class is made
            self.essence: BodyEssence | None = None

        def fetch(self, *, body: Body) -> BodyEssence | None:
            return self.essence

        def store(self, *, body: Body, patch: dict[str, Any], essence: BodyEssence) -> None:
            self.essence = copy.deepcopy(essence)

    storage = InMemory()
    assert not is_current(storage, widget())
    assert stored(storage, widget()) == widget()
    assert is_current(storage, widget())
    assert not is_current(storage, widget(spec={"size": 2}))


@pytest.mark.parametrize("prefix", ["", "x" * 300])
def test_an_invalid_prefix_is_rejected(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        AnnotationsDiffBaseStorage(prefix=prefix)


def test_essences_are_encoded_as_compact_json_in_their_order() -> None:
    assert encode_essence({"b": [1, True, None], "a": {"é": 1.5}}) == '{"b":[1,true,null],"a":{"é":1.5}}'.encode()


# What others have written so deep that nothing can read it: more levels than any decoder has.
DEEP = "[" * 100_000 + "]" * 100_000
ALMOST = '{"a":' * 600 + '{"trioperator.dev/digest":"0"}' + "}" * 600  # read, but hardly more


@pytest.mark.parametrize("text", [DEEP, f'{{"spec": {DEEP}}}'])
def test_a_configuration_that_is_nested_too_deeply_is_absent(text: str) -> None:
    body = Body({"metadata": {"annotations": {"trioperator.dev/last-handled-configuration": text}}, "spec": {"a": 1}})
    storage = AnnotationsDiffBaseStorage()
    assert storage.fetch(body=body) is None
    assert not storage.is_current(body=body, encoded=b'{"spec":{"a":1}}')
    status = StatusDiffBaseStorage()
    body = Body({"status": {"trioperator": {"last-handled-configuration": text}}})
    assert status.fetch(body=body) is None
    assert not status.is_current(body=body, encoded=b'{"spec":{"a":1}}')


def test_digests_that_are_nested_too_deeply_do_not_raise() -> None:
    body = Body({"metadata": {"annotations": {"trioperator.dev/last-handled-configuration": ALMOST}}, "a": {"a": 1}})
    storage = AnnotationsDiffBaseStorage()
    assert storage.fetch(body=body) in (None, json.loads(ALMOST))
    assert not storage.is_current(body=body, encoded=b'{"a":{"a":1}}')
