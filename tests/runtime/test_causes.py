"""Causes: what has happened to an object, from what is stored on it and what is remembered of it."""

from __future__ import annotations

import copy
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trioperator
from tests.model.test_outlines import LIMITS, VALUES, all_huge, make_lazy
from tests.runtime.guards import make_guard
from trioperator._handling.arguments.cause import DaemonCause, EventCause, ObjectCause
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._handling.handlers.handler import Reason
from trioperator._handling.storages.diffbase import AnnotationsDiffBaseStorage
from trioperator._handling.storages.progress import SmartProgressStorage
from trioperator._kube.api_client import ApiClient
from trioperator._kube.objects import parse_object
from trioperator._model import diff as diff_module
from trioperator._model import lazy_object
from trioperator._model.body import Body
from trioperator._model.digest import digest
from trioperator._model.lazy_object import LazyObject
from trioperator._model.patch import Patch, apply_merge
from trioperator._model.resource import Resource
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.causes import CauseFactory, Change, Essences, make_cause
from trioperator._runtime.patching.patcher import Patcher
from trioperator._runtime.patching.pending import PendingPatches
from trioperator._runtime.progress.progress import Progress
from trioperator._runtime.progress.records import RecordStore
from trioperator._runtime.workqueue import Lane
from trioperator.settings import OperatorSettings

on = trioperator.on
FINALIZER = "example.com/f"
LAST = "trioperator.dev/last-handled-configuration"


class NoQueue:
    is_divided = False

    def find_shard(self, uid: str) -> int:
        return 0

    def owns(self, uid: str) -> bool:
        return True

    def add(self, item: ObjectState, lane: Lane = Lane.FRESH, *, at_once: bool = False) -> None:
        raise AssertionError


class Detector:
    """Detection of changes, with the storages and the memory of an operator. Nothing is sent."""

    def __init__(self) -> None:
        storage, diffbase = SmartProgressStorage(), AnnotationsDiffBaseStorage()
        self.essences = Essences(progress=storage, diffbase=diffbase)
        self.causes = CauseFactory(self.essences, diffbase=diffbase, finalizer=FINALIZER)
        pending = PendingPatches()
        patcher = Patcher(cast(ApiClient, None), pending, make_guard(OperatorSettings(), pending))
        self.progress = Progress(RecordStore(progress=storage, diffbase=diffbase), patcher)

    def detect(self, state: ObjectState) -> Change:
        """Detect a change, and confirm the stored record, as a reconcile does."""
        change = self.causes.detect_change(state, self.progress.recall)
        if change.current:
            self.progress.confirm(state)
        return change

    def record(self, state: ObjectState) -> None:
        """Note that the object was handled as it is, in this process."""
        encoded = self.detect(state).encoded
        self.progress.last_handled(state).record(encoded, encoded, finished=True)


def make_object(*, size: int = 1, **metadata: Any) -> dict[str, Any]:
    meta = {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "1", **metadata}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, "spec": {"size": size}, "status": {}}


def make_state(body: dict[str, Any], *, initial: bool = False, field: str | None = None) -> ObjectState:
    registry = trioperator.OperatorRegistry()

    @on.field("widgets", field=field or "spec.size", registry=registry)
    async def changed(**_: Any) -> None:
        pass

    kind = Kind(Resource("example.com", "v1", "widgets"), KindHandlers.of(registry.resource_handlers()))
    cache = ObjectCache(kind, NoQueue(), memo=None, consistency_timeout=5)
    state = ObjectState(cache, "u", parse_object(msgspec.json.encode(body)), initial=initial)
    state.body = body
    return state


@pytest.fixture
def detector() -> Detector:
    return Detector()


def handled(body: dict[str, Any], detector: Detector) -> dict[str, Any]:
    """Store on an object that it was handled as it is."""
    change = detector.detect(make_state(body))
    patch = Patch()
    AnnotationsDiffBaseStorage().store(body=Body(body), patch=patch, essence=msgspec.json.decode(change.encoded))
    done: dict[str, Any] = apply_merge(body, patch)
    return done


def resized(body: dict[str, Any], size: int) -> dict[str, Any]:
    changed: dict[str, Any] = apply_merge(body, {"spec": {"size": size}})
    return changed


def without_record(body: dict[str, Any]) -> dict[str, Any]:
    removed: dict[str, Any] = apply_merge(body, {"metadata": {"annotations": {LAST: None}}})
    return removed


def summary(change: Change) -> tuple[Reason, Any, Any]:
    cause = change.cause
    return cause.reason, cause.old and dict(cause.old), cause.new and dict(cause.new)


