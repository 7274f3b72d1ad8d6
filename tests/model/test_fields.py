"""Paths into nested objects."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given

from tests.model.strategies import Untouched, fields, objects, untimed, values
from trioperator._model.fields import FieldPath, FieldSpec, ensure, parse_field, remove, resolve, without


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (None, ()),
        ("", ()),
        ("spec", ("spec",)),
        ("spec.size", ("spec", "size")),
        (["metadata", "labels", "a.b/c"], ("metadata", "labels", "a.b/c")),
        (("spec", "size"), ("spec", "size")),
        ((), ()),
    ],
)
def test_a_field_is_a_dotted_string_or_a_list_of_keys(spec: FieldSpec, path: FieldPath) -> None:
    assert parse_field(spec) == path


def test_an_invalid_field_is_rejected() -> None:
    for spec in (5, "spec..x", ".spec", "spec.", ".", ["spec", 0]):
        with pytest.raises(ValueError, match=f"not {re.escape(repr(spec))}"):
            parse_field(spec)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ((), {"spec": {"size": 1, "none": None, "list": [1]}}),
        (("spec", "size"), 1),
        (("spec", "none"), "default"),
        (("spec", "none", "deeper"), "default"),
        (("spec", "missing"), "default"),
        (("spec", "size", "deeper"), "default"),
        (("spec", "list", "0"), "default"),
        (("missing", "size"), "default"),
    ],
)
def test_missing_or_none_values_resolve_to_the_default(path: FieldPath, found: Any) -> None:
    assert resolve({"spec": {"size": 1, "none": None, "list": [1]}}, path, "default") == found


def test_a_value_is_set_with_its_missing_parents() -> None:
    target: dict[str, Any] = {"spec": {"a": 1, "scalar": 5}}
    ensure(target, ("spec", "b", "c"), 2)
    ensure(target, ("spec", "scalar", "x"), 3)
    assert target == {"spec": {"a": 1, "b": {"c": 2}, "scalar": {"x": 3}}}


def test_the_root_cannot_be_set() -> None:
    with pytest.raises(ValueError, match="root"):
        ensure({}, (), 1)


def test_parents_that_become_empty_are_removed() -> None:
    target = {"spec": {"a": {"b": 1}, "c": 2}, "status": {"x": {"y": 1}}}
    remove(target, ("spec", "a", "b"))
    remove(target, ("status", "x", "y"))
    assert target == {"spec": {"c": 2}}


@given(objects, fields)
@untimed
def test_removing_never_fails(target: dict[str, Any], path: FieldPath) -> None:
    remove(target, ())
    remove(target, path)
    assert resolve(target, path) is None


@given(objects, fields, values)
@untimed
def test_a_value_that_is_set_is_found(target: dict[str, Any], path: FieldPath, value: Any) -> None:
    ensure(target, path, value)
    assert resolve(target, path) == value


@given(objects, fields)
@untimed
def test_a_copy_without_a_field_equals_the_result_of_removing_it(source: dict[str, Any], path: FieldPath) -> None:
    expected = copy.deepcopy(source)
    remove(expected, path)
    with Untouched(source):
        assert without(source, path) == expected


def test_a_copy_without_a_field_shares_the_rest_and_a_missing_field_needs_no_copy() -> None:
    source: dict[str, Any] = {"spec": {"big": [1, 2, 3], "a": {"b": 1}}, "data": {"x": 1}}
    reduced = without(source, ("spec", "a", "b"))
    assert reduced == {"spec": {"big": [1, 2, 3]}, "data": {"x": 1}}
    assert reduced["data"] is source["data"]
    assert reduced["spec"]["big"] is source["spec"]["big"]
    assert without(source, ("spec", "missing", "b")) is source
    assert without(source, ("spec", "big", "b")) is source
    assert without(source, ()) is source
