"""Tests for :mod:`trioperator._handling.declaring.help`: what decorators have in common is in the help of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypedDict, Unpack

from trioperator._handling.declaring.help import explains
from trioperator._handling.declaring.options import EventOptions


class Options(EventOptions, total=False):
    size: int


@explains(Options)
def decorator(*selector: Any, **options: Unpack[Options]) -> Callable[..., Any]:
    """Call the function.

    - ``size``: how large
    - ``id``: its own meaning
    """
    raise NotImplementedError


def text() -> str:
    return inspect.getdoc(decorator) or ""


def test_options_are_explained_after_those_of_the_decorator() -> None:
    lines = [line for line in text().splitlines() if line.startswith("- ")]
    assert lines[:2] == ["- ``size``: how large", "- ``id``: its own meaning"]
    assert "- ``when``: sync function of the keyword arguments, which returns whether the object matches" in lines
    assert len([line for line in lines if "``id``" in line]) == 1


def test_options_that_the_decorator_does_not_have_are_not_explained() -> None:
    assert "``retries``" not in text()


def test_selectors_and_errors_are_explained_once() -> None:
    assert text().startswith("Call the function.\n\nPositional arguments select resource kinds:")
    assert text().count("Raises TypeError or ValueError") == 1


def test_options_are_in_the_signature() -> None:
    assert {"size", "when", "id"} <= inspect.signature(decorator).parameters.keys()


def test_nothing_is_added_where_docstrings_are_dropped() -> None:
    class Few(TypedDict):
        size: int

    def bare(**options: Unpack[Few]) -> None: ...

    assert explains(Few)(bare).__doc__ is None