def test_an_object_that_was_never_handled_is_a_creation(detector: Detector) -> None:
    change = detector.detect(make_state(make_object()))
    assert summary(change) == (Reason.CREATE, None, {"spec": {"size": 1}})
    assert not change.finalized


def test_an_object_in_its_last_handled_configuration_is_no_change(detector: Detector) -> None:
    change = detector.detect(make_state(handled(make_object(), detector)))
    assert change.cause.reason is Reason.NOOP
    assert change.cause.diff == ()


def test_an_initial_object_in_its_last_handled_configuration_is_resumed(detector: Detector) -> None:
    change = detector.detect(make_state(handled(make_object(), detector), initial=True))
    assert change.cause.reason is Reason.RESUME
    assert change.cause.initial


def test_the_creation_of_an_initial_object_is_no_resuming(detector: Detector) -> None:
    change = detector.detect(make_state(make_object(), initial=True))
    assert change.cause.reason is Reason.CREATE
    assert not change.cause.initial


def test_the_update_of_an_initial_object_is_a_resuming_too(detector: Detector) -> None:
    change = detector.detect(make_state(resized(handled(make_object(), detector), 2), initial=True))
    assert change.cause.reason is Reason.UPDATE
    assert change.cause.initial


def test_a_change_is_an_update_from_the_last_handled_configuration(detector: Detector) -> None:
    change = detector.detect(make_state(resized(handled(make_object(), detector), 2)))
    assert summary(change) == (Reason.UPDATE, {"spec": {"size": 1}}, {"spec": {"size": 2}})
    assert [tuple(item) for item in change.cause.diff] == [("change", ("spec", "size"), 1, 2)]


def test_own_records_and_the_status_are_no_change(detector: Detector) -> None:
    body = handled(make_object(), detector)
    body = apply_merge(body, {"metadata": {"annotations": {"trioperator.dev/create": "{}"}}, "status": {"a": 1}})
    assert detector.detect(make_state(body)).cause.reason is Reason.NOOP


def test_fields_of_handlers_count_as_changes_wherever_they_are(detector: Detector) -> None:
    patch = Patch()
    body = make_object()
    state = make_state(body, field="status.phase")
    essence = msgspec.json.decode(detector.detect(state).encoded)
    AnnotationsDiffBaseStorage().store(body=Body(body), patch=patch, essence=essence)
    state.body = apply_merge(apply_merge(body, patch), {"status": {"phase": "on", "other": 1}})
    change = detector.detect(state)
    assert summary(change) == (
        Reason.UPDATE,
        {"spec": {"size": 1}},
        {"spec": {"size": 1}, "status": {"phase": "on"}},
    )


@pytest.mark.parametrize(("finalizers", "reason"), [([FINALIZER], Reason.DELETE), (["others"], Reason.FREE)])
def test_a_deletion_is_ours_while_our_finalizer_is_there(
    finalizers: list[str], reason: Reason, detector: Detector
) -> None:
    body = make_object(finalizers=finalizers, deletionTimestamp="2020-01-01T00:00:00Z")
    change = detector.detect(make_state(body))
    assert change.cause.reason is reason
    assert change.finalized is (FINALIZER in finalizers)


def test_an_unreadable_record_counts_as_absent(detector: Detector) -> None:
    change = detector.detect(make_state(make_object(annotations={LAST: "{broken"})))
    assert change.cause.reason is Reason.CREATE


# Where somebody removes the record from the object.


def test_a_last_handled_configuration_that_was_removed_is_remembered(detector: Detector) -> None:
    body = handled(make_object(), detector)
    state = make_state(body)
    detector.record(state)
    state.body = without_record(body)
    assert detector.detect(state).cause.reason is Reason.NOOP
    state.body = without_record(resized(body, 2))
    assert summary(detector.detect(state)) == (Reason.UPDATE, {"spec": {"size": 1}}, {"spec": {"size": 2}})


def test_a_change_that_removes_the_record_is_an_update_from_nothing(detector: Detector) -> None:
    body = handled(make_object(), detector)
    state = make_state(body)
    detector.record(state)
    state.body = without_record(resized(body, 2))
    assert summary(detector.detect(state)) == (Reason.UPDATE, {}, {"spec": {"size": 2}})


def test_a_record_that_is_put_back_counts_again(detector: Detector) -> None:
    body = handled(make_object(), detector)
    state = make_state(body)
    detector.record(state)
    state.body = without_record(body)
    detector.detect(state)
    assert detector.progress.last_handled(state).is_kept
    state.body = body
    assert detector.detect(state).cause.reason is Reason.NOOP
    assert not detector.progress.last_handled(state).is_kept


