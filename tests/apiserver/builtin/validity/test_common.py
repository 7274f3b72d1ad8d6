"""Tests for :mod:`trioperator.apiserver.builtin.validity.common`: rules that many fields share."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioperator.apiserver.builtin.validity.common import (
    check_choice,
    check_label_selector,
    check_not_negative,
    check_port_name,
    check_port_number,
    items,
    named,
)


@pytest.mark.parametrize(
    ("path", "paths"), [("spec", ["spec.ports[0]", "spec.ports[1]"]), ("", ["ports[0]", "ports[1]"])]
)
def test_items_have_their_paths(path: str, paths: list[str]) -> None:
    assert list(items({"ports": ["a", "b"]}, "ports", path)) == list(zip(paths, ["a", "b"], strict=True))
    assert list(items({"ports": None}, "ports", path)) == []


def test_names_of_items_are_unique_labels() -> None:
    seen = set[str]()
    causes = [cause for name in ("a", "", "A", "a") for cause in named("spec", name, seen)]
    assert [(cause.field, cause.reason) for cause in causes] == [
        ("spec.name", "FieldValueRequired"),
        ("spec.name", "FieldValueInvalid"),
        ("spec.name", "FieldValueDuplicate"),
    ]


@pytest.mark.parametrize(("value", "is_valid"), [(0, True), (1, True), (None, True), (-1, False)])
def test_counts_are_not_negative(value: int | None, is_valid: bool) -> None:
    causes = list(check_not_negative({"replicas": value}, "spec", "replicas", "other"))
    assert [cause.field for cause in causes] == ([] if is_valid else ["spec.replicas"])


def test_a_value_is_one_of_the_choices() -> None:
    assert list(check_choice({}, "spec", "type", ("A", "B"))) == []
    assert list(check_choice({"type": "A"}, "spec", "type", ("A", "B"))) == []
    (cause,) = check_choice({"type": "C"}, "", "type", ("A", "B"))
    assert (cause.field, cause.message) == ("type", 'Unsupported value: "C": supported values: "A", "B"')


@given(st.integers(-(2**40), 2**40))
@example(0)
@example(1)
@example(65535)
@example(65536)
def test_ports_are_between_1_and_65535(number: int) -> None:
    assert (not list(check_port_number("port", number))) is (1 <= number <= 65535)


@pytest.mark.parametrize(
    ("name", "problems"),
    [
        ("http", []),
        ("h2-c", []),
        ("1", ["must contain at least one letter (a-z)"]),
        ("a--b", ["must not contain consecutive hyphens"]),
        ("a-", ["must not begin or end with a hyphen"]),
        ("Http", ["must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"]),
        ("abcdefghijklmnop", ["must be no more than 15 bytes"]),
    ],
)
def test_port_names_are_those_of_services(name: str, problems: list[str]) -> None:
    assert [cause.message.partition(": ")[2].partition(": ")[2] for cause in check_port_name("port", name)] == problems


@pytest.mark.parametrize(
    ("term", "field"),
    [
        ({"key": "a", "operator": "In", "values": ["b"]}, None),
        ({"key": "a", "operator": "Exists"}, None),
        ({"key": "a", "operator": "Exists", "values": ["b"]}, "values"),
        ({"key": "a", "operator": "NotIn", "values": []}, "values"),
        ({"key": "a", "operator": "Gt", "values": ["1"]}, "operator"),
        ({"key": "a b", "operator": "Exists"}, "key"),
    ],
)
def test_terms_of_label_selectors_are_valid(term: Any, field: str | None) -> None:
    causes = list(check_label_selector({"matchExpressions": [term]}, "selector"))
    assert [cause.field for cause in causes] == ([f"selector.matchExpressions[0].{field}"] if field else [])
