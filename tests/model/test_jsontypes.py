"""Tests for :mod:`trioperator._model.jsontypes`: what users want written."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._model.body import Body
from trioperator._model.jsontypes import copy_json, encode_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.just("null"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def is_finite(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(map(is_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


@given(VALUES)
def test_what_is_encoded_is_what_was_given(value: Any) -> None:
    if is_finite(value):
        assert msgspec.json.decode(encode_json(value)) == value
    else:
        with pytest.raises(ValueError, match="which is no number in JSON"):
            encode_json(value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (math.nan, "it is nan"),
        ({"a": None, "b": [0, {"c": math.inf}]}, "b[1].c is inf"),
        ({"a": (-math.inf,)}, "a[0] is -inf"),
        ({"a": {math.nan}}, "a[0] is nan"),
    ],
)
def test_a_number_that_is_none_is_named(value: Any, problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        encode_json(value)
    assert str(caught.value) == f"{problem}, which is no number in JSON"


def test_values_that_are_as_deep_as_can_be_encoded_are_searched() -> None:
    value: Any = math.nan
    for _ in range(500):
        value = [value]
    with pytest.raises(ValueError, match="no number"):
        encode_json(value)


def test_what_is_no_json_is_copied_nevertheless() -> None:
    value = {"a": object}
    assert copy_json(value) == value
    assert copy_json({"a": Body({})})["a"] == {}
