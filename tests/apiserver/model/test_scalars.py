"""Quantities, times and bytes as pure functions."""

from __future__ import annotations

import base64
import contextlib
import decimal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.model.scalars import (
    canonical_bytes,
    canonical_micro_time,
    canonical_quantity,
    canonical_time,
    quantity_value,
)

SUFFIXES = {"m": "1e-3", "": "1", "k": "1e3", "M": "1e6", "G": "1e9", "Ki": "1024", "Mi": "1048576", "e3": "1e3"}


def value(quantity: str) -> decimal.Decimal:
    """Return the value of a quantity, computed in another way."""
    sizes = {**SUFFIXES, "Gi": str(2**30), "Ti": str(2**40), "Pi": str(2**50)}
    sizes |= {"T": "1e12", "P": "1e15", "e6": "1e6", "e9": "1e9", "e12": "1e12"}
    suffix = next(suffix for suffix in sorted(sizes, key=len, reverse=True) if quantity.endswith(suffix))
    return decimal.Decimal(quantity.removesuffix(suffix)) * decimal.Decimal(sizes[suffix])


quantities = st.builds(
    lambda number, suffix: f"{number}{suffix}", st.integers(-(10**6), 10**6), st.sampled_from(sorted(SUFFIXES))
)


@given(quantities)
def test_a_quantity_keeps_its_value(text: str) -> None:
    assert value(canonical_quantity(text)) == value(text)


@given(quantities)
def test_normalizing_a_quantity_is_idempotent(text: str) -> None:
    spelled = canonical_quantity(text)
    assert canonical_quantity(spelled) == spelled


@given(st.text("0123456789.-+eEinumkKMGTP x", max_size=8))
def test_only_invalid_quantities_are_rejected(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert canonical_quantity(canonical_quantity(text))


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
