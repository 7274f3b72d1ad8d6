"""Integers in texts."""

from __future__ import annotations

import pytest

from trioperator.apiserver.model.go_numbers import parse_int64, parse_uint64


def test_integers_of_64_bits_are_parsed() -> None:
    assert [parse_int64(text) for text in ("0", "-1", "+5", str(2**63 - 1))] == [0, -1, 5, 2**63 - 1]
    assert [parse_uint64(text) for text in ("0", "007", str(2**64 - 1))] == [0, 7, 2**64 - 1]


@pytest.mark.parametrize("text", [str(2**63), "9" * 5000, "-" + "9" * 20])
def test_others_are_out_of_range(text: str) -> None:
    with pytest.raises(ValueError, match="value out of range"):
        parse_int64(text)


@pytest.mark.parametrize("text", ["", "x", "1e400", "1_0", "\u0663", " 1", "1.0", "-1"])
def test_what_is_no_number_is_invalid(text: str) -> None:
    with pytest.raises(ValueError, match=r"strconv.ParseUint: parsing .*: invalid syntax"):
        parse_uint64(text)
