"""Tests for :mod:`trioperator.apiserver.webhooks.json_patch`: patches apply, or fail as on the real server."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.webhooks.json_patch import apply_operations
from trioperator.errors import ServerError

OBJECT: dict[str, Any] = {"metadata": {"name": "a"}, "data": {"a": "b"}, "list": [1, 2]}
names = st.text("ab~/", min_size=1, max_size=3)


def pointer(name: str) -> str:
    return "/data/" + name.replace("~", "~0").replace("/", "~1")


def test_operations_are_applied_in_order() -> None:
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/data/c", "value": "d"},
        {"op": "move", "from": "/data/c", "path": "/data/e"},
        {"op": "test", "path": "/data/e", "value": "d"},
        {"op": "remove", "path": "/data/a"},
        {"op": "add", "path": "/list/-", "value": 3},
    ]
    patched = apply_operations(OBJECT, operations)
    assert patched == {"metadata": {"name": "a"}, "data": {"e": "d"}, "list": [1, 2, 3]}


def test_the_object_itself_stays_as_it_is() -> None:
    before = copy.deepcopy(OBJECT)
    patched = apply_operations(OBJECT, [{"op": "replace", "path": "/data/a", "value": "x"}])
    assert patched["data"] == {"a": "x"}
    patched["metadata"]["name"] = "other"
    assert before == OBJECT


@pytest.mark.parametrize(
    ("operation", "value"),
    [
        ({"op": "replace", "path": "/data/z", "value": "1"}, "1"),
        ({"op": "add", "path": "/data/z"}, None),
        ({"op": "copy", "from": "/data/missing", "path": "/data/z"}, None),
    ],
)
def test_missing_values_are_null_and_missing_fields_are_added(operation: dict[str, Any], value: Any) -> None:
    assert apply_operations(OBJECT, [operation])["data"] == {"a": "b", "z": value}


def test_a_missing_field_equals_null() -> None:
    assert apply_operations(OBJECT, [{"op": "test", "path": "/data/z", "value": None}]) == OBJECT


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "remove", "path": "/data/z"},
        {"op": "move", "from": "/data/z", "path": "/data/y"},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "test", "path": "/data/a", "value": "x"},
        {"op": "frob", "path": "/data/a"},
        {"path": "/data/a"},
    ],
)
def test_an_operation_that_cannot_be_applied_is_an_internal_error(operation: dict[str, Any]) -> None:
    with pytest.raises(ServerError, match="Internal error occurred: "):
        apply_operations(OBJECT, [operation])


@given(st.dictionaries(names, st.integers()), st.dictionaries(names, st.integers()))
def test_added_and_removed_fields_lead_to_any_other_content(old: dict[str, int], new: dict[str, int]) -> None:
    removed = [{"op": "remove", "path": pointer(name)} for name in old.keys() - new.keys()]
    added = [{"op": "add", "path": pointer(name), "value": value} for name, value in new.items()]
    assert apply_operations({"data": old}, [*removed, *added]) == {"data": new}
