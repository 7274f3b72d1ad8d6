"""Quantities, times and bytes as pure functions."""

from __future__ import annotations

import base64
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._model.quantities import quantity_value
from trioperator.apiserver.model.scalars import canonical_bytes, canonical_micro_time, canonical_time


@pytest.mark.parametrize(
    ("text", "spelled"),
    [("2020-01-01T10:00:00Z", "2020-01-01T10:00:00Z"), ("2020-01-01T10:00:00.9+02:00", "2020-01-01T08:00:00Z")],
)
def test_times_are_in_utc_and_seconds(text: str, spelled: str) -> None:
    assert canonical_time(text) == spelled


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2020-02-30T10:00:00Z", "day out of range"),
        ("2020-01-01T25:00:00Z", "hour out of range"),
        ("2020-01-01T10:00:00Zulu", 'extra text: "ulu"'),
        ("2020-01-01T10:00:00", 'cannot parse "" as "Z07:00"'),
        ("", 'cannot parse "" as "2006"'),
    ],
)
def test_invalid_times_are_rejected(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as info:
        canonical_time(text)
    assert str(info.value).endswith(problem)


def test_times_in_microseconds_have_six_digits() -> None:
    assert canonical_micro_time("2020-01-01T10:00:00.000000Z") == "2020-01-01T10:00:00.000000Z"
    with pytest.raises(ValueError, match="cannot parse"):
        canonical_micro_time("2020-01-01T10:00:00.1Z")


@given(st.binary(max_size=8))
def test_bytes_are_kept(data: bytes) -> None:
    text = base64.b64encode(data).decode()
    assert canonical_bytes(text) == text
    assert canonical_bytes(base64.encodebytes(data).decode()) == text


def test_a_long_invalid_quantity_is_rejected_at_once() -> None:
    start = time.process_time()
    with pytest.raises(ValueError):
        quantity_value("1" * 100_000 + "!")
    assert time.process_time() - start < 1
