"""Tests for :mod:`trioperator._tooling.checking.kinds`: kinds that nothing defines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trioperator import EVERYTHING, OperatorRegistry, on
from trioperator._model.resource import Resource
from trioperator._tooling.checking import Problem, find_kind_problems, find_misspelled_kinds

VERBS = frozenset({"list", "watch"})
RESOURCES = [
    Resource("", "v1", "pods", "Pod", "pod", shortcuts=frozenset({"po"}), verbs=VERBS),
    Resource("metrics.k8s.io", "v1", "pods", "PodMetrics", verbs=VERBS),
    Resource("example.com", "v1", "widgets", "Widget", "widget", categories=frozenset({"all"}), verbs=VERBS),
    Resource("a.com", "v1", "things", "Thing", verbs=VERBS),
    Resource("b.com", "v1", "things", "Thing", verbs=VERBS),
    Resource("", "v1", "bindings", "Binding", verbs=frozenset({"create"})),
]


def find(declare: Callable[[OperatorRegistry], object]) -> list[Problem]:
    registry = OperatorRegistry()
    declare(registry)
    return list(find_kind_problems(registry, RESOURCES))


def fn(**_: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (("widgts",), "Nothing defines the kind widgts (did you mean widgets?)."),
        (
            ("example.org", "v1", "widgets"),
            "Nothing defines the kind example.org/v1/widgets (there is widgets.v1.example.com).",
        ),
        (("xxxxxxxxx",), "Nothing defines the kind xxxxxxxxx."),
        (
            ("things",),
            "The resource things is ambiguous, and is not served. It matches: things.v1.a.com, things.v1.b.com.",
        ),
        (("bindings",), "These resources cannot be listed or watched, and are not served: bindings.v1."),
    ],
)
def test_kinds_that_are_not_handled_are_reported(selector: tuple[str, ...], message: str) -> None:
    [problem] = find(lambda r: on.create(*selector, registry=r)(fn))
    assert (problem.check, problem.line, problem.message) == ("kinds", fn.__code__.co_firstlineno, message)


def test_kinds_that_exist_are_left_alone() -> None:
    def declare(registry: OperatorRegistry) -> None:
        for selector in ("pods", "po", "widgets.v1.example.com", EVERYTHING):
            on.event(selector, registry=registry)(fn)
        on.event(category="all", registry=registry)(fn)
        on.event(lambda resource: False, registry=registry)(fn)
        on.validate("bindings", registry=registry)(fn)

    assert find(declare) == []


def test_each_selector_is_reported_once_children_and_watched_kinds_included() -> None:
    def declare(registry: OperatorRegistry) -> None:
        on.create("wrong", registry=registry)(fn)
        on.update("wrong", registry=registry)(fn)
        on.reconcile("widgets", owns=["children"], watches={"others": lambda **_: []}, registry=registry)(fn)
        on.validate("reviewed", registry=registry)(fn)

    names = [problem.message.split()[4].rstrip(".") for problem in find(declare)]
    assert names == ["wrong", "children", "others", "reviewed"]


def test_a_name_that_is_nearly_that_of_a_built_in_kind_is_reported_once() -> None:
    registry = OperatorRegistry()
    on.create("widgetss", registry=registry)(fn)
    on.update("widgetss", registry=registry)(fn)
    on.reconcile("widgets", owns=["things", "bindngs"], registry=registry)(fn)
    texts = [problem.message for problem in find_misspelled_kinds(registry, RESOURCES)]
    assert [text.partition(" If ")[0] for text in texts] == [
        "widgetss is no built-in kind: did you mean widgets?",
        "bindngs is no built-in kind: did you mean bindings?",
    ]


def test_kinds_of_other_names_or_groups_may_be_defined_elsewhere() -> None:
    registry = OperatorRegistry()
    for selector in (("gadgets",), ("podsets",), ("example.com", "v1", "widgetss"), (EVERYTHING,), ("a.com", "things")):
        on.event(*selector, registry=registry)(fn)
    assert list(find_misspelled_kinds(registry, RESOURCES)) == []


def test_rights_for_kinds_that_nothing_defines_are_reported() -> None:
    [problem] = find(lambda r: on.startup(rights=["get:widgets.example.com", "get:pod"], registry=r)(fn))
    assert problem.message == (
        "The rights= of Activity 'fn' name a kind that nothing defines: pod (did you mean pods?)."
    )


def test_without_definitions_rights_for_kinds_of_built_in_groups_are_reported() -> None:
    registry = OperatorRegistry()
    on.startup(rights=["get:podz,podz.metrics.k8s.io,things.elsewhere.com"], registry=registry)(fn)
    built_in = RESOURCES[:2]
    assert [problem.message.split(": ")[1] for problem in find_misspelled_kinds(registry, built_in)] == [
        "podz (did you mean pods?).",
        "podz.metrics.k8s.io (did you mean pods.metrics.k8s.io?).",
    ]
