"""Tests for :mod:`trioperator._tooling.checking.listing`: handlers in words."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator import OperatorRegistry, on
from trioperator._tooling.checking import HandlerSummary, list_handlers


def fn(**_: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("create", {}),
        ("update", {}),
        ("delete", {}),
        ("resume", {}),
        ("field", {"field": "spec"}),
        ("event", {}),
        ("index", {}),
        ("daemon", {}),
        ("timer", {"interval": 1}),
        ("reconcile", {}),
        ("validate", {}),
        ("mutate", {}),
        ("convert", {"from_": "v1", "to": "v2"}),
    ],
)
def test_handlers_of_objects_are_listed_with_their_decorator_and_kind(name: str, options: dict[str, Any]) -> None:
    registry = OperatorRegistry()
    getattr(on, name)("example.com", "widgets", id="x", registry=registry, **options)(fn)
    [summary] = list_handlers(registry)
    assert (summary.decorator, summary.kind) == (name, "example.com/widgets")
    assert (summary.file, summary.line) == (__file__, fn.__code__.co_firstlineno)


@pytest.mark.parametrize("name", ["startup", "login", "cleanup", "probe"])
def test_handlers_of_the_operator_are_listed_without_a_kind(name: str) -> None:
    registry = OperatorRegistry()
    getattr(on, name)(id="x", registry=registry)(fn)
    assert list(list_handlers(registry)) == [HandlerSummary("x", name, None, __file__, fn.__code__.co_firstlineno)]
