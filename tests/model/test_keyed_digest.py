"""Keyed digests in place of values that must not be stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.strategies import Untouched, fields, objects, untimed
from trioperator._model.fields import FieldPath, resolve
from trioperator._model.keyed_digest import KEYED_DIGEST, FieldDigests, reveal

DATA: FieldPath = ("data",)
SECRET = {"kind": "Secret", "data": {"user": "YWRtaW4=", "password": "MTIzNA=="}, "metadata": {"labels": {"a": "b"}}}


def hide(source: Any, *paths: FieldPath, uid: str = "u", key: str | None = None) -> Any:
    return FieldDigests(key).hide(source, paths or (DATA,), uid=uid)


def test_each_value_of_a_mapping_has_a_digest() -> None:
    hidden = hide(SECRET)
    assert {name: list(value) for name, value in hidden["data"].items()} == {
        "user": [KEYED_DIGEST],
        "password": [KEYED_DIGEST],
    }
    assert "MTIz" not in json.dumps(hidden)
    assert hidden["metadata"] is SECRET["metadata"]


@pytest.mark.parametrize("value", ["text", 5, 0, False, [1, {"a": 1}]])
def test_any_other_value_has_one_digest(value: Any) -> None:
    assert list(hide({"spec": {"password": value}}, ("spec", "password"))["spec"]["password"]) == [KEYED_DIGEST]


@pytest.mark.parametrize("source", [{}, {"data": None}, {"data": {}}, {"data": {}, "spec": 5}])
def test_what_is_absent_has_no_digest(source: Any) -> None:
    assert hide(source, DATA, ("spec", "x")) == source


def test_equal_values_have_different_digests_elsewhere() -> None:
    value = {"data": {"a": "x", "b": "x"}, "stringData": {"a": "x"}}
    digests = [
        part[KEYED_DIGEST]
        for hidden in (
            hide(value, DATA, ("stringData",)),
            hide(value, DATA, uid="other"),
            hide(value, DATA, key="k"),
            hide(value, DATA, key="K"),
        )
        for field in ("data", "stringData")
        for part in hidden[field].values()
        if isinstance(part, dict)
    ]
    assert len(digests) == 9
    assert len(set(digests)) == 9


def test_a_digest_depends_on_nothing_else() -> None:
    assert hide(SECRET, key="k") == hide(dict(reversed(SECRET.items())), key="k")
    assert hide(SECRET)["data"]["user"] == hide({"data": {"user": "YWRtaW4="}})["data"]["user"]
    assert hide({"data": {"a": {"x": 1, "y": 2}}}) == hide({"data": {"a": {"y": 2, "x": 1}}})


def test_values_that_are_unchanged_are_revealed_and_others_are_not() -> None:
    stored = hide(SECRET)
    present = {"data": {"user": "YWRtaW4=", "password": "bmV3", "more": "eA=="}, "kind": "Secret"}
    revealed = reveal(stored, [DATA], present=present, hidden=hide(present))
    assert revealed["data"] == {"user": "YWRtaW4=", "password": stored["data"]["password"]}
    assert reveal(stored, [DATA], present={}, hidden={}) == stored


def test_values_that_were_stored_as_they_are_stay() -> None:
    present = {"data": {"user": "other", "password": "MTIzNA=="}}
    assert reveal(SECRET, [DATA], present=present, hidden=hide(present)) == SECRET


@given(objects, st.lists(fields, max_size=3), st.none() | st.text(max_size=100))
@untimed
def test_whatever_is_hidden_is_revealed_by_an_unchanged_object(
    value: dict[str, Any], paths: list[FieldPath], key: str | None
) -> None:
    digests = FieldDigests(key)
    with Untouched(value):
        hidden = digests.hide(value, paths, uid="u")
        assert reveal(hidden, paths, present=value, hidden=hidden) == value


@given(objects, objects, fields)
@untimed
def test_a_change_of_a_hidden_value_is_a_difference(
    before: dict[str, Any], after: dict[str, Any], path: FieldPath
) -> None:
    digests = FieldDigests()
    stored, hidden = (digests.hide(value, [path], uid="u") for value in (before, after))
    changed = json.dumps(resolve(before, path), sort_keys=True) != json.dumps(resolve(after, path), sort_keys=True)
    assert (json.dumps(resolve(stored, path), sort_keys=True) != json.dumps(resolve(hidden, path), sort_keys=True)) is (
        changed
    )


def test_digests_stay_as_they_are() -> None:
    hidden = hide(SECRET, DATA)
    assert hide(hidden, DATA) == hidden
    one = hide({"data": "text"}, DATA)
    assert hide(one, DATA) == one
