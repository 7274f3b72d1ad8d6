"""Tests for :mod:`trioperator._model.quantities`."""

from __future__ import annotations

import contextlib
import decimal
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._model.quantities import PATTERN, Quantity, canonical_quantity, quantity_value

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
    [
        *(("0.5", "500m"), ("1024Ki", "1Mi"), ("1000", "1k"), ("0.5Gi", "512Mi"), ("0.001Ki", "1024m"), ("1e3", "1e3")),
        *(("100000n", "100u"), ("-0", "0"), ("1.5Ei", "1536Pi"), ("1E", "1E"), ("1E3", "1e3"), ("+2", "2")),
    ],
)
def test_quantities_have_one_form(text: str, spelled: str) -> None:
    assert canonical_quantity(text) == spelled


@given(quantities)
def test_the_pattern_accepts_quantities_and_the_value_is_exact(text: str) -> None:
    assert re.fullmatch(PATTERN, text)
    assert quantity_value(text) == value(text)


@given(quantities, quantities)
def test_quantities_are_compared_by_their_numbers(one: str, two: str) -> None:
    first, second = Quantity(one), Quantity(two)
    assert (first == second, first < second, first >= second) == (
        value(one) == value(two),
        value(one) < value(two),
        value(one) >= value(two),
    )
    assert first.value == value(one)
    assert first != second or hash(first) == hash(second)


@given(quantities)
def test_a_quantity_is_written_in_canonical_form_and_read_again(text: str) -> None:
    quantity = Quantity(text)
    assert str(quantity) == canonical_quantity(text)
    assert Quantity(str(quantity)) == quantity


@given(quantities, quantities, st.integers(-100, 100))
def test_sums_differences_and_multiples_are_exact(one: str, two: str, factor: int) -> None:
    first, second = Quantity(one), Quantity(two)
    assert (first + second).value == value(one) + value(two)
    assert (first - second).value == value(one) - value(two)
    assert (first * factor).value == (factor * first).value == value(one) * factor


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Quantity("1Gi") + Quantity("1Gi"), "2Gi"),
        (Quantity("1Gi") - Quantity("1Gi") + Quantity("1k"), "1k"),
        (Quantity("500m") * 3, "1500m"),
        (Quantity("1k") + Quantity("1Ki"), "2024"),
        (Quantity("1Ki") + Quantity("1m"), "1024001m"),
        (Quantity(2048), "2048"),
        (Quantity(decimal.Decimal("0.5")), "500m"),
        (Quantity(decimal.Decimal("1E+3")), "1k"),
    ],
)
def test_results_are_written_as_the_first_operand(result: Quantity, text: str) -> None:
    assert str(result) == text


@pytest.mark.parametrize("amount", ["", "x", "1 Gi", "1GB", "1e", "--1", "1.2.3"])
def test_what_is_no_quantity_is_an_error(amount: str) -> None:
    with pytest.raises(ValueError, match="is no quantity, such as '500m'"):
        Quantity(amount)


@pytest.mark.parametrize("amount", [0.5, True, None, b"1"])
def test_quantities_are_not_made_of_other_types(amount: object) -> None:
    with pytest.raises(TypeError, match="A quantity is a string"):
        Quantity(amount)  # type: ignore[arg-type]


def test_quantities_are_compared_with_quantities_only() -> None:
    assert Quantity("1") != "1"
    assert bool(Quantity("1m")) > bool(Quantity("0"))
    with pytest.raises(TypeError):
        _ = Quantity("1") < "2"  # type: ignore[operator]
    with pytest.raises(TypeError):
        _ = Quantity("1") + 1  # type: ignore[operator]
