"""The detector: what has happened to an object, told from what is stored on it and what is remembered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import trioperator
from trioperator.handling.diffbase import AnnotationsDiffBaseStorage
from trioperator.handling.handler import Reason
from trioperator.handling.progress import SmartProgressStorage
from trioperator.handling.registry import KindHandlers
from trioperator.kube.objects import parse_object
from trioperator.model.body import Body
from trioperator.model.patch import Patch, apply_merge
from trioperator.model.resource import Resource
from trioperator.runtime.detector import Change, Detector
from trioperator.runtime.table import Kind, Known, ObjectTable

on = trioperator.on
FINALIZER = "example.com/f"
LAST = "trioperator.dev/last-handled-configuration"


class NoQueue:
    def add(self, known: Known) -> None:
        raise AssertionError


def make_object(*, size: int = 1, **metadata: Any) -> dict[str, Any]:
    meta = {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "1", **metadata}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, "spec": {"size": size}, "status": {}}


def know(body: dict[str, Any], *, initial: bool = False, field: str | None = None) -> Known:
    registry = trioperator.OperatorRegistry()

    @on.field("widgets", field=field or "spec.size", registry=registry)
    async def changed(**_: Any) -> None:
        pass

    kind = Kind(Resource("example.com", "v1", "widgets"), KindHandlers.of(registry.resource_handlers()))
    table = ObjectTable(kind, NoQueue(), memo=None, consistency_timeout=5)
    known = Known(table, "u", parse_object(msgspec.json.encode(body)), initial=initial)
    known.body = body
    return known


@pytest.fixture
def detector() -> Detector:
    return Detector(progress=SmartProgressStorage(), diffbase=AnnotationsDiffBaseStorage(), finalizer=FINALIZER)


def handled(body: dict[str, Any], detector: Detector) -> dict[str, Any]:
    """Put on an object that it was handled as it is."""
    change = detector.detect(know(body))
    patch = Patch()
    AnnotationsDiffBaseStorage().store(body=Body(body), patch=patch, essence=msgspec.json.decode(change.encoded))
    done: dict[str, Any] = apply_merge(body, patch)
    return done


def resized(body: dict[str, Any], size: int) -> dict[str, Any]:
    changed: dict[str, Any] = apply_merge(body, {"spec": {"size": size}})
    return changed


def without_last(body: dict[str, Any]) -> dict[str, Any]:
    stripped: dict[str, Any] = apply_merge(body, {"metadata": {"annotations": {LAST: None}}})
    return stripped


def summary(change: Change) -> tuple[Reason, Any, Any]:
    cause = change.cause
    return cause.reason, cause.old and dict(cause.old), cause.new and dict(cause.new)


def test_an_object_never_handled_is_created(detector: Detector) -> None:
    change = detector.detect(know(make_object()))
    assert summary(change) == (Reason.CREATE, None, {"spec": {"size": 1}})
    assert not change.finalized


def test_an_object_that_is_as_it_was_handled_is_nothing_new(detector: Detector) -> None:
    change = detector.detect(know(handled(make_object(), detector)))
    assert change.cause.reason is Reason.NOOP
    assert change.cause.diff == ()


def test_at_the_start_it_is_resumed(detector: Detector) -> None:
    change = detector.detect(know(handled(make_object(), detector), initial=True))
    assert change.cause.reason is Reason.RESUME
    assert change.cause.initial


def test_a_creation_at_the_start_is_no_resuming(detector: Detector) -> None:
    change = detector.detect(know(make_object(), initial=True))
    assert change.cause.reason is Reason.CREATE
    assert not change.cause.initial


def test_an_update_at_the_start_is_both(detector: Detector) -> None:
    change = detector.detect(know(resized(handled(make_object(), detector), 2), initial=True))
    assert change.cause.reason is Reason.UPDATE
    assert change.cause.initial


def test_a_change_is_an_update_from_the_state_that_was_handled(detector: Detector) -> None:
    change = detector.detect(know(resized(handled(make_object(), detector), 2)))
    assert summary(change) == (Reason.UPDATE, {"spec": {"size": 1}}, {"spec": {"size": 2}})
    assert [tuple(item) for item in change.cause.diff] == [("change", ("spec", "size"), 1, 2)]


def test_own_records_and_the_status_are_no_change(detector: Detector) -> None:
    body = handled(make_object(), detector)
    body = apply_merge(body, {"metadata": {"annotations": {"trioperator.dev/create": "{}"}}, "status": {"a": 1}})
    assert detector.detect(know(body)).cause.reason is Reason.NOOP


def test_fields_that_handlers_look_at_are_a_change_wherever_they_are(detector: Detector) -> None:
    patch = Patch()
    body = make_object()
    known = know(body, field="status.phase")
    essence = msgspec.json.decode(detector.detect(known).encoded)
    AnnotationsDiffBaseStorage().store(body=Body(body), patch=patch, essence=essence)
    known.body = apply_merge(apply_merge(body, patch), {"status": {"phase": "on", "other": 1}})
    change = detector.detect(known)
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
    change = detector.detect(know(body))
    assert change.cause.reason is reason
    assert change.finalized is (FINALIZER in finalizers)


def test_what_is_stored_and_cannot_be_read_counts_as_absent(detector: Detector) -> None:
    change = detector.detect(know(make_object(annotations={LAST: "{broken"})))
    assert change.cause.reason is Reason.CREATE


# Where somebody takes off what is stored.


def test_a_state_that_was_taken_off_is_remembered(detector: Detector) -> None:
    body = handled(make_object(), detector)
    known = know(body)
    known.handled = hash(detector.detect(known).encoded)
    known.body = without_last(body)
    assert detector.detect(known).cause.reason is Reason.NOOP
    known.body = without_last(resized(body, 2))
    assert summary(detector.detect(known)) == (Reason.UPDATE, {"spec": {"size": 1}}, {"spec": {"size": 2}})


def test_what_was_taken_off_with_a_change_is_an_update_from_nothing(detector: Detector) -> None:
    body = handled(make_object(), detector)
    known = know(body)
    known.handled = hash(detector.detect(known).encoded)
    known.body = without_last(resized(body, 2))
    assert summary(detector.detect(known)) == (Reason.UPDATE, {}, {"spec": {"size": 2}})


def test_what_is_put_back_counts_again(detector: Detector) -> None:
    body = handled(make_object(), detector)
    known = know(body)
    known.handled = hash(detector.detect(known).encoded)
    known.body = without_last(body)
    detector.detect(known)
    known.body = body
    assert detector.detect(known).cause.reason is Reason.NOOP
    assert known.stripped is None


# What is too big for annotations.


def big(text: str, size: int = 1) -> dict[str, Any]:
    body = make_object(size=size)
    body["spec"]["big"] = text * 300_000
    return body


def test_a_huge_object_that_has_not_changed_is_nothing_new(detector: Detector) -> None:
    body = handled(big("x"), detector)
    assert len(body["metadata"]["annotations"][LAST]) < 250_000
    assert detector.detect(know(body)).cause.reason is Reason.NOOP


def test_a_small_change_of_a_huge_object_is_the_only_difference(detector: Detector) -> None:
    change = detector.detect(know(resized(handled(big("x"), detector), 2)))
    assert change.cause.reason is Reason.UPDATE
    assert [item.field for item in change.cause.diff] == [("spec", "size")]


def test_a_big_change_of_a_huge_object_is_seen(detector: Detector) -> None:
    body = handled(big("x"), detector)
    change = detector.detect(know(apply_merge(body, {"spec": {"big": "y" * 300_000}})))
    assert change.cause.reason is Reason.UPDATE
    assert [item.field for item in change.cause.diff] == [("spec", "big")]


def test_detection_changes_nothing(detector: Detector) -> None:
    body = resized(handled(make_object(), detector), 2)
    before = msgspec.json.encode(body)
    known = know(body)
    detector.detect(known)
    assert msgspec.json.encode(body) == before
    assert known.body is body
