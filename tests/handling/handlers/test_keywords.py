"""Tests for :mod:`trioperator._handling.handlers.keywords`: which arguments a function may use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from trioperator._handling.handlers.keywords import may_use


class Reviewer:
    def unused(self, **_: Any) -> None: ...

    def used(self, **kwargs: Any) -> Any:
        return kwargs

    def __call__(self, **kwargs: Any) -> None: ...


def wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(**kwargs: Any) -> Any:
        return fn(**kwargs)

    return call


def named(memo: Any, **_: Any) -> None: ...


def unused(name: str, *args: Any, uid: str = "", **kwargs: Any) -> Any:
    return name, args, uid


def used(**kwargs: Any) -> Any:
    return kwargs.get("memo")


def used_among_others(a: Any, **kwargs: Any) -> Any:
    return a == kwargs


def used_within(**kwargs: Any) -> Any:
    return lambda: kwargs


def prying(**kwargs: Any) -> Any:
    return locals()


async def unused_async(spec: Any, **_: Any) -> None:
    str(spec)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (named, True),
        (unused, False),
        (unused_async, False),
        (lambda **_: None, False),
        (lambda name: name, False),
        (used, True),
        (used_among_others, True),
        (used_within, True),
        (prying, True),
        (Reviewer().unused, False),
        (Reviewer().used, True),
        (Reviewer(), True),
        (functools.partial(unused, uid="x"), True),
        (wrapper(named), True),
        (wrapper(used), True),
    ],
)
def test_an_argument_may_be_used_that_is_named_or_may_be_looked_up(fn: Callable[..., Any], expected: bool) -> None:
    assert may_use("memo", fn) is expected
