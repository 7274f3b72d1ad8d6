"""Tests for :mod:`trioperator.apiserver.manifests`: manifests are objects, lists, YAML text, or paths of files."""

from __future__ import annotations

import pathlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.manifests import load_objects, metadata_of
from trioperator.errors import ConfigError

A, B, C = ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}} for name in "abc")
TEXT = "---\n{}\n---\n# nothing\n---\n{}\n"


def text_of(obj: Any) -> str:
    """Return the object as JSON, which is YAML."""
    return msgspec.json.encode(obj).decode()


@pytest.mark.parametrize(
    ("manifest", "objects"),
    [
        (A, [A]),
        ([A, B], [A, B]),
        ((obj for obj in (A, B)), [A, B]),
        ({"kind": "List", "items": [A, {"kind": "List", "items": [B]}, C]}, [A, B, C]),
        ({"kind": "List"}, []),
        ({"kind": "List", "items": None}, []),
        ([A, {"kind": "List", "items": [B]}], [A, B]),
        (TEXT.format(text_of(A), text_of(B)), [A, B]),
        ([text_of(A), B], [A, B]),
        (text_of({"kind": "List", "items": [A, B]}), [A, B]),
        ("", []),
        ([], []),
    ],
)
def test_manifests_are_loaded_in_order(manifest: Any, objects: list[Any]) -> None:
    assert load_objects(manifest) == objects


def test_a_path_stands_for_the_objects_of_its_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("kind: Größe\n---\nkind: B\n", encoding="utf-8")
    assert load_objects(path) == [{"kind": "Größe"}, {"kind": "B"}]


@given(st.recursive(st.just(A), lambda inner: st.lists(inner, max_size=3), max_leaves=8))
def test_lists_may_be_nested(manifest: Any) -> None:
    def count(item: Any) -> int:
        return sum(map(count, item)) if isinstance(item, list) else 1

    assert load_objects(manifest) == [A] * count(manifest)
    if isinstance(manifest, list):
        assert len(load_objects({"kind": "List", "items": manifest})) == count(manifest)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("{", "The manifest is not YAML: "),
        ("text", "The manifest has a str where an object is expected"),
        ("- 1", "The manifest has a list where an object is expected"),
        ("kind: A\n---\n5", "The manifest has a int where an object is expected"),
        (5, "The manifest has a int where an object is expected"),
        ([A, None], "The manifest has a NoneType where an object is expected"),
        ({"kind": "List", "items": 5}, "The manifest has a int where an object is expected"),
    ],
)
def test_anything_else_is_an_error(manifest: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_objects(manifest)


@pytest.mark.parametrize(
    ("manifest", "meta"),
    [
        (A, {"name": "a"}),
        ({}, {}),
        ({"metadata": None}, {}),
        ({"metadata": {"namespace": None}}, {"namespace": None}),
        ({"metadata": {"name": 5}}, {"name": 5}),
    ],
)
def test_metadata_may_be_missing(manifest: dict[str, Any], meta: dict[str, Any]) -> None:
    assert metadata_of(manifest) == meta


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ("a", "The manifest of a Pod has a str as its metadata."),
        ([], "The manifest of a Pod has a list as its metadata."),
        ({"namespace": ["x"]}, "The manifest of a Pod has a list as its namespace."),
        ({"namespace": 5}, "The manifest of a Pod has a int as its namespace."),
    ],
)
def test_metadata_of_the_wrong_type_are_errors(meta: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        metadata_of({"kind": "Pod", "metadata": meta})
    assert str(caught.value) == message