def test_an_object_that_was_forgotten_and_has_no_record_is_a_creation(detector: Detector) -> None:
    state = make_state(handled(make_object(), detector))
    detector.record(state)
    state.body = make_object()
    detector.progress.forget(state)
    assert detector.detect(state).cause.reason is Reason.CREATE


# Configurations too big for annotations.


def big(text: str, size: int = 1) -> dict[str, Any]:
    body = make_object(size=size)
    body["spec"]["big"] = text * 300_000
    return body


def test_a_huge_object_that_has_not_changed_is_no_change(detector: Detector) -> None:
    body = handled(big("x"), detector)
    assert len(body["metadata"]["annotations"][LAST]) < 250_000
    assert detector.detect(make_state(body)).cause.reason is Reason.NOOP


def test_a_small_change_of_a_huge_object_is_the_only_difference(detector: Detector) -> None:
    change = detector.detect(make_state(resized(handled(big("x"), detector), 2)))
    assert change.cause.reason is Reason.UPDATE
    assert [item.field for item in change.cause.diff] == [("spec", "size")]


def test_a_change_of_a_huge_field_is_detected(detector: Detector) -> None:
    body = handled(big("x"), detector)
    change = detector.detect(make_state(apply_merge(body, {"spec": {"big": "y" * 300_000}})))
    assert change.cause.reason is Reason.UPDATE
    assert [item.field for item in change.cause.diff] == [("spec", "big")]


