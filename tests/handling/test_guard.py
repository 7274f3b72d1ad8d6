"""Tests for :mod:`trioperator._handling.guard`: what a user's function raises becomes a UserCodeError."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.handling.factory import WIDGETS, change_cause, change_handler, event_cause, event_handler
from trioperator._handling import guard
from trioperator._handling.handlers.filters import all_, any_, call_with, matches, none_, not_, prematches
from trioperator._handling.handlers.lifecycles import apply_lifecycle
from trioperator._handling.storages.diffbase import AnnotationsDiffBaseStorage
from trioperator._handling.storages.progress import (
    AnnotationsProgressStorage,
    ProgressRecord,
    ProgressStorage,
    SmartProgressStorage,
    StatusProgressStorage,
)
from trioperator._logs import get_logger
from trioperator._model.body import Body, BodyEssence
from trioperator._model.resource import Selector, select_resources
from trioperator.errors import TrioperatorError, UserCodeError


class OwnError(BaseException):
    """An error that derives from no Exception."""


# What functions of users may raise, and the operator must survive.
ERRORS: list[BaseException] = [
    ValueError("something"),
    RecursionError("too deep"),
    asyncio.CancelledError("by asyncio"),
    OwnError("own"),
    ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
    BaseExceptionGroup("several", [asyncio.CancelledError("by asyncio")]),
]
# What ends the process, and so does a function that raises it.
PASSING: list[BaseException] = [SystemExit(3), KeyboardInterrupt(), GeneratorExit()]

any_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
any_passing = pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a function that raises the error, whatever its arguments."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


# ------------------------------------------------------------------------------------------------- calls


def test_a_call_passes_arguments_and_returns_the_result() -> None:
    def fn(*args: int, **kwargs: int) -> tuple[Any, Any]:
        return args, kwargs

    assert guard.call("The function {}", "fn", fn, 1, 2, a=3) == ((1, 2), {"a": 3})


@pytest.mark.parametrize("name", ["what", "subject", "fn"])
def test_a_function_may_have_parameters_of_the_names_of_the_guards_own(name: str) -> None:
    assert guard.call("The function {}", "fn", lambda **kwargs: kwargs, **{name: 1}) == {name: 1}


@any_error
def test_an_error_becomes_one_of_users_code_with_its_cause(error: BaseException) -> None:
    with pytest.raises(UserCodeError) as caught:
        guard.call("The function {}", "fn", raising(error))
    assert caught.value.__cause__ is error
    assert caught.value.what == "The function fn"
    assert str(caught.value) == f"The function fn has failed: {error!r}"
    assert isinstance(caught.value, TrioperatorError)
    assert isinstance(caught.value, Exception)


@any_passing
def test_what_ends_the_process_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        guard.call("The function {}", "fn", raising(error))
    assert caught.value is error


def test_the_end_of_an_iterator_is_an_error_too() -> None:
    with pytest.raises(UserCodeError, match=re.escape("The function fn has failed: StopIteration()")):
        guard.call("The function {}", "fn", next, iter(()))


def test_the_subject_is_named_only_by_its_own_text() -> None:
    with pytest.raises(UserCodeError, match=re.escape("The storage '{x}' has failed")):
        guard.call("The storage {!r}", "{x}", raising(ValueError()))


# ----------------------------------------------------------------------------------------------- filters


@any_error
@pytest.mark.parametrize("select", [matches, prematches])
@pytest.mark.parametrize(
    "options",
    [
        lambda fn: {"when": fn},
        lambda fn: {"labels": {"a": fn}},
        lambda fn: {"annotations": {"a": fn}},
        lambda fn: {"field": ("spec", "x"), "value": fn},
        lambda fn: {"when": all_([fn])},
        lambda fn: {"when": any_([fn])},
        lambda fn: {"when": none_([fn])},
        lambda fn: {"when": not_(fn)},
    ],
    ids=["when", "labels", "annotations", "value", "all_", "any_", "none_", "not_"],
)
def test_a_filter_that_fails_is_named_with_its_handler(
    options: Callable[[Any], dict[str, Any]], select: Callable[..., bool], error: BaseException
) -> None:
    handler = event_handler(**options(raising(error)))
    with pytest.raises(UserCodeError) as caught:
        select(handler, event_cause({"metadata": {}, "spec": {"x": 1}}))
    assert caught.value.what == f"A filter of {handler}"
    assert caught.value.__cause__ is error
    assert traceback.extract_tb(error.__traceback__)[0].name == "fail"


@any_error
@pytest.mark.parametrize("option", ["old", "new"])
def test_a_filter_of_a_change_that_fails_is_guarded(option: str, error: BaseException) -> None:
    handler = change_handler(field=("x",), needs_change=True, **{option: raising(error)})
    with pytest.raises(UserCodeError, match="A filter of Handler 'fn' has failed"):
        matches(handler, change_cause(old={"x": 1}, new={"x": 2}))


def test_a_truth_value_that_cannot_be_computed_is_an_error_of_the_filter() -> None:
    class Unclear:
        def __bool__(self) -> bool:
            raise asyncio.CancelledError

    with pytest.raises(UserCodeError, match=re.escape("has failed: CancelledError()")):
        matches(event_handler(when=lambda **_: Unclear()), event_cause({}))


def test_a_filter_with_parameters_that_do_not_exist_is_an_error_of_the_filter() -> None:
    with pytest.raises(UserCodeError) as caught:
        matches(event_handler(when=lambda nonsense: True), event_cause({}))
    assert isinstance(caught.value.__cause__, TypeError)


@any_passing
def test_a_filter_can_end_the_process(error: BaseException) -> None:
    with pytest.raises(type(error)):
        matches(event_handler(when=raising(error)), event_cause({}))


# --------------------------------------------------------------------------------- selectors, delays, orders


@any_error
def test_a_selector_that_fails_is_guarded(error: BaseException) -> None:
    selector = Selector.parse(raising(error))
    with pytest.raises(UserCodeError) as caught:
        guard.call("The selector {}", selector, select_resources, selector, [WIDGETS])
    assert caught.value.__cause__ is error


@any_error
def test_an_initial_delay_that_fails_is_guarded(error: BaseException) -> None:
    with pytest.raises(UserCodeError, match="The initial delay of Handler 'fn' has failed"):
        guard.call("The initial delay of {}", "Handler 'fn'", call_with, raising(error), {"name": "w"})


def failing_late(handlers: Any, **_: Any) -> Any:
    yield handlers[0]
    raise asyncio.CancelledError


@any_error
def test_a_lifecycle_that_fails_chooses_nothing_and_is_logged(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = apply_lifecycle(
        raising(error), [change_handler()], state={}, kwargs={}, logger=get_logger("trioperator.test")
    )
    assert chosen == []
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert f"fail has failed: {error!r}" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_a_lifecycle_that_fails_while_its_result_is_read_chooses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    chosen = apply_lifecycle(
        failing_late, [change_handler()], state={}, kwargs={}, logger=get_logger("trioperator.test")
    )
    assert chosen == []
    assert "The lifecycle failing_late has failed: CancelledError()" in caplog.text


@any_passing
def test_a_lifecycle_can_end_the_process(error: BaseException) -> None:
    with pytest.raises(type(error)):
        apply_lifecycle(raising(error), [change_handler()], state={}, kwargs={}, logger=get_logger("trioperator.test"))


# ---------------------------------------------------------------------------------------------- storages


class FailingStorage(ProgressStorage):
    """A storage of the user's, all methods of which raise the same error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        return "failing"

    def fetch(self, *, key: str, body: Body) -> ProgressRecord | None:
        raise self.error

    def store(self, *, key: str, record: ProgressRecord, body: Body, patch: dict[str, Any]) -> None:
        raise self.error

    def purge(self, *, key: str, body: Body, patch: dict[str, Any]) -> None:
        raise self.error

    def touch(self, *, body: Body, patch: dict[str, Any], value: str | None) -> None:
        raise self.error

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        raise self.error

    def flush(self) -> None:
        raise self.error


