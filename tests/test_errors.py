"""Tests for :mod:`trioperator.errors`."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import pytest

from trioperator import errors


def test_the_tree_in_the_docstring_is_the_class_hierarchy() -> None:
    drawn: dict[str, str] = {}
    parents: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"[\s│├└─]*", line)
        name = re.search(r"\w+Error\b", line)
        if found and name and name.start() == found.end():
            depth = name.start()
            above = max((other for other in parents if other < depth), default=None)
            drawn[name[0]] = "Exception" if above is None else parents[above]
            parents = {other: parents[other] for other in parents if other < depth} | {depth: name[0]}
    classes = dict(inspect.getmembers(errors, inspect.isclass))
    assert drawn == {name: cls.__mro__[1].__name__ for name, cls in classes.items() if issubclass(cls, Exception)}
    assert drawn.keys() == set(errors.__all__)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, errors.ApiError),
        (401, errors.UnauthorizedError),
        (403, errors.ForbiddenError),
        (404, errors.NotFoundError),
        (409, errors.ConflictError),
        (410, errors.ExpiredError),
        (422, errors.InvalidError),
        (429, errors.TooManyRequestsError),
        (499, errors.ApiError),
        (500, errors.ServerError),
        (503, errors.ServerError),
    ],
)
def test_an_error_response_has_the_class_of_its_status(status: int, expected: type[errors.ApiError]) -> None:
    error = errors.ApiError.of("text", status=status, reason="Because", details={"name": "w"}, retry_after=5)
    assert type(error) is expected
    assert (error.status, error.reason, error.details, error.retry_after) == (status, "Because", {"name": "w"}, 5)
    assert (error.message, str(error)) == ("text", f"HTTP {status} Because: text")
    assert not error.repeated


def test_an_error_response_without_a_reason_or_details() -> None:
    error = errors.ApiError.of("text", status=502)
    assert (str(error), error.details, error.retry_after) == ("HTTP 502: text", {}, None)


@pytest.mark.parametrize("delay", [60, 0, -1, 1.5, None, math.inf])
def test_a_temporary_error_has_a_delay(delay: float | None) -> None:
    error = errors.TemporaryError("not yet", delay=delay)
    assert (error.delay, str(error)) == (delay, "not yet")


@pytest.mark.parametrize("delay", ["5", math.nan, [5]])
def test_a_delay_must_be_a_number(delay: Any) -> None:
    with pytest.raises(TypeError, match="it must be a number of seconds"):
        errors.TemporaryError("not yet", delay=delay)


def test_a_temporary_error_is_delayed_by_a_minute_unless_it_is_said_otherwise() -> None:
    class OwnError(errors.TemporaryError):
        def __init__(self) -> None:
            """Call no other."""

    assert errors.TemporaryError().delay == errors.TemporaryError("x").delay == OwnError().delay == 60


def test_unfinished_sub_handlers_are_a_temporary_error_of_their_parent() -> None:
    error = errors.UnfinishedSubhandlersError("create", delay=5)
    assert isinstance(error, errors.TemporaryError)
    assert (str(error), error.delay) == ("There are unfinished sub-handlers of 'create'.", 5)


def test_an_error_of_users_code_says_what_has_failed() -> None:
    error = errors.UserCodeError("A filter of Handler 'fn'", ValueError("x"))
    assert str(error) == "A filter of Handler 'fn' has failed: ValueError('x')"
    assert error.what == "A filter of Handler 'fn'"
