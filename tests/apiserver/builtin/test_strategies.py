"""Tests for :mod:`trioperator.apiserver.builtin.strategies`: what clients can set, by verb and subresource."""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.builtin.strategies import check_object, prepare_create, prepare_update, shape
from trioperator.apiserver.model.kinds import Catalog, CustomTraits, Kind


def builtin(name: str) -> Kind:
    kind = Catalog().find(name)
    assert kind is not None
    return kind


CUSTOM: Final = Kind(
    group="a.dev",
    version="v1",
    plural="things",
    kind="Thing",
    singular="thing",
    list_kind="ThingList",
    namespaced=True,
    subresources=frozenset({"status"}),
    has_generation=True,
    custom=CustomTraits(),
)
STORED: Final = {
    "apiVersion": "a.dev/v1",
    "kind": "Thing",
    "metadata": {"name": "a", "generation": 4, "labels": {"a": "1"}},
    "spec": {"size": 1},
    "status": {"ready": True},
}


def changed(**content: Any) -> dict[str, Any]:
    return {**copy.deepcopy(STORED), **content}


def test_a_new_object_has_the_first_generation_and_no_status() -> None:
    new = changed(metadata={"name": "a", "deletionTimestamp": "now", "generation": 9})
    prepare_create(CUSTOM, new)
    assert new["metadata"] == {"name": "a", "generation": 1}
    assert "status" not in new


@pytest.mark.parametrize(
    ("subresource", "spec", "status"),
    [("", {"size": 2}, {"ready": True}), ("status", {"size": 1}, {"ready": False})],
)
def test_a_subresource_changes_only_its_part(subresource: str, spec: Any, status: Any) -> None:
    new = changed(spec={"size": 2}, status={"ready": False})
    result = prepare_update(CUSTOM, new, STORED, subresource=subresource)
    assert (result["spec"], result["status"]) == (spec, status)


@pytest.mark.parametrize(
    ("content", "generation"),
    [
        ({"spec": {"size": 2}}, 5),
        ({"other": 1}, 5),
        ({"status": {"ready": False}}, 4),
        ({"metadata": {"name": "a", "generation": 4, "labels": {"a": "2"}}}, 4),
    ],
)
def test_the_generation_counts_changes_of_the_spec(content: dict[str, Any], generation: int) -> None:
    result = prepare_update(CUSTOM, changed(**content), STORED, subresource="")
    assert result["metadata"]["generation"] == generation


@given(st.dictionaries(st.sampled_from(["spec", "status", "other"]), st.integers()))
def test_an_unmodified_update_changes_nothing(content: dict[str, Any]) -> None:
    old = {"metadata": {"name": "a", "generation": 1}, **content}
    for subresource in ("", "status"):
        assert prepare_update(CUSTOM, copy.deepcopy(old), old, subresource=subresource) == old


def test_the_status_of_a_custom_object_is_written_without_metadata() -> None:
    meta = {"name": "a", "generation": 4, "labels": {"a": "2"}}
    result = prepare_update(CUSTOM, changed(metadata=meta), STORED, subresource="status")
    assert result["metadata"]["labels"] == {"a": "1"}


def test_the_status_of_a_pod_is_written_with_metadata_except_owners() -> None:
    old = {"metadata": {"name": "a"}, "spec": {}, "status": {}}
    new = {"metadata": {"name": "a", "labels": {"a": "2"}, "ownerReferences": [{}]}, "spec": {}, "status": {}}
    result = prepare_update(builtin("pods"), new, old, subresource="status")
    assert result["metadata"] == {"name": "a", "labels": {"a": "2"}}


def test_annotations_are_a_new_generation_of_deployments_only() -> None:
    for name, generation in (("deployments", 2), ("statefulsets", 1)):
        old = {"metadata": {"generation": 1}, "spec": {}}
        new = {"metadata": {"generation": 1, "annotations": {"a": "b"}}, "spec": {}}
        result = prepare_update(builtin(name), new, old, subresource="")
        assert result["metadata"]["generation"] == generation


def test_finalizers_of_a_namespace_are_in_a_subresource() -> None:
    old = {"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}}
    for subresource, kept in (("", ["kubernetes"]), ("finalize", [])):
        new = {"metadata": {"name": "a"}, "spec": {"finalizers": list[str]()}}
        result = prepare_update(builtin("namespaces"), new, old, subresource=subresource)
        assert result["spec"]["finalizers"] == kept


def test_a_namespace_is_labelled_with_its_name() -> None:
    obj = shape(builtin("namespaces"), {"metadata": {"name": "a", "labels": {"b": "c"}}}, [])
    assert obj["metadata"]["labels"] == {"b": "c", "kubernetes.io/metadata.name": "a"}


def test_unknown_metadata_of_custom_objects_is_dropped() -> None:
    unknown: list[str] = []
    obj = shape(CUSTOM, {"metadata": {"name": "a", "nonsense": 1}, "spec": {"size": 1}}, unknown)
    expected = {"apiVersion": "a.dev/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 1}}
    assert (obj, unknown) == (expected, ["metadata.nonsense"])


@pytest.mark.parametrize(
    ("namespace", "involved", "is_valid"),
    [("a", "a", True), ("default", "", True), ("a", "b", False), ("a", "", False)],
)
def test_an_event_is_in_the_namespace_of_its_object(namespace: str, involved: str, is_valid: bool) -> None:
    event = {"metadata": {"namespace": namespace}, "involvedObject": {"namespace": involved}}
    causes = list(check_object(builtin("events"), event, None, []))
    assert [cause.field for cause in causes] == ([] if is_valid else ["involvedObject.namespace"])
