"""Tests for :mod:`trioperator.apiserver.model.quoting`: strings and values in messages look as Go prints them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.model.quoting import go_text, json_name, quote, quote_all


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", '""'),
        ("a b", '"a b"'),
        ('say "a"', r'"say \"a\""'),
        ("a\\b", r'"a\\b"'),
        ("a\0\n\x85\u200b", r'"a\x00\n\u0085\u200b"'),
        ('\\"', r'"\\\""'),
    ],
)
def test_quotes_and_backslashes_are_escaped(text: str, quoted: str) -> None:
    assert quote(text) == quoted


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_a_quoted_string_is_a_string_literal(text: str) -> None:
    assert msgspec.json.decode(quote(text)) == text


@pytest.mark.parametrize(("texts", "quoted"), [([], "[]"), (["a"], '["a"]'), (["a", "b c"], '["a" "b c"]')])
def test_slices_have_no_commas(texts: list[str], quoted: str) -> None:
    assert quote_all(texts) == quoted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "map[]"),
        ({"b": 1, "a": [True, None]}, "map[a:[true <nil>] b:1]"),
        ([], "[]"),
        (["a b", False, 1.5], "[a b false 1.5]"),
        ("a", "a"),
        (3, "3"),
    ],
)
def test_untyped_values_look_as_go_prints_them(value: Any, text: str) -> None:
    assert go_text(value) == text


@given(st.dictionaries(st.text("abc", min_size=1), st.integers()))
def test_the_order_of_a_map_does_not_matter(value: dict[str, int]) -> None:
    assert go_text(value) == go_text(dict(reversed(value.items())))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (True, "bool"),
        (1, "number"),
        (1.5, "number"),
        ("1", "string"),
        ([], "array"),
        ({}, "object"),
        (None, "null"),
    ],
)
def test_types_have_the_names_of_json(value: Any, name: str) -> None:
    assert json_name(value) == name
