"""The parser of regular expressions is bounded, and folds case as RE2 does."""

from __future__ import annotations

import pytest

from trioperator.apiserver.custom.pattern_search import Automaton
from trioperator.apiserver.custom.pattern_syntax import Chars, UnsupportedPatternError, parse


@pytest.mark.parametrize(
    "pattern", ["a" * 10_001, "(" * 51 + ")" * 51, r"\p{Greek}", "(((((a+)+)+)+){9}){100}" * 10, "(){1000}" * 100]
)
def test_what_is_too_large_or_unknown_is_not_supported(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        Automaton(pattern)


def test_the_flag_i_folds_case_in_classes() -> None:
    for pattern in ("(?i)a", "(?i)[a-z]", r"(?i)\p{Ll}"):
        node = parse(pattern)
        assert isinstance(node, Chars)
        assert node.fits("A"), pattern
        assert not node.fits("1"), pattern
