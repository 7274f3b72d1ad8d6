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
from trioperator._runtime.watching.object_selector import ObjectSelector, infer_selector, require, require_labels
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
    return str(infer_selector(require(declare(labels=each)) for each in labels))


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
    assert not infer_selector([])


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
    found = infer_selector([require(declare(name, **options), ["spec.color"])])
    assert found.labels == ()
    assert str(found) == selector


def test_fields_are_selected_that_all_require() -> None:
    red, blue = (require(declare(field="spec.color", value=value), ["spec.color"]) for value in ("red", "blue"))
    assert str(infer_selector([red, red])) == "spec.color=red"
    assert not infer_selector([red, blue])


def test_related_objects_are_selected_by_their_labels() -> None:
    assert str(infer_selector([require_labels([("a", "1")]), require(declare(labels={"a": "2"}))])) == "a in (1,2)"
    assert not infer_selector([require_labels([]), require(declare(labels={"a": "2"}))])


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
    selector = infer_selector(map(require, handlers))
    cause = Cause(labels)
    selected = parse_labels(",".join(selector.labels)).matches(cause.raw)
    assert selected or not any(matches(handler, cause) for handler in handlers)
