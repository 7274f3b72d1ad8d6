"""Parsing and matching of selectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apiserver.conftest import Target
from trioperator.apiserver.model.selectors import parse_fields, parse_labels
from trioperator.errors import ApiError

keys = st.sampled_from(["a", "b", "app.kubernetes.io/name", "x-y_z.1"])
values = st.sampled_from(["", "1", "2", "red", "a.b"])
labels = st.dictionaries(keys, values)
spaces = st.sampled_from(["", " ", "  "])


def obj(labels: dict[str, str]) -> dict[str, object]:
    return {"metadata": {"labels": labels}}


@given(labels, keys, values, spaces)
def test_equality_requirements_compare_values(labels: dict[str, str], key: str, value: str, space: str) -> None:
    for sign in ("=", "=="):
        text = f"{space}{key}{space}{sign}{space}{value}"
        assert parse_labels(text).matches(obj(labels)) is (labels.get(key) == value)
    assert parse_labels(f"{key}!={value}").matches(obj(labels)) is (labels.get(key) != value)


@given(labels, keys, st.lists(values.filter(bool), min_size=1), spaces)
def test_set_requirements_compare_with_any_value(
    labels: dict[str, str], key: str, chosen: list[str], space: str
) -> None:
    listed = f"({space}{f'{space},{space}'.join(chosen)}{space})"
    assert parse_labels(f"{key} in {listed}").matches(obj(labels)) is (labels.get(key) in chosen)
    assert parse_labels(f"{key} notin {listed}").matches(obj(labels)) is (labels.get(key) not in chosen)


@given(labels, keys)
def test_existence_requirements_look_for_the_key(labels: dict[str, str], key: str) -> None:
    assert parse_labels(key).matches(obj(labels)) is (key in labels)
    assert parse_labels(f"!{key}").matches(obj(labels)) is (key not in labels)


@given(labels, st.lists(st.tuples(keys, values.filter(bool)), min_size=1))
def test_all_requirements_must_match(labels: dict[str, str], terms: list[tuple[str, str]]) -> None:
    text = ",".join(f"{key}={value}" for key, value in terms)
    assert parse_labels(text).matches(obj(labels)) is all(labels.get(key) == value for key, value in terms)


@given(st.integers(-5, 5), st.integers(-5, 5))
def test_numeric_requirements_compare_numbers(value: int, limit: int) -> None:
    assert parse_labels(f"n>{limit}").matches(obj({"n": str(value)})) is (value > limit)
    assert parse_labels(f"n<{limit}").matches(obj({"n": str(value)})) is (value < limit)
    assert not parse_labels(f"n<{limit}").matches(obj({"n": "red"}))


@given(st.text(max_size=12))
def test_any_string_is_parsed_or_rejected(text: str) -> None:
    for parse in (parse_labels, lambda text: parse_fields(text, {"metadata.name"})):
        status = 400
        try:
            parse(text)
        except ApiError as error:
            status = error.status
        assert status == 400


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_selector_matches_everything(text: str) -> None:
    assert not parse_labels(text)
    assert parse_labels(text).matches(obj({}))


def test_a_set_may_contain_an_empty_value() -> None:
    assert parse_labels("a in (,x)").matches(obj({"a": ""}))
    assert parse_labels("a in (x,)").matches(obj({"a": ""}))


def test_fields_are_compared_as_strings() -> None:
    selector = parse_fields("spec.unschedulable=true,spec.x!=1", {"spec.unschedulable", "spec.x"})
    assert selector.matches({"spec": {"unschedulable": True}})
    assert not selector.matches({"spec": {"unschedulable": True, "x": 1}})
    assert selector.exact(("spec", "unschedulable")) == "true"
    assert selector.exact(("spec", "x")) is None


BAD = "name part must consist of alphanumeric characters"
TOO_LONG = "must be no more than 63 bytes"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("a=-x", ['values[0][a]: Invalid value: "-x": a valid label must be an empty string or consist of']),
        (f"a notin (ok,{'x' * 64})", [f'values[1][a]: Invalid value: "{"x" * 64}": {TOO_LONG}']),
        ("a in (-x,%)", ['[values[0][a]: Invalid value: "%": ', 'values[1][a]: Invalid value: "-x": ']),
        ("-a=b", [f'<nil>: Invalid value: "-a": {BAD}']),
        (f"{'a' * 64}", [f'<nil>: Invalid value: "{"a" * 64}": name part {TOO_LONG}']),
        ("A/x", ['<nil>: Invalid value: "A/x": prefix part a lowercase RFC 1123 subdomain must consist of']),
    ],
)
async def test_what_no_label_can_be_is_named(target: Target, text: str, problems: list[str]) -> None:
    answer = await target.get(target.path("configmaps"), labelSelector=text)
    assert (answer.code, answer.message[:30]) == (400, "unable to parse requirement: " + problems[0][0])
    assert [problem for problem in problems if problem not in answer.message] == []
