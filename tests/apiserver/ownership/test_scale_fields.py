"""Tests for :mod:`trioperator.apiserver.ownership.scale_fields`: who owns the replicas of an object."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.ownership.field_sets import FieldSet, Path, contains
from trioperator.apiserver.ownership.managed_fields import Entry
from trioperator.apiserver.ownership.scale_fields import entries_of_object, entries_of_scale, path_of_replicas

PATH: Path = ("f:spec", "f:size")
TIME = "2020-01-01T00:00:00Z"
OWN: FieldSet = {"f:spec": {"f:size": {}}}
BOTH: FieldSet = {"f:spec": {"f:size": {}, "f:paused": {}}}
OTHER: FieldSet = {"f:spec": {"f:paused": {}}}
SCALED: FieldSet = {"f:spec": {"f:replicas": {}}}


def entry(manager: str, fields: dict[str, Any], *, version: str = "apps/v1", **more: Any) -> Entry:
    own = {"manager": manager, "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1"}
    return {**own, "fieldsV1": fields, **more}


def owners(entries: list[Entry], path: Path) -> set[str]:
    return {each["manager"] for each in entries if contains(each["fieldsV1"], path)}


@pytest.mark.parametrize(
    ("jsonpath", "path"),
    [(".spec.replicas", ("f:spec", "f:replicas")), (".size", ("f:size",)), (".a.b.c", ("f:a", "f:b", "f:c"))],
)
def test_a_json_path_is_a_path_of_fields(jsonpath: str, path: Path) -> None:
    assert path_of_replicas(jsonpath) == path


def test_only_managers_of_the_replicas_are_managers_of_the_scale() -> None:
    entries = [entry("one", BOTH, time=TIME), entry("two", OTHER)]
    assert entries_of_scale(entries, PATH) == [entry("one", SCALED, version="autoscaling/v1", time=TIME)]


def test_a_manager_that_lost_the_scale_keeps_its_other_fields() -> None:
    entries = [entry("one", BOTH, time=TIME)]
    scaler = entry("two", SCALED, version="autoscaling/v1", subresource="scale")
    found = entries_of_object(entries, [scaler], PATH, "apps/v1")
    assert {each["manager"]: each["fieldsV1"] for each in found} == {"one": OTHER, "two": OWN}
    assert [each.get("subresource") for each in found if each["manager"] == "two"] == ["scale"]
    assert {each["apiVersion"] for each in found} == {"apps/v1"}


def test_a_manager_without_any_fields_has_no_entry() -> None:
    scaler = entry("two", SCALED, version="autoscaling/v1")
    found = entries_of_object([entry("one", OWN)], [scaler], PATH, "apps/v1")
    assert [each["manager"] for each in found] == ["two"]


def test_an_applier_of_the_scale_keeps_its_entry_in_any_version() -> None:
    entries = [entry("one", BOTH, operation="Apply", time=TIME)]
    shown = entries_of_scale(entries, PATH)
    assert entries_of_object(entries, shown, PATH, "apps/v1") == entries


@given(st.dictionaries(st.sampled_from("abcd"), st.sampled_from([OWN, BOTH, OTHER])), st.sets(st.sampled_from("abcd")))
def test_the_replicas_are_owned_by_the_managers_of_the_scale(fields: dict[str, Any], scalers: set[str]) -> None:
    entries = [entry(manager, own) for manager, own in fields.items()]
    scaled = [entry(manager, SCALED, version="autoscaling/v1") for manager in sorted(scalers)]
    found = entries_of_object(entries, scaled, PATH, "apps/v1")
    assert owners(found, PATH) == scalers
    assert owners(found, ("f:spec", "f:paused")) == owners(entries, ("f:spec", "f:paused"))
