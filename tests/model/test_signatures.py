"""Tests for :mod:`trioperator._model.signatures`: what users see of options that are passed on as they are."""

from __future__ import annotations

import inspect
import io
import pydoc
from typing import TypedDict, Unpack

import pytest

import trioperator
from trioperator import on
from trioperator._model.signatures import copy_signature, shows
from trioperator._supervisor.plan import OperatorOptions


class Options(TypedDict, total=False):
    first: int
    second: str | None


@shows(Options)
def take(*args: object, **options: Unpack[Options]) -> None:
    assert options == {"first": 1}


def test_each_key_is_a_keyword_with_its_default() -> None:
    assert (
        str(inspect.signature(take)) == "(*args: 'object', first: 'int' = None, second: 'str | None' = None) -> 'None'"
    )


def test_the_function_is_called_as_before() -> None:
    take(first=1)


def test_a_wrapper_shows_the_signature_of_its_function_if_it_has_one() -> None:
    def wrapper(**kwargs: object) -> None: ...

    copy_signature(wrapper, type)  # which has none
    assert str(inspect.signature(wrapper)) == "(**kwargs: 'object') -> 'None'"
    copy_signature(wrapper, take)
    assert list(inspect.signature(wrapper).parameters) == ["args", "first", "second"]


@pytest.mark.parametrize("name", [name for name in on.__all__ if name != "this"])
def test_help_shows_the_options_of_each_decorator(name: str) -> None:
    shown = io.StringIO()
    pydoc.Helper(output=shown)(getattr(on, name))
    head = shown.getvalue().partition(" -> ")[0].replace("'", "")  # Python 3.14 shows annotations without quotes
    assert "**" not in head
    assert ": float | None = None" in head or "when: " in head or "from_: " in head


@pytest.mark.parametrize("function", [trioperator.run, trioperator.operator])
def test_operators_show_all_their_options(function: object) -> None:
    shown = inspect.signature(function).parameters  # type: ignore[arg-type]
    assert shown.keys() - {"task_status"} == set(OperatorOptions.__struct_fields__)
    assert {name: shown[name].default for name in ("clusterwide", "namespaces", "handle_signals", "name")} == {
        "clusterwide": False,
        "namespaces": (),
        "handle_signals": True,
        "name": None,
    }
