"""Tests for :mod:`trioperator.apiserver.model.structure`: rules know whether and where they use the old value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.model.structure import Structure, ValidationRule


@pytest.mark.parametrize("text", ["self == oldSelf", "oldSelf.x > 1", "(oldSelf)", "'oldSelf' == oldSelf", "!oldSelf"])
def test_a_rule_may_use_the_old_value(text: str) -> None:
    assert ValidationRule(text=text).uses_old


@pytest.mark.parametrize(
    "text",
    [
        "self > 1",
        "self.oldSelf == 1",
        "myoldSelf == 1",
        "oldSelfish == 1",
        "self == 'oldSelf'",
        'self == "oldSelf"',
        r"self == 'it\'s oldSelf'",
        "self == '''it's oldSelf'''",
        'self == """the "oldSelf" """',
    ],
)
def test_other_names_and_string_literals_are_not_the_old_value(text: str) -> None:
    assert not ValidationRule(text=text).uses_old


@given(st.text())
def test_a_rule_without_an_optional_old_value_is_compiled_as_it_is(text: str) -> None:
    assert ValidationRule(text=text).expression == text


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("oldSelf.hasValue()", "oldSelf[?0].hasValue()"),
        ("self == 'oldSelf' || oldSelf == oldSelf", "self == 'oldSelf' || oldSelf[?0] == oldSelf[?0]"),
        ("self.oldSelf > 1", "self.oldSelf > 1"),
        ("self > 1", "self > 1"),
    ],
)
def test_an_optional_old_value_is_passed_in_a_list(text: str, expression: str) -> None:
    assert ValidationRule(text=text, has_optional_old=True).expression == expression


def test_nodes_share_no_properties() -> None:
    one, other = Structure(), Structure()
    one.properties["a"] = other
    one.junctions["allOf"] = [other]
    assert (other.properties, other.junctions) == ({}, {})
