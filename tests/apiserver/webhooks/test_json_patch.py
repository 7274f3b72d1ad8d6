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


FAILURES: list[tuple[dict[str, Any], str]] = [
    (
        {"op": "add", "path": "/x/y", "value": 1},
        'add operation does not apply: doc is missing path: "/x/y": missing value',
    ),
    ({"op": "remove", "path": "/x/y"}, 'remove operation does not apply: doc is missing path: "/x/y": missing value'),
    (
        {"op": "move", "from": "/x/y", "path": "/data/z"},
        "move operation does not apply: doc is missing path: /x/y: missing value",
    ),
    (
        {"op": "remove", "path": "/data/z"},
        "error in remove for path: '/data/z': Unable to remove nonexistent key: z: missing value",
    ),
    (
        {"op": "move", "from": "/data/z", "path": "/data/y"},
        "error in move for path: 'z': Unable to remove nonexistent key: z: missing value",
    ),
    (
        {"op": "add", "path": "/list/7", "value": 1},
        "error in add for path: '/list/7': Unable to access invalid index: 7: invalid index referenced",
    ),
    ({"op": "test", "path": "/data/a", "value": "x"}, "testing value /data/a failed: test failed"),
    ({"op": "frob", "path": "/data/a"}, "Unexpected kind: frob"),
    ({"path": "/data/a"}, "Unexpected kind: None"),
]


@pytest.mark.parametrize(("operation", "text"), FAILURES)
def test_an_operation_that_cannot_be_applied_is_an_internal_error(operation: dict[str, Any], text: str) -> None:
    with pytest.raises(ServerError) as info:
        apply_operations(OBJECT, [operation])
    assert (info.value.status, info.value.message) == (500, f"Internal error occurred: {text}")


@given(st.dictionaries(names, st.integers()), st.dictionaries(names, st.integers()))
def test_added_and_removed_fields_lead_to_any_other_content(old: dict[str, int], new: dict[str, int]) -> None:
    removed = [{"op": "remove", "path": pointer(name)} for name in old.keys() - new.keys()]
    added = [{"op": "add", "path": pointer(name), "value": value} for name, value in new.items()]
    assert apply_operations({"data": old}, [*removed, *added]) == {"data": new}
