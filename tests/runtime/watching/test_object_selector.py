"""Tests for :mod:`trioperator._runtime.watching.object_selector`: what the API server is asked to select."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trioperator
from trioperator import ABSENT, PRESENT
from trioperator._handling.handlers.filters import matches
from trioperator._handling.handlers.handler import ResourceHandler
from trioperator._runtime.watching.object_selector import ObjectSelector, divide, require, require_labels, unite
from trioperator.apiserver.model.selectors import parse_labels

on = trioperator.on


def fn(**_: Any) -> None: ...


def declare(name: str = "event", **options: Any) -> ResourceHandler:
    registry = trioperator.OperatorRegistry()
    getattr(on, name)("widgets", registry=registry, **options)(fn)
    (handler,) = registry
    assert isinstance(handler, ResourceHandler)
    return handler


def infer(*labels: dict[str, Any]) -> str:
    return str(unite(require(declare(labels=each)) for each in labels).selector)


@pytest.mark.parametrize(
    ("labels", "selector"),
    [
        ([{"a": "1"}], "a=1"),
        ([{"a": ""}], "a="),
        ([{"a": PRESENT}], "a"),
        ([{"a": ABSENT}], "!a"),
        ([{"x.io/b": "1", "a": PRESENT}], "a,x.io/b=1"),
        ([{"a": "1"}, {"a": "2"}], "a in (1,2)"),
        ([{"a": "1"}, {"a": "1"}], "a=1"),
        ([{"a": "1"}, {"a": PRESENT}], "a"),
        ([{"a": ABSENT}, {"a": ABSENT}], "!a"),
        ([{"a": ABSENT}, {"a": PRESENT}], ""),
        ([{"a": "1"}, {"a": ABSENT}], ""),
        ([{"a": "1", "b": "2"}, {"a": "3", "c": "4"}], "a in (1,3)"),
        ([{"a": "1"}, {"b": "1"}], ""),
        ([{"a": "1"}, {}], ""),
        ([{"a": lambda value, **_: True}], ""),
        ([{"a": "1", "b": lambda value, **_: True}], "a=1"),
        ([{"a": str(number)} for number in range(60)], "a"),
        ([{"a": "no value of a label!"}], ""),
        ([{"no label": "1"}], ""),
        ([{"a": "x" * 64}], ""),
    ],
)
def test_labels_that_all_require_are_selected(labels: list[dict[str, Any]], selector: str) -> None:
    assert infer(*labels) == selector


def test_without_readers_everything_is_selected() -> None:
    assert not unite([]).selector


@pytest.mark.parametrize(
    ("name", "options", "selector"),
    [
        ("event", {"field": "metadata.name", "value": "one"}, "metadata.name=one"),
        ("index", {"field": "metadata.namespace", "value": "one"}, "metadata.namespace=one"),
        ("daemon", {"field": "spec.color", "value": "red"}, "spec.color=red"),
        ("event", {"field": "spec.color"}, ""),
        ("event", {"field": "spec.color", "value": 5}, ""),
        ("event", {"field": "spec.color", "value": "a,b"}, ""),
        ("event", {"field": "spec.size", "value": "5"}, ""),
        ("create", {"field": "spec.color", "value": "red"}, "spec.color=red"),
        ("create", {"field": "metadata.name", "value": "one"}, ""),
        ("update", {"field": "spec.color", "value": "red"}, ""),
        ("field", {"field": "spec.color", "new": "red"}, ""),
        ("event", {"annotations": {"a": "1"}}, ""),
        ("event", {"when": lambda **_: True}, ""),
    ],
)
def test_fields_are_selected_that_the_server_can_select(name: str, options: dict[str, Any], selector: str) -> None:
    found = unite([require(declare(name, **options), ["spec.color"])]).selector
    assert found.labels == ()
    assert str(found) == selector


def test_fields_are_selected_that_all_require() -> None:
    red, blue = (require(declare(field="spec.color", value=value), ["spec.color"]) for value in ("red", "blue"))
    assert str(unite([red, red]).selector) == "spec.color=red"
    assert not unite([red, blue]).selector


def test_related_objects_are_selected_by_their_labels() -> None:
    assert str(unite([require_labels([("a", "1")]), require(declare(labels={"a": "2"}))]).selector) == "a in (1,2)"
    assert not unite([require_labels([]), require(declare(labels={"a": "2"}))]).selector


def test_selectors_are_joined_as_parameters_of_requests() -> None:
    joined = ObjectSelector(("a=1",)).join(ObjectSelector(("b",), ("metadata.name=x",)))
    assert joined.parameters == {"labelSelector": "a=1,b", "fieldSelector": "metadata.name=x"}
    assert ObjectSelector().parameters == {}


_LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "2", ""]))
_FILTERS = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "2", "", PRESENT, ABSENT]))


class Cause:
    """A cause of an object with labels."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.kwargs: dict[str, Any] = {}
        self.raw = {"metadata": {"labels": labels}}


@given(filters=st.lists(_FILTERS, min_size=1, max_size=4), labels=_LABELS)
def test_whatever_any_handler_matches_is_selected(filters: list[dict[str, Any]], labels: dict[str, str]) -> None:
    handlers = [declare(labels=each) for each in filters]
    selector = unite(map(require, handlers)).selector
    cause = Cause(labels)
    selected = parse_labels(",".join(selector.labels)).matches(cause.raw)
    assert selected or not any(matches(handler, cause) for handler in handlers)


@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        ([{"a": "1"}, {"b": "1"}], {"a=1", "b=1"}),
        ([{"a": "1", "b": "1"}, {"a": "1", "c": "1"}], {"a=1,b=1", "a=1,c=1"}),
        ([{"a": "1"}, {"b": "1"}, {"a": "2"}], {"a in (1,2)", "b=1"}),
        ([{"a": "1"}, {"a": ABSENT}], {"a=1", "!a"}),
        ([{"a": "1", "x": "1"}, {"a": "2", "y": "1"}, {"b": "1"}], {"a in (1,2)", "b=1"}),
        ([{"a": "1"}, {"a": "2"}], set()),  # these combine
        ([{"a": "1"}, {"a": "1", "b": "1"}], set()),  # the first one is both
        ([{"a": "1"}, {"b": "1"}, {"c": "1"}], set()),  # two of them would be everything
        ([{"a": "1"}, {}], set()),
        ([{}], set()),
        ([], set()),
        ([{f"a{number}": "1"} for number in range(9)], set()),
    ],
)
def test_labels_that_do_not_combine_are_divided_into_two(labels: list[dict[str, Any]], parts: set[str]) -> None:
    found = divide(require(declare(labels=each)) for each in labels)
    assert {str(each.selector) for each in found} == parts


def test_different_values_of_a_field_are_divided_into_two() -> None:
    found = divide(require(declare(field="metadata.name", value=name)) for name in ("x", "y", "x"))
    assert {str(each.selector) for each in found} == {"metadata.name=x", "metadata.name=y"}


@given(filters=st.lists(_FILTERS, min_size=1, max_size=4), labels=_LABELS)
def test_what_any_handler_matches_is_in_one_of_two_selections_and_meets_what_is_required(
    filters: list[dict[str, Any]], labels: dict[str, str]
) -> None:
    handlers = [declare(labels=each) for each in filters]
    cause = Cause(labels)
    parts = divide(map(require, handlers)) or (unite(map(require, handlers)),)
    are_met = [part.is_met(cause.raw) for part in parts]
    assert are_met == [parse_labels(str(part.selector)).matches(cause.raw) for part in parts]
    assert any(are_met) or not any(matches(handler, cause) for handler in handlers)
