"""Tests for :mod:`trioperator.apiserver.model.status_causes`: validation errors have the API server's messages."""

from __future__ import annotations

import itertools

import pytest

from trioperator.apiserver.model.status_causes import StatusCause, first_causes, invalid_value, required, unsupported


@pytest.mark.parametrize(
    ("value", "shown"), [("a", '"a"'), (3, "3"), (None, "null"), (["a", 1], '["a",1]'), ({"a": True}, '{"a":true}')]
)
def test_an_invalid_value_is_shown_as_json(value: object, shown: str) -> None:
    cause = invalid_value("spec.x", value, "must not be so")
    assert cause == StatusCause("spec.x", f"Invalid value: {shown}: must not be so", "FieldValueInvalid")


@pytest.mark.parametrize(("text", "message"), [("", "Required value"), ("say why", "Required value: say why")])
def test_a_missing_field_may_have_an_explanation(text: str, message: str) -> None:
    assert required("spec.x", text) == StatusCause("spec.x", message, "FieldValueRequired")


def test_an_unsupported_value_names_the_choices_in_order() -> None:
    assert unsupported("spec.x", "c", ("b", "a")) == StatusCause(
        "spec.x", 'Unsupported value: "c": supported values: "b", "a"', "FieldValueNotSupported"
    )


def test_equal_errors_are_one() -> None:
    assert len({required("a"), required("a"), required("b"), required("a", "x")}) == 3


def test_only_so_many_errors_are_looked_for() -> None:
    count = itertools.count()
    short = (StatusCause(f"f{next(count)}", "m") for _ in range(100_000))
    assert [cause.field for cause in first_causes(short)] == [f"f{at}" for at in range(1000)]
    assert next(count) == 1000
    assert len(first_causes(StatusCause("f", "m" * 100_000) for _ in range(10))) == 3
    assert first_causes(()) == []