class Undecoded:
    """A huge object, which must not be decoded."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = LazyObject.of(msgspec.json.encode(body), self.decode, soon=None)

    def decode(self) -> dict[str, Any]:
        raise AssertionError


def wide(items: int = 100_000, size: int = 1) -> dict[str, Any]:
    body = make_object(size=size)
    body["spec"]["items"] = [[]] * items
    return body


@pytest.mark.parametrize(
    ("after", "reason", "changes"),
    [
        (wide(), Reason.NOOP, []),
        (wide(size=2), Reason.UPDATE, [("change", ("spec", "size"), 1, 2)]),
        (
            wide(100_001),
            Reason.UPDATE,
            [("change", ("spec", "items"), digest([[]] * 100_000), [[]] * 100_001)],
        ),
        (
            {**wide(), "status": {"items": [[]] * 100_000}},
            Reason.NOOP,
            [],
        ),
    ],
)
def test_a_change_of_a_huge_object_is_detected_in_what_is_small_in_it(
    detector: Detector, after: dict[str, Any], reason: Reason, changes: Any
) -> None:
    record = handled(wide(), detector)["metadata"]
    state = make_state(after)
    state.body = Undecoded({**after, "metadata": record}).body
    change = detector.detect(state)
    assert change.cause.reason is reason
    assert list(change.cause.diff) == changes
    assert detector.causes.make_deletion_cause(state).new == {"spec": after["spec"]}


def test_handlers_get_mappings_of_a_huge_change_which_are_decoded_when_they_are_used(detector: Detector) -> None:
    state = make_state(wide(size=2))
    state.body = Undecoded({**wide(size=2), "metadata": handled(wide(), detector)["metadata"]}).body
    cause = detector.detect(state).cause
    old, new, changes = cause.given()
    assert (type(old), type(new)) == (LazyObject, LazyObject)
    assert list(changes) == [("change", ("spec", "size"), 1, 2)]
    new["spec"]["items"].append(1)
    assert old == {"spec": wide()["spec"]}
    assert cause.new == {"spec": wide(size=2)["spec"]}
    state.body = Undecoded(wide()).body
    created = detector.detect(state).cause.narrowed_to(("spec", "size"))
    assert (created.old, cast(object, created.new)) == (None, 1)
    assert list(created.diff) == [("add", (), None, 1)]


def test_what_is_large_in_a_change_is_decoded_when_a_handler_looks_at_it(
    detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make_state(wide(100_001))
    record = handled(wide(), detector)["metadata"]
    state.body = Undecoded({**wide(100_001), "metadata": record}).body
    cause, looked = detector.detect(state).cause, list[Any]()
    hand_out = diff_module._hand_out

    def look(value: Any) -> Any:
        looked.append(value)
        return hand_out(value)

    monkeypatch.setattr(diff_module, "_hand_out", look)
    _, _, changes = cause.given()
    assert changes
    assert (len(changes), looked) == (1, [])
    assert copy.deepcopy(changes) == changes == changes[:] == [tuple(changes[0])]
    assert changes[0].new == [[]] * 100_001
    assert not hasattr(changes, "other")
    assert len(looked) == 2, "it is decoded once"


def test_a_huge_object_is_divided_once_for_its_essence(detector: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    state = make_state(wide())
    state.body = Undecoded({**wide(), "metadata": handled(wide(), detector)["metadata"]}).body
    monkeypatch.setattr(lazy_object, "_sketch", None)
    new = detector.detect(state).cause.new
    assert type(new) is LazyObject
    assert new.outline is not None
    assert new == {"spec": wide()["spec"]}


def test_a_huge_object_that_others_write_in_another_order_is_not_changed(detector: Detector) -> None:
    body = wide()
    body["spec"]["items"].append({"a": 1, "b": 2})
    record = handled(body, detector)["metadata"]
    body["spec"]["items"][-1] = {"b": 2, "a": 1}
    state = make_state(body)
    state.body = Undecoded({**body, "metadata": record}).body
    assert detector.detect(state).cause.reason is Reason.NOOP


def test_a_huge_object_is_decoded_for_fields_of_its_status_and_for_storages_of_users(detector: Detector) -> None:
    body = {**wide(), "status": {"items": [[]] * 100_000}}
    state = make_state(body, field="status.items")
    state.body = LazyObject.of(msgspec.json.encode(body), lambda: body, soon=None)
    assert detector.essences.reduce(state, detector.essences.view(state, state.body))["status"] == body["status"]
    ignoring = AnnotationsDiffBaseStorage(ignored_fields=["spec.items"])
    essences = Essences(progress=SmartProgressStorage(), diffbase=ignoring)
    assert essences.reduce(state, essences.view(state, state.body)) == {"spec": {"size": 1}, "status": body["status"]}


def test_detection_leaves_the_object_unchanged(detector: Detector) -> None:
    body = resized(handled(make_object(), detector), 2)
    before = msgspec.json.encode(body)
    state = make_state(body)
    detector.detect(state)
    assert msgspec.json.encode(body) == before
    assert state.body is body


# Essences, and the causes of other handlers.


def test_what_is_no_part_of_the_essence_changes_neither_its_bytes_nor_its_digest(detector: Detector) -> None:
    body = make_object()
    other = {**make_object(resourceVersion="2"), "status": {"phase": "on"}}
    state = make_state(body)
    assert detector.essences.encode(state, body) == detector.essences.encode(state, other) == b'{"spec":{"size":1}}'
    assert detector.essences.digest(state, body) == detector.essences.digest(state, other)
    assert detector.essences.digest(state, body) != detector.essences.digest(state, resized(body, 2))


def test_the_deletion_of_an_object_that_is_gone_is_made_of_its_last_state(detector: Detector) -> None:
    state = make_state(resized(handled(make_object(), detector), 2), initial=True)
    cause = detector.causes.make_deletion_cause(state)
    assert (cause.reason, cause.initial, cause.raw) == (Reason.DELETE, False, state.body)
    assert cause.old == cause.new == {"spec": {"size": 2}}


def test_every_cause_has_the_body_and_the_memo_of_its_object(detector: Detector) -> None:
    body = make_object()
    state = make_state(body)
    for cause in (
        make_cause(ObjectCause, state, body),
        make_cause(EventCause, state, body, type="MODIFIED"),
        make_cause(DaemonCause, state, body, local=False),
        detector.detect(state).cause,
    ):
        assert (cause.raw, cause.resource, cause.get_memo()) == (body, state.cache.kind.resource, state.get_memo())
    assert make_cause(EventCause, state, body, type="DELETED").type == "DELETED"


MEMBERS = st.sampled_from(["size", "a", "b", "c"])
LARGER = st.text(min_size=200, max_size=300) | st.lists(st.integers(0, 9), min_size=100, max_size=150)
PARTS = st.fixed_dictionaries({}, optional={"spec": st.dictionaries(MEMBERS, VALUES | LARGER), "status": VALUES})


@given(before=PARTS, after=PARTS, is_same=st.booleans(), limits=LIMITS)
def test_whether_a_huge_object_has_changed_is_told_as_of_others(
    before: dict[str, Any], after: dict[str, Any], is_same: bool, limits: tuple[int, int]
) -> None:
    detector = Detector()
    record = handled({**make_object(), **before}, detector)["metadata"]
    body = {**make_object(), **(before if is_same else after), "metadata": record}
    expected = detector.detect(make_state(body))
    with all_huge(limits):
        state = make_state(body)
        state.body = make_lazy(body)
        found = Detector().detect(state)
        assert (summary(found), list(found.cause.diff)) == (summary(expected), list(expected.cause.diff))
