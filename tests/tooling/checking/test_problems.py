"""Tests for :mod:`trioperator._tooling.checking.problems`: where functions are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from trioperator._tooling.checking.problems import Problem, locate, problem_of


def plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


@plain
def decorated() -> None:
    pass


FIRST_LINE = plain.__code__.co_firstlineno + 4


def test_a_function_begins_with_its_first_decorator() -> None:
    assert locate(decorated) == (__file__, FIRST_LINE)
    assert problem_of("ids", decorated, "It is wrong.") == Problem("ids", "It is wrong.", __file__, FIRST_LINE)


def test_functions_are_found_in_partials() -> None:
    assert locate(functools.partial(functools.wraps(decorated)(lambda: None))) == (__file__, FIRST_LINE)


def test_what_is_not_written_in_python_is_nowhere() -> None:
    assert locate(print) == ("", 0)
