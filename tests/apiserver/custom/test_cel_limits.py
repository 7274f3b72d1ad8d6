"""Expressions that would be too expensive fail; all others mean what they mean without limits."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trioperator.apiserver.custom import patterns
from trioperator.apiserver.custom.cel import compile_expression
from trioperator.apiserver.custom.cel_limits import TOO_EXPENSIVE, limited_text, original_text
from trioperator.apiserver.custom.patterns import Allowance

pytest.importorskip("cel_expr_python")
LONG = "a" * 1_400_000


def evaluate(text: str, data: Any = None) -> Any:
    return compile_expression(text, ("self",)).evaluate({"self": data})


@pytest.mark.parametrize(
    "text",
    [
        "'abab'.replace('a', 'c') == 'cbcb' && 'abab'.replace('a', 'c', 1) == 'cbab'",
        "'ab'.replace('', '-') == '-a-b-' && 'ab'.replace('', '-', 0) == 'ab'",
        "['a', 'b'].join() == 'ab' && ['a', 'b'].join(',') == 'a,b' && [].join(',') == ''",
        "'ab'.matches('^a') && matches('ab', 'b$') && !'ab' . matches ('^b')",
        "\"it's.matches(\" + 'replace(\\')' == \"it's.matches(replace(')\"",
        "'''join('x')''' == \"join('x')\" && {'join': 1}.join == 1",
        "[1, 2, 3].map(x, x + 1) == [2, 3, 4] && [1, 2].filter(x, x > 1).all(x, x == 2)",
    ],
)
def test_functions_with_limits_mean_the_same(text: str) -> None:
    assert evaluate(text) is True


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("self.replace('', self).size() > 0", LONG),
        ("self.replace('a', 'bc').replace('b', self).size() > 0", "a" * 50_000),
        ("self.split('').join(self) == ''", "a" * 3_000),
        ("self.map(x, self).size() > 0", [0] * 3_000),
        ("self.split('').map(x, x).size() > 0", "a" * 3_000),
        ("self.filter(x, true).size() > 0", dict.fromkeys(map(str, range(3_000)))),
        ("self.a.all(x, !self.b.contains('b'))", {"a": [0] * 1_000, "b": LONG}),
        ("self" + " + self" * 20 + " == ''", LONG),
    ],
)
def test_what_is_too_expensive_is_an_error(text: str, data: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(TOO_EXPENSIVE)):
        evaluate(text, data)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("self.all(x, self.exists(y, x == y))", ["a"] * 90),
        ("self.items.map(x, x.name).size() == 1000", {"items": [{"name": "a"}] * 1_000, "text": "b" * 50_000}),
        ("self.contains('b') == false && (self + 'b').size() > 0", LONG),
        ("self.replace('-', '.').replace('.', '_') == self", "a" * 10_000),
    ],
)
def test_what_is_large_but_cheap_is_evaluated(text: str, data: Any) -> None:
    assert evaluate(text, data) is True


def test_matching_has_the_limit_of_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "_instructions", Allowance(0, per_second=0))
    with pytest.raises(ValueError, match="takes too long"):
        evaluate("self.matches('(x+)+$')", "x" * 1000)


def test_errors_show_the_expression_as_it_was_written() -> None:
    with pytest.raises(ValueError, match=r"self\.matches\(1\)") as caught:
        compile_expression("self.matches(1) && 'a'.matches(1)", ("self",))
    assert "MATCHES" not in str(caught.value)
    text = "self.join(',').replace('a', 'matches(')"
    assert limited_text(text) == "self.JOIN(',').REPLACE('a', 'matches(')"
    assert original_text(limited_text(text)) == text


def test_elements_that_are_no_strings_cannot_be_joined() -> None:
    with pytest.raises(ValueError, match="no such overload"):
        evaluate("[1].join(',')")
