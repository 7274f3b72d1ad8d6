"""Tests for :mod:`trioperator.apiserver.writing.validation`: what every write must satisfy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from trioperator.apiserver.custom.schema import compile_schema
from trioperator.apiserver.model.kinds import Catalog, CustomTraits, Kind
from trioperator.apiserver.store.storage import Stored
from trioperator.apiserver.writing import validation
from trioperator.errors import ApiError, ConflictError, InvalidError

catalog = Catalog()
OLD = Stored("ns/a", {"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "3"}}, 3)


def kind(name: str) -> Kind:
    found = catalog.find(name)
    assert found is not None
    return found


def config_map(**meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns", **meta}}


@pytest.mark.parametrize("version", ["3", "0", None])
def test_a_change_of_the_stored_version_or_of_any_version_is_accepted(version: str | None) -> None:
    validation.check_lock(kind("configmaps"), config_map(resourceVersion=version), OLD)


def test_a_change_of_another_version_conflicts() -> None:
    with pytest.raises(ConflictError, match="the object has been modified"):
        validation.check_lock(kind("configmaps"), config_map(resourceVersion="2"), OLD)
    with pytest.raises(InvalidError, match='parsing "x": invalid syntax'):
        validation.check_lock(kind("configmaps"), config_map(resourceVersion="x"), OLD)


@pytest.mark.parametrize("version", ["0", None])
def test_a_few_kinds_are_updated_in_a_known_version_only(version: str | None) -> None:
    with pytest.raises(InvalidError, match="must be specified for an update"):
        validation.check_lock(kind("apiservices"), config_map(resourceVersion=version), OLD)


def test_the_name_of_an_object_is_that_in_the_url() -> None:
    validation.match_name({"name": "a"}, "a")
    for meta, text in (({"name": "b"}, "does not match the name on the URL"), ({}, "name must be provided")):
        with pytest.raises(ApiError, match=text) as info:
            validation.match_name(meta, "a")
        assert info.value.status == 400


def test_an_object_gets_the_namespace_of_the_url() -> None:
    for meta in ({}, {"namespace": ""}, {"namespace": "ns"}):
        validation.match_namespace(kind("configmaps"), meta, "ns")
        assert meta == {"namespace": "ns"}
    meta = {"namespace": "ignored"}
    validation.match_namespace(kind("nodes"), meta, "")
    assert meta == {}
    with pytest.raises(ApiError, match="does not match the namespace sent on the request"):
        validation.match_namespace(kind("configmaps"), {"namespace": "other"}, "ns")


def test_all_causes_of_an_invalid_change_are_reported_at_once() -> None:
    old = config_map(uid="u")
    new = config_map(uid="other", labels={"a": "not valid"})
    with pytest.raises(InvalidError) as info:
        validation.validate(kind("configmaps"), new, old, [])
    fields = [cause["field"] for cause in info.value.details["causes"]]
    assert {"metadata.uid", "metadata.labels"} <= set(fields)
    validation.validate(kind("configmaps"), old, old, [])


def test_nulls_are_invalid_where_the_schema_requires_a_value() -> None:
    fields = {"size": {"type": "integer"}, "maybe": {"type": "integer", "nullable": True}}
    structure = compile_schema({"type": "object", "properties": fields}, is_root=True)
    custom = dataclasses.replace(kind("configmaps"), custom=CustomTraits(structure=structure))
    validation.check_nulls(custom, {**config_map(), "size": 1, "maybe": None})
    validation.check_nulls(kind("configmaps"), {**config_map(), "size": None})
    with pytest.raises(InvalidError, match="size: Invalid value"):
        validation.check_nulls(custom, {**config_map(), "size": None})


@pytest.mark.parametrize(
    ("plural", "meta", "spec", "is_removable"),
    [
        ("pods", {}, {}, False),
        ("pods", {"deletionTimestamp": "t"}, {}, True),
        ("pods", {"deletionTimestamp": "t", "finalizers": ["a.b/c"]}, {}, False),
        ("pods", {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 5}, {}, False),
        ("pods", {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 0}, {}, True),
        ("namespaces", {"deletionTimestamp": "t"}, {"finalizers": ["kubernetes"]}, False),
        ("namespaces", {"deletionTimestamp": "t"}, {}, True),
    ],
)
def test_an_object_is_removed_once_nothing_blocks_it(
    plural: str, meta: dict[str, Any], spec: dict[str, Any], is_removable: bool
) -> None:
    assert validation.is_removable(kind(plural), {"metadata": meta, "spec": spec}) is is_removable


def test_another_uid_is_reported_with_the_key_of_the_object() -> None:
    text = validation.uid_mismatch_text(kind("configmaps"), OLD, "x")
    assert "Key: /registry/configmaps/ns/a," in text
    assert text.endswith("UID in precondition: x, UID in object meta: u")
