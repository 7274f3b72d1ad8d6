"""JSON that is nested too deeply for the decoder, taken apart."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.levels import TOO_MANY
from tests.model.strategies import untimed
from trioperator._kube.deep_json import DECODE_ERRORS, decode_shallow, split_items, split_members

# More levels than any decoder has: Python's limit depends on its version.
DEPTH = TOO_MANY
DEEP = b'{"a":[' * DEPTH + b"]}" * DEPTH

texts = st.text(alphabet='ab"\\{}[],: \né', max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
formats: Any = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])


@given(st.dictionaries(texts, values), formats)
@untimed
def test_an_object_is_split_into_its_members(value: dict[str, Any], options: dict[str, Any]) -> None:
    members = list(split_members(json.dumps(value, **options).encode()))
    assert [(name, json.loads(raw)) for name, raw in members] == list(value.items())


@given(st.lists(values), formats)
@untimed
def test_an_array_is_split_into_its_items(value: list[Any], options: dict[str, Any]) -> None:
    assert [json.loads(raw) for raw in split_items(json.dumps(value, **options).encode())] == value


def test_what_the_decoder_refuses_is_split() -> None:
    with pytest.raises(RecursionError):
        msgspec.json.decode(DEEP)
    assert list(split_members(b'{"x": %b, "y": 1}' % DEEP)) == [("x", DEEP), ("y", b"1")]
    assert list(split_items(b"[%b , %b]" % (DEEP, DEEP))) == [DEEP, DEEP]


def test_members_that_are_nested_too_deeply_are_left_out() -> None:
    data = b'{"message": "m", "details": %b, "code": 5, "other": 1}' % DEEP
    assert decode_shallow(data, ("message", "details", "code")) == {"message": "m", "code": 5}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"5",
        b"{",
        b'{"a',
        b'{"a"',
        b'{"a":',
        b'{"a":}',
        b'{"a":1',
        b'{"a":1,,}',
        b'{"a":"',
        b'{"a":[',
        b'{"a":{"b]}',
    ],
)
def test_invalid_json_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError, match="JSON is malformed"):
        list(split_members(data))
    with pytest.raises(msgspec.DecodeError, match="JSON is malformed"):
        list(split_items(data.replace(b'{"a":', b"[", 1).replace(b'{"a', b"[", 1) if data != b"{" else b"["))


@given(st.binary(max_size=20))
@untimed
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for split in (split_members, split_items):
        try:
            list(split(data))
        except DECODE_ERRORS:
            pass
