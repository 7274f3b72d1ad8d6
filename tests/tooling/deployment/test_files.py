"""Tests for :mod:`trioperator._tooling.deployment.files`."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from trioperator._tooling.deployment.files import find_leftovers, render, render_compact, write_files
from trioperator.apiserver.bodies.yaml import load_documents
from trioperator.errors import ConfigError

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=50)
@given(st.lists(st.dictionaries(texts, values, max_size=4), max_size=3))
def test_what_is_rendered_is_read_as_it_was(objects: list[dict[str, Any]]) -> None:
    assert list(yaml.safe_load_all(render(objects))) == objects


@pytest.mark.parametrize(
    "text",
    ["1e3", "0o17", "-0o7", "1.", ".5", "017", "1_000", "yes", "y", "N", "null", "2026-01-31", "0x1F", "-1"],
)
@pytest.mark.parametrize("write", [render, render_compact])
def test_strings_that_look_like_something_else_remain_strings(text: str, write: Callable[[list[Any]], str]) -> None:
    written = write([{"value": text, text: [text]}])
    assert load_documents(written) == [{"value": text, text: [text]}]
    assert written.count("'") == 6


def test_the_same_objects_are_the_same_bytes_and_have_no_anchors() -> None:
    shared = {"a": [1, 2]}
    assert render([{"x": shared, "z": shared}]) == "x:\n  a:\n    - 1\n    - 2\nz:\n  a:\n    - 1\n    - 2\n"


def test_files_are_written_once(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "new" / "base"
    files = {"a.yaml": "a: é\n", "sub/b.yaml": "b: 1\n"}
    assert write_files(directory, files) == ["a.yaml", "sub/b.yaml"]
    assert (directory / "a.yaml").read_bytes() == "a: é\n".encode()
    assert write_files(directory, files) == []


def test_a_file_that_differs_is_not_overwritten_and_nothing_else_is_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "b.yaml").write_text("mine")
    files = {"a.yaml": "a\n", "b.yaml": "b\n"}
    with pytest.raises(ConfigError, match=r"these files exist with other content: b\.yaml\. Pass --force"):
        write_files(tmp_path, files)
    assert (tmp_path / "b.yaml").read_text() == "mine"
    assert not (tmp_path / "a.yaml").exists()
    assert write_files(tmp_path, files, force=True) == ["a.yaml", "b.yaml"]
    assert (tmp_path / "b.yaml").read_text() == "b\n"


def test_what_cannot_be_written_is_explained(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"Cannot write to .*file: (Not a directory|File exists)"):
        write_files(tmp_path / "file", {"a.yaml": "a"})


def test_leftovers_of_earlier_options_are_found(tmp_path: pathlib.Path) -> None:
    for name in ("a.yaml", "b.yaml", "users.yaml"):
        (tmp_path / name).write_text("")
    assert find_leftovers(tmp_path, ["a.yaml"], ["a.yaml", "b.yaml", "c.yaml"]) == ["b.yaml"]
