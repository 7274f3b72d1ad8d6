"""Tests for :mod:`trioperator._handling.handlers.children`; what becomes of children is in ``tests/reconciling``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from trioperator import Child, Owned, Requeue, TemporaryError
from trioperator._handling.handlers.children import Desired, collecting, parse_mappers, parse_owned
from trioperator.errors import ConfigError

ONE, TWO = {"kind": "One"}, {"kind": "Two"}


def manifests(desired: Desired) -> list[Any]:
    return [child.manifest for child in desired.children]


@pytest.mark.parametrize(
    ("result", "expected"),
    [([None], []), ([], []), (ONE, [ONE]), ([ONE, None, [TWO]], [ONE, TWO]), (iter([ONE]), [ONE]), (Child(ONE), [ONE])],
)
def test_children_are_returned_in_any_form(result: Any, expected: list[Any]) -> None:
    desired = Desired.of(result)
    assert manifests(desired) == expected
    assert (desired.keep, desired.after) == (False, None)


def test_a_requeue_is_no_child_and_the_earliest_counts() -> None:
    desired = Desired.of([ONE, Requeue(after=9), Requeue(after=3)])
    assert (manifests(desired), desired.keep, desired.after) == ([ONE], False, 3)


def test_a_requeue_alone_leaves_the_children_as_they_are() -> None:
    assert Desired.of(Requeue(after=9)) == Desired.of([Requeue(after=9)]) == Desired((), keep=True, after=9)


@pytest.mark.parametrize("result", ["text", b"bytes", 3, True, [1.5]])
def test_what_is_no_child_is_an_error(result: Any) -> None:
    with pytest.raises(ConfigError, match="which is not a child"):
        Desired.of(result)


def returning(size: int) -> Any:
    return [ONE] * size


def yielding(size: int) -> Iterator[Any]:
    for _ in range(size):
        yield ONE


def raising(size: int) -> None:
    raise Requeue(after=size)


async def returning_async(size: int) -> Any:
    return [ONE] * size


async def yielding_async(size: int) -> AsyncIterator[Any]:
    for _ in range(size):
        yield ONE


def returning_awaitable(size: int) -> Any:
    return returning_async(size)


def returning_iterable(size: int) -> Any:
    return yielding_async(size)


@pytest.mark.parametrize(
    "fn",
    [
        returning,
        yielding,
        returning_async,
        yielding_async,
        returning_awaitable,
        returning_iterable,
        functools.partial(returning_async),
        functools.partial(yielding),
    ],
)
async def test_what_a_function_of_any_kind_returns_is_collected(fn: Callable[..., Any]) -> None:
    call = collecting(fn)
    assert list(inspect.signature(call).parameters) == ["size"]
    result = call(size=2)
    desired = await result if inspect.isawaitable(result) else result
    assert manifests(desired) == [ONE, ONE]


def test_a_requeue_that_is_raised_is_a_result() -> None:
    assert collecting(raising)(size=4) == Desired((), keep=True, after=4)


@pytest.mark.parametrize("after", [-1, float("inf"), float("nan"), "3", None, True])
def test_the_time_of_a_requeue_is_checked(after: Any) -> None:
    with pytest.raises(ValueError, match="number of seconds"):
        Requeue(after=after)


def test_a_requeue_is_a_temporary_error_for_all_others() -> None:
    error = Requeue(after=5)
    assert isinstance(error, TemporaryError)
    assert (error.after, error.delay) == (5, 5)


def test_the_options_of_a_child_are_checked() -> None:
    with pytest.raises(TypeError, match="must have other children"):
        Child(ONE, depends_on=[ONE])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="must be a sync function"):
        Child(ONE, ready=returning_async)  # type: ignore[arg-type]


def test_kinds_of_children_have_several_forms() -> None:
    owned = parse_owned("it", ["pods", ("apps/v1", "Deployment"), Owned("services", bodies=True)])
    assert [str(each) for each in owned] == [str(Owned("pods")), str(Owned("apps/v1", "Deployment")), "services"]
    assert [each.bodies for each in owned] == [False, False, True]
    assert parse_owned("it", None) == ()


@pytest.mark.parametrize("owns", ["pods", [3], 3, [()]])
def test_other_forms_of_kinds_are_an_error(owns: Any) -> None:
    with pytest.raises(TypeError, match=r"'deployments'"):
        parse_owned("it", owns)


@pytest.mark.parametrize("watches", [["pods"], {"pods": 3}, {3: returning}, {"pods": returning_async}, {"pods": int}])
def test_mappers_are_sync_functions_by_kinds(watches: Any) -> None:
    with pytest.raises(TypeError, match="watches="):
        parse_mappers("it", watches)
    assert parse_mappers("it", {"pods": returning, ("apps/v1", "Deployment"): returning})[1].fn is returning
    assert parse_mappers("it", None) == ()
