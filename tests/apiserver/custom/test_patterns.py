"""Regular expressions mean what they mean on the real server, and never block the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apiserver.conftest import Target, definition
from trioperator.apiserver import Cluster
from trioperator.apiserver.custom import patterns
from trioperator.apiserver.custom.patterns import (
    PatternError,
    UnsupportedPatternError,
    check_pattern,
    compile_pattern,
    find_all,
    unchecked_patterns,
)

INVALID = [
    ("a(b", "missing closing ): `a(b`"),
    ("a)", "unexpected ): `a)`"),
    ("[a", "missing closing ]: `[a`"),
    ("[b-a]", "invalid character class range: `b-a`"),
    ("a\\", "trailing backslash at end of expression: ``"),
    ("a++", "invalid nested repetition operator: `++`"),
    ("a{2,1}", "invalid repeat count: `{2,1}`"),
    ("(a{100}){100}", "invalid repeat count: `{100}`"),
    ("*a", "missing argument to repetition operator: `*`"),
    ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
    ("(?P<>a)", "invalid named capture: `(?P<>`"),
    (r"(a)\1", r"invalid escape sequence: `\1`"),
    (r"a\Z", r"invalid escape sequence: `\Z`"),
    (r"\C", r"invalid escape sequence: `\C`"),
]
MATCHES = [
    ("^[a-z]+$", "ab", True),
    ("^[a-z]+$", "ab\n", False),
    ("(?m)^[a-z]+$", "1\nab\n", True),
    (r"^\d+$", "12", True),
    (r"^\d+$", "١٢", False),
    (r"^\w$", "é", False),
    (r"^\pL+\z", "aé", True),
    (r"^[[:alpha:]]+$", "aé", False),
    (r"^\x{e9}\Q.*\E$", "é.*", True),
    ("^(?i:ab)c$", "ABc", True),
    ("^.$", "\n", False),
    ("(?s)^.$", "\n", True),
]


@pytest.fixture
def without_re2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do as if RE2 were not installed."""
    monkeypatch.setattr(patterns, "is_installed", lambda: False)
    compile_pattern.cache_clear()
    yield
    compile_pattern.cache_clear()


class TestPattern:
    @pytest.mark.parametrize(("pattern", "text", "is_match"), MATCHES)
    def test_it_means_what_it_means_in_go(self, pattern: str, text: str, is_match: bool) -> None:
        assert bool(compile_pattern(pattern).search(text)) is is_match

    @pytest.mark.parametrize(("pattern", "problem"), INVALID)
    def test_invalid_ones_are_rejected_with_the_message_of_go(self, pattern: str, problem: str) -> None:
        with pytest.raises(PatternError) as caught:
            compile_pattern(pattern)
        assert str(caught.value) == f"error parsing regexp: {problem}"


def test_the_warning_about_missing_re2_names_patterns(without_re2: None) -> None:
    schema = {"properties": {"a": {"items": {"anyOf": [{"pattern": r"\p{Greek}"}]}}, "b": {"pattern": "a"}}}
    obj = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}
    install = "regular expressions need RE2: pip install 'trioperator[re2]'"
    assert list(unchecked_patterns(obj)) == [
        rf"version v1: the pattern '\\p{{Greek}}' is not checked: {install}",
        f"version v1: the pattern 'a' is not checked: {install}",
    ]
    with pytest.raises(UnsupportedPatternError, match="need RE2"):
        find_all("a", "a")


async def test_without_re2_a_value_is_stored_unchecked(cluster: Cluster, without_re2: None) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "string", "pattern": "^a$"}}}
    await cluster.apply(definition("patterns", "Pattern", schema={"openAPIV3Schema": schema}))
    await cluster.create(
        {"apiVersion": "conformance.dev/v1", "kind": "Pattern", "metadata": {"name": "a"}, "spec": "b"}
    )


def test_only_invalid_patterns_are_errors() -> None:
    [cause] = check_pattern({"pattern": "("}, "s")
    assert (cause.field, cause.reason) == ("s.pattern", "FieldValueInvalid")
    for pattern in (r"\p{Greek}", "a", ""):
        assert not [*check_pattern({"pattern": pattern}, "s")]


def test_find_returns_the_leftmost_matches_up_to_the_limit() -> None:
    assert find_all("ab1 cd2", "[a-z]+([0-9])") == ["ab1", "cd2"]
    assert find_all("ab1 cd2", "[a-z]", 2) == ["a", "b"]
    assert find_all("ab", "a", 0) == []


@pytest.mark.parametrize(("pattern", "problem"), INVALID)
async def test_definitions_with_invalid_patterns_are_rejected(target: Target, pattern: str, problem: str) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "string", "pattern": pattern}}}
    answer = await target.request(
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition("patterns", "Pattern", schema={"openAPIV3Schema": schema}),
        dryRun="All",
    )
    assert answer.code == 422
    [cause] = answer.content["details"]["causes"]
    assert cause["field"] == "spec.validation.openAPIV3Schema.properties[spec].pattern"
    assert cause["message"].endswith(f"must be a valid regular expression, but isn't: error parsing regexp: {problem}")
