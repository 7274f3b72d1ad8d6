"""Essences of objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.strategies import Untouched
from trioperator._model.body import Body
from trioperator._model.essence import build_essence, marker_key
from trioperator._model.fields import FieldPath


def annotated(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}}


def test_fields_written_by_systems_are_excluded() -> None:
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {
            "name": "w",
            "uid": "u",
            "resourceVersion": "5",
            "generation": 2,
            "managedFields": [{}],
            "finalizers": ["x"],
            "ownerReferences": [{}],
            "labels": {"app": "x"},
            "annotations": {"note": "y"},
        },
        "spec": {"size": 1},
        "data": {"key": "value"},
        "status": {"phase": "Ready"},
    }
    with Untouched(body):
        assert build_essence(body) == {
            "metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}},
            "spec": {"size": 1},
            "data": {"key": "value"},
        }


@pytest.mark.parametrize(
    "key",
    [
        "kubectl.kubernetes.io/last-applied-configuration",
        "kopf.zalando.org/last-handled-configuration",
        "kopf.zalando.org/handler",
        "sub.kopf.zalando.org/handler",
        "trioperator.dev/last-handled-configuration",
        "sub.trioperator.dev/handler",
    ],
)
def test_annotations_of_kubectl_and_operators_are_excluded(key: str) -> None:
    assert build_essence(annotated(**{key: "x", "note": "y"})) == annotated(note="y")
    assert build_essence(annotated(**{key: "x"})) == {}


@pytest.mark.parametrize(
    "key",
    [
        "note",
        "kopf.zalando.orgx/handler",
        "notkopf.zalando.org/handler",
        "nottrioperator.dev/x",
        "trioperator.dev",
        "kubectl.kubernetes.io/restartedAt",
    ],
)
def test_other_annotations_are_kept(key: str) -> None:
    assert build_essence(annotated(**{key: "x"})) == annotated(**{key: "x"})


def test_a_marker_excludes_all_annotations_of_its_prefix() -> None:
    body = annotated(
        **{
            marker_key("op.dev"): "yes",
            "op.dev/handler": "1",
            "sub.op.dev/handler": "2",
            "other.dev/handler": "3",
        }
    )
    assert build_essence(body) == annotated(**{"sub.op.dev/handler": "2", "other.dev/handler": "3"})


@pytest.mark.parametrize(
    "metadata", [None, {}, {"name": "x"}, {"labels": {}, "annotations": {}}, {"labels": None, "annotations": None}]
)
def test_empty_metadata_are_excluded(metadata: Any) -> None:
    assert build_essence({"metadata": metadata, "spec": {}}) == {"spec": {}}


@pytest.mark.parametrize(
    ("path", "added"),
    [
        (("status",), {"status": {"a": {"b": 1}, "c": {}}}),
        (("status", "a"), {"status": {"a": {"b": 1}}}),
        (("status", "a", "b"), {"status": {"a": {"b": 1}}}),
        (("status", "c"), {"status": {"c": {}}}),
        (("status", "missing"), {}),
        (("metadata", "name"), {"metadata": {"name": "w", "labels": {"app": "x"}}}),
        (("metadata", "labels", "app"), {}),
        (("metadata", "annotations"), {}),
        (("spec", "size"), {}),
        (("kind",), {"kind": "Widget"}),
        ((), {}),
    ],
)
def test_extra_fields_are_always_included(path: FieldPath, added: dict[str, Any]) -> None:
    body = {
        "kind": "Widget",
        "metadata": {"name": "w", "labels": {"app": "x"}, "annotations": {}},
        "spec": {"size": 1},
        "status": {"a": {"b": 1}, "c": {}},
    }
    with Untouched(body):
        essence = build_essence(body, [path])
    assert essence == {"metadata": {"labels": {"app": "x"}}, "spec": {"size": 1}} | added


def test_several_extra_fields_are_merged() -> None:
    body = {"status": {"a": {"b": 1, "c": 2, "d": 3}}}
    with Untouched(body):
        assert build_essence(body, [("status", "a", "b"), ("status", "a", "c")]) == {"status": {"a": {"b": 1, "c": 2}}}


def test_an_empty_section_as_an_extra_field_is_excluded() -> None:
    assert build_essence({"status": {}}, [("status",)]) == {}
    assert build_essence({"metadata": {"annotations": {}}}, [("metadata", "annotations")]) == {}


def test_annotations_as_extra_fields_are_always_included() -> None:
    body = annotated(**{"kopf.zalando.org/handler": "x", "note": "y"})
    assert build_essence(body, [("metadata", "annotations")]) == body


def test_values_are_shared_with_the_object() -> None:
    body: dict[str, Any] = {"spec": {"big": 1}, "metadata": {"labels": {"a": "b"}}, "status": {"s": {"x": 1}}}
    essence = build_essence(body, [("status", "s")])
    assert essence["spec"] is body["spec"]
    assert essence["metadata"]["labels"] is body["metadata"]["labels"]
    assert essence["status"]["s"] is body["status"]["s"]


def test_a_view_has_the_same_essence() -> None:
    body = {"apiVersion": "v1", "spec": {"a": 1}, "metadata": {"labels": {"a": "b"}}}
    assert build_essence(Body(body)) == build_essence(body)