class InheritingStorage(AnnotationsProgressStorage):
    """A storage of the user's that is one of ours in all but one method."""

    def clear(self, *, essence: BodyEssence) -> BodyEssence:
        raise asyncio.CancelledError


METHODS: Mapping[str, Mapping[str, Any]] = {
    "fetch": {"key": "x", "body": Body({})},
    "store": {"key": "x", "record": {}, "body": Body({}), "patch": {}},
    "purge": {"key": "x", "body": Body({}), "patch": {}},
    "touch": {"body": Body({}), "patch": {}, "value": None},
    "clear": {"essence": {}},
    "flush": {},
}


@any_error
@pytest.mark.parametrize("method", METHODS)
def test_each_method_of_a_storage_that_fails_is_guarded(method: str, error: BaseException) -> None:
    storage = guard.guarded(FailingStorage(error))
    with pytest.raises(UserCodeError) as caught:
        getattr(storage, method)(**METHODS[method])
    assert str(caught.value) == f"The storage failing has failed: {error!r}"
    assert caught.value.__cause__ is error


@any_passing
def test_a_storage_can_end_the_process(error: BaseException) -> None:
    with pytest.raises(type(error)):
        guard.guarded(FailingStorage(error)).flush()


def test_a_subclass_of_one_of_our_storages_is_guarded_and_works_as_before() -> None:
    storage = guard.guarded(InheritingStorage(prefix="example.com"))
    patch: dict[str, Any] = {}
    storage.store(key="x", record={"retries": 1}, body=Body({}), patch=patch)
    assert storage.fetch(key="x", body=Body(patch)) == {"retries": 1}
    with pytest.raises(UserCodeError):
        storage.clear(essence={})


@pytest.mark.parametrize(
    "storage",
    [
        AnnotationsProgressStorage(prefix="example.com"),
        StatusProgressStorage(),
        SmartProgressStorage(),
        AnnotationsDiffBaseStorage(),
    ],
    ids=lambda storage: type(storage).__name__,
)
def test_our_own_storages_are_not_wrapped(storage: object) -> None:
    assert guard.guarded(storage) is storage
    assert guard.unguarded(storage) is storage


def test_a_guarded_storage_can_be_unwrapped() -> None:
    storage = InheritingStorage(prefix="example.com")
    wrapped = guard.guarded(storage)
    assert wrapped is not storage
    assert guard.unguarded(wrapped) is storage


def test_an_error_that_is_kept_holds_no_frames() -> None:
    def fail() -> None:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ExceptionGroup("several", [ValueError("second"), TypeError("third")]) from error

    with pytest.raises(ExceptionGroup) as caught:
        fail()
    error = caught.value
    assert error.__cause__ is not None
    error.__cause__.__context__ = error  # a circle
    guard.forget_frames(error)
    for each in (error, error.__cause__, *error.exceptions):
        assert each.__traceback__ is None
    guard.forget_frames(None)


@pytest.mark.parametrize("cleared", [None, {"spec": {}}])
def test_a_storage_that_clears_nothing_may_return_none(cleared: Any) -> None:
    class Clearing(InheritingStorage):
        def clear(self, **_: Any) -> Any:
            return cleared

    essence: Any = {"spec": {"x": 1}}
    assert guard.guarded(Clearing()).clear(essence=essence) == (cleared or essence)
