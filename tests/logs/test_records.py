"""Tests for :mod:`trioperator._logs.records`."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from trioperator._logs.records import RECORD_KEYS, interpolate, represent


class Silent:
    """An object without a text."""

    def __str__(self) -> str:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("message", "args", "expected"),
    [
        ("plain", (), "plain"),
        ("100%", (), "100%"),
        ("%s is %d", ("one", 1), "one is 1"),
        ("%(a)s", ({"a": 5},), "5"),
        ("%s", ({},), "{}"),  # as in the standard library: only a mapping with keys is one for names
        ("%s", ({"a": 5},), "{'a': 5}"),
        (5, (), "5"),
        ("%d", ("text",), "%d (arguments that do not match: 'text')"),
        ("no place", (1, 2), "no place (arguments that do not match: 1, 2)"),
        ("%s", (Silent(),), "%s (arguments that do not match: <Silent>)"),
        (Silent(), (), "<Silent>"),
    ],
)
def test_messages_are_interpolated_whatever_they_are(message: object, args: tuple[Any, ...], expected: str) -> None:
    assert interpolate(message, args) == expected


def test_a_value_is_represented_even_if_it_raises() -> None:
    assert represent("x") == "'x'"
    assert represent(Silent()) == "<Silent>"


def test_all_attributes_of_records_are_reserved() -> None:
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "%s", ("x",), None)
    record.getMessage()
    logging.Formatter("%(asctime)s %(message)s").format(record)
    assert vars(record).keys() <= RECORD_KEYS
    assert {"k8s_ref", "event_message", "event_fields"} <= RECORD_KEYS
    assert "extra" not in RECORD_KEYS
