"""The search without RE2 finds what RE2 finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioperator.apiserver.custom import pattern_search
from trioperator.apiserver.custom.pattern_search import Allowance, Automaton
from trioperator.apiserver.custom.patterns import Pattern, PatternError

ATOMS = ["a", "b", "1", "_", "é", ".", "a-c", ",", "-", "]", "}", r"\n", r"\x41", r"\x{e9}", r"\141", r"\.", r"\Qa*\E"]
SETS = ["[", "[^", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\pL", r"\PL", r"\p{Lu}", "[[:digit:]]", r"[^\W\d]"]
GROUPS = ["(", "(?:", "(?i)", "(?i:", "(?m)", "(?s)", "(?-i:", "(?P<n>", ")", ")", ")", "|", "|"]
OPERATORS = ["*", "+", "?", "*?", "{2}", "{0,2}", "{1,}", "{", "^", "$", r"\b", r"\A", r"\z", r"\Z"]
PARTS = [*ATOMS, *SETS, *GROUPS, *OPERATORS]
texts = st.text("ab1_ \n\té٣cAB*.", max_size=6)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=8).map("".join), st.lists(texts, min_size=1, max_size=5))
def test_it_agrees_with_re2(pattern: str, texts: list[str]) -> None:
    try:
        expected = Pattern(pattern)
    except PatternError:
        with pytest.raises(PatternError):
            Automaton(pattern)
        return
    automaton = Automaton(pattern)
    for text in texts:
        assert automaton.search(text) is expected.search(text), text


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_search, "_steps", Allowance(1e9, per_second=0))
    monkeypatch.setattr(pattern_search, "_MAX_MEMORY", 200)
    automaton = Automaton("a(b|c.{20})d")
    for text in ("acbabcbacabcbcabacbcacb" * 20, "ab" * 100):
        assert not automaton.search(text)
        assert len(automaton._states) <= 200
    assert automaton.search("ac" * 40 + "d")
