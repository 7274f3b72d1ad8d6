"""Decoding of JSON within the limits."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.model.json_text import decode_json, parse_integer


@pytest.mark.parametrize("text", [b"1e400", b"-1e400", b'{"a":[1e400]}', b"9" * 400, b"9" * 5000])
def test_numbers_that_no_float_can_represent_are_errors(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"cannot unmarshal number .* of type float64$|out of range"):
        decode_json(text)


@pytest.mark.parametrize(
    ("text", "value"), [(b"9223372036854775807", 2**63 - 1), (b"[9223372036854775808]", [2.0**63]), (b"1e300", 1e300)]
)
def test_integers_beyond_64_bits_are_floats(text: bytes, value: Any) -> None:
    assert repr(decode_json(text)) == repr(value)
    assert parse_integer(str(2**70)) == 2.0**70


@pytest.mark.parametrize("count", [211, 1000, 50_000])
@pytest.mark.parametrize(("start", "end"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_deep_nesting_is_an_error(start: bytes, end: bytes, count: int) -> None:
    with pytest.raises(ValueError, match="exceeded max depth"):
        decode_json(start * count + b"1" + end * count)


def test_brackets_in_strings_are_not_nested() -> None:
    assert decode_json(b'"' + b"[" * 300 + b'"') == "[" * 300
    assert decode_json(b"[" + b"{}," * 300 + b"{}]") == [{}] * 301
