"""The JSONPath subset of printer columns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.custom.jsonpath import find_all, find_first, put_at

OBJ: dict[str, Any] = {
    "metadata": {"labels": {"app.kubernetes.io/name": "x"}},
    "spec": {"list": [{"name": "a", "on": True}, {"name": "b", "on": False}], "n": 0},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Done", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.n", [0]),
        ("spec.n", [0]),
        ("$.spec.n", [0]),
        ("{.spec.n}", [0]),
        (".spec.list[0].name", ["a"]),
        (".spec.list[-1].name", ["b"]),
        (".spec.list[7].name", []),
        (".spec.list[*].name", ["a", "b"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Done')].status", ["False"]),
        ('.status.conditions[?(@.type!="Done")].type', ["Ready"]),
        (".spec.list[?(@.on==true)].name", ["a"]),
        (r".metadata.labels.app\.kubernetes\.io/name", ["x"]),
        (".metadata.labels['app.kubernetes.io/name']", ["x"]),
        (".spec.nothing.deeper", []),
        (".spec.n.deeper", []),
        (".spec[", []),
        (".", [OBJ]),
    ],
)
def test_paths_find_their_values(path: str, expected: list[Any]) -> None:
    assert find_all(OBJ, path) == expected


@given(st.text(max_size=20))
def test_any_path_is_accepted(path: str) -> None:
    find_first(OBJ, path)


def test_setting_a_value_does_not_change_the_object() -> None:
    changed = put_at(OBJ, ".spec.replicas", 5)
    assert changed["spec"] == {**OBJ["spec"], "replicas": 5}
    assert "replicas" not in OBJ["spec"]
    assert put_at({}, ".a.b.c", 1) == {"a": {"b": {"c": 1}}}
