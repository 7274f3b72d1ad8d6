"""Handlers: their ids, signatures and kinds of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.handling.factory import change_handler, event_handler, handler, nothing
from trioperator._handling.handlers.handler import (
    Activity,
    ActivityHandler,
    ErrorsMode,
    Reason,
    Signature,
    check_callback,
    check_signature,
    derive_id,
    is_async,
    signature_of,
    unwrap,
)
from trioperator.errors import ConfigError


def sync_fn(spec: Any, name: Any, **_: Any) -> None: ...


async def async_fn(spec: Any) -> None: ...


class Instance:
    def method(self, spec: Any) -> None: ...

    async def async_method(self, spec: Any) -> None: ...

    @classmethod
    def class_method(cls, spec: Any) -> None: ...

    @staticmethod
    def static_method(spec: Any) -> None: ...


class Callee:
    def __call__(self, spec: Any) -> None: ...


class AsyncCallee:
    async def __call__(self, spec: Any) -> None: ...


def passing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as most decorators do."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


anonymous = lambda **_: None  # noqa: E731


# ------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (sync_fn, "sync_fn"),
        (async_fn, "async_fn"),
        (functools.partial(sync_fn, 1), "sync_fn"),
        (functools.partial(functools.partial(sync_fn, 1), name=2), "sync_fn"),
        (passing(sync_fn), "sync_fn"),
        (passing(passing(sync_fn)), "sync_fn"),
        (functools.partial(passing(sync_fn)), "sync_fn"),
        (passing(functools.partial(sync_fn, 1)), "sync_fn"),
        (Instance().method, "Instance.method"),
        (Instance.class_method, "Instance.class_method"),
        (Instance.static_method, "Instance.static_method"),
    ],
)
def test_an_id_is_the_qualified_name_of_the_innermost_function(fn: Any, expected: str) -> None:
    assert derive_id(fn) == expected


def test_an_id_of_an_inner_function_names_the_outer_one_too() -> None:
    def inner(**_: Any) -> None: ...

    assert derive_id(inner) == f"{test_an_id_of_an_inner_function_names_the_outer_one_too.__name__}.<locals>.inner"


def test_the_id_of_a_lambda_is_its_file_and_line() -> None:
    line = anonymous.__code__.co_firstlineno
    assert derive_id(anonymous) == f"lambda:{__file__}:{line}"
    assert derive_id(functools.partial(anonymous, x=1)) == f"lambda:{__file__}:{line}"


def test_a_callable_without_a_name_needs_an_id() -> None:
    with pytest.raises(TypeError, match="id="):
        derive_id(Callee())


def test_the_innermost_function_is_found_through_any_mix_of_wrappers() -> None:
    assert unwrap(functools.partial(passing(functools.partial(passing(sync_fn))))) is sync_fn


# ------------------------------------------------------------------------------------------------- async


@pytest.mark.parametrize(
    "fn",
    [
        async_fn,
        functools.partial(async_fn, spec=1),
        passing(async_fn),
        functools.partial(passing(async_fn)),
        passing(functools.partial(async_fn)),
        Instance().async_method,
        functools.partial(Instance().async_method),
        AsyncCallee(),
        functools.partial(AsyncCallee()),
    ],
)
def test_async_functions_are_recognised_through_wrappers(fn: Any) -> None:
    assert is_async(fn)


@pytest.mark.parametrize(
    "fn", [sync_fn, anonymous, functools.partial(sync_fn), passing(sync_fn), Instance().method, Callee(), print, Callee]
)
def test_other_functions_are_sync(fn: Any) -> None:
    assert not is_async(fn)


def test_an_async_wrapper_of_a_sync_function_is_async() -> None:
    @functools.wraps(sync_fn)
    async def wrapper(**kwargs: Any) -> None: ...

    assert is_async(wrapper)


# --------------------------------------------------------------------------------------------- arguments

AVAILABLE = frozenset({"spec", "name", "logger", "memo"})


def picked(fn: Any) -> set[str]:
    return set(signature_of(fn).pick(dict.fromkeys(AVAILABLE)))


def bare() -> None: ...
def with_default(spec: Any, other: int = 5) -> None: ...
def keyword_only(*, name: Any) -> None: ...
def some_args(*args: Any, spec: Any) -> None: ...


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (bare, set()),
        (with_default, {"spec"}),
        (keyword_only, {"name"}),
        (some_args, {"spec"}),
        (sync_fn, AVAILABLE),
        (nothing, AVAILABLE),
        (functools.partial(with_default, 1), set()),
        (functools.partial(with_default, other=1), {"spec"}),
        (Instance().method, {"spec"}),
        (Instance.class_method, {"spec"}),
        (Instance.static_method, {"spec"}),
        (Callee(), {"spec"}),
        (passing(with_default), {"spec"}),
        (passing(passing(keyword_only)), {"name"}),
        (passing(sync_fn), AVAILABLE),
        (functools.partial(passing(with_default), 1), set()),
        (passing(functools.partial(with_default, 1)), set()),
    ],
)
def test_a_function_gets_the_arguments_that_it_declares_and_no_others(fn: Any, expected: set[str]) -> None:
    assert picked(fn) == expected
    fn(**dict.fromkeys(picked(fn)))


def test_a_wrapper_gets_its_own_arguments() -> None:
    def with_logger(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapper(logger: Any, **kwargs: Any) -> Any:
            return fn(**kwargs)

        return wrapper

    assert picked(with_logger(with_default)) == {"spec", "logger"}
    assert picked(with_logger(passing(keyword_only))) == {"name", "logger"}


def test_a_wrapper_that_passes_on_nothing_by_name_gets_its_own_arguments_only() -> None:
    @functools.wraps(sync_fn)
    def wrapper(memo: Any) -> None: ...

    assert picked(wrapper) == {"memo"}


def test_self_is_not_an_argument_of_a_wrapped_method() -> None:
    class Local:
        @passing
        def method(self, spec: Any) -> Any:
            return self, spec

    local = Local()
    assert picked(local.method) == {"spec"}
    assert local.method(spec=1) == (local, 1)


def test_a_function_whose_signature_cannot_be_read_gets_everything() -> None:
    def odd(*args: Any) -> None: ...

    odd.__signature__ = "nonsense"  # type: ignore[attr-defined]
    assert picked(odd) == AVAILABLE


def test_skipped_positions_are_not_arguments() -> None:
    def check(value: Any, spec: Any) -> None: ...

    assert signature_of(check, skip=1) == Signature(frozenset({"spec"}), frozenset({"spec"}), takes_all=False)
    assert signature_of(passing(check), skip=1).names == {"spec"}

    class Local:
        @passing
        def check(self, value: Any, spec: Any) -> None: ...

    assert signature_of(Local().check, skip=1).names == {"spec"}
    assert signature_of(lambda *values: None, skip=1).names == frozenset()


@given(st.sets(st.sampled_from(sorted(AVAILABLE))), st.sets(st.sampled_from(["other", "more"])), st.booleans())
def test_any_subset_of_the_arguments_may_be_declared(some: set[str], optional: set[str], wrapped: bool) -> None:
    declared = ", ".join([*sorted(some), *(f"{name}=None" for name in sorted(optional))])
    fn = eval(f"lambda {declared}: [{', '.join(some)}]")
    fn = passing(fn) if wrapped else fn
    kwargs = {name: object() for name in AVAILABLE}
    assert fn(**signature_of(fn).pick(kwargs)) == [kwargs[name] for name in some]


# ------------------------------------------------------------------------------------------------ checks


def test_a_function_with_unknown_required_arguments_is_rejected_by_name() -> None:
    def create(spec: Any, sepc: Any, nmae: Any, **_: Any) -> None: ...

    with pytest.raises(ConfigError) as caught:
        check_signature(handler(create, id="my-id"), AVAILABLE)
    text = str(caught.value)
    assert "my-id" in text
    assert "nmae (did you mean name?), sepc (did you mean spec?)." in text
    assert f"{__file__}:{create.__code__.co_firstlineno}" in text
    assert "logger, memo, name, spec" in text


def test_arguments_with_defaults_may_be_unknown() -> None:
    check_signature(handler(with_default), AVAILABLE)


def test_arguments_that_a_wrapper_fills_in_may_be_unknown() -> None:
    def inner(spec: Any, database: Any) -> None: ...

    @functools.wraps(inner)
    def wrapper(spec: Any, **kwargs: Any) -> None:
        inner(spec, "a database")

    check_signature(handler(wrapper), AVAILABLE)


def test_a_positional_only_argument_is_rejected() -> None:
    with pytest.raises(ConfigError, match="spec"):
        check_signature(handler(lambda spec, /, name: None), AVAILABLE)


def test_the_error_names_file_and_line_of_a_wrapped_function() -> None:
    fn = functools.partial(passing(lambda sepc: None))
    check_signature(handler(fn), AVAILABLE)  # the wrapper asks for nothing itself
    with pytest.raises(ConfigError, match=f"{__file__}:"):
        check_signature(handler(functools.partial(lambda sepc: None)), AVAILABLE)


def test_a_filter_with_unknown_required_arguments_is_rejected_by_name() -> None:
    with pytest.raises(ConfigError, match=r"when= of Handler 'fn'.*sepc"):
        check_callback(handler(), "when", lambda sepc: True, AVAILABLE)
    with pytest.raises(ConfigError, match=r"labels= of Handler 'fn'.*sepc"):
        check_callback(handler(), "labels", lambda value, sepc: True, AVAILABLE)
    check_callback(handler(), "labels", lambda value, spec, **_: True, AVAILABLE)
    check_callback(handler(), "when", lambda spec, x=1: True, AVAILABLE)


# ---------------------------------------------------------------------------------------------- handlers


def test_handlers_are_immutable() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        handler().id = "other"  # type: ignore[misc]


def test_two_handlers_are_never_equal() -> None:
    assert change_handler() != change_handler()
    assert len({change_handler(), change_handler()}) == 2


def test_handlers_have_a_name_for_logs() -> None:
    assert str(change_handler(id="x/spec.y")) == "Handler 'x/spec.y'"
    assert str(ActivityHandler(fn=nothing, id="x", activity=Activity.STARTUP)) == "Activity 'x'"


def test_errors_are_temporary_by_default_except_for_events() -> None:
    assert change_handler().default_errors is ErrorsMode.TEMPORARY
    assert ActivityHandler(fn=nothing, id="x", activity=Activity.PROBE).default_errors is ErrorsMode.TEMPORARY
    assert event_handler().default_errors is ErrorsMode.IGNORED


@pytest.mark.parametrize(
    ("options", "finalizer", "optional"),
    [
        ({"reason": Reason.DELETE}, True, False),
        ({"reason": Reason.DELETE, "optional": True}, False, True),
        ({"reason": Reason.CREATE}, False, False),
        ({"reason": None, "initial": True, "deleted": True}, False, False),
        ({"reason": None, "needs_change": True}, False, False),
    ],
)
def test_only_mandatory_delete_handlers_need_a_finalizer(options: Any, finalizer: bool, optional: bool) -> None:
    made = change_handler(**options)
    assert made.needs_finalizer is finalizer
    assert made.is_optional_delete is optional
    assert made.without_finalizer().is_optional_delete is (finalizer or optional)
    assert not made.without_finalizer().needs_finalizer


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"labels": {}}, False),
        ({"labels": {"a": "b"}}, True),
        ({"annotations": {"a": "b"}}, True),
        ({"when": nothing}, True),
        ({"field": ("spec",)}, True),
    ],
)
def test_handlers_know_whether_they_have_filters(options: Any, expected: bool) -> None:
    assert event_handler(**options).has_filters is expected


def test_reasons_are_strings() -> None:
    assert [f"{reason}" for reason in Reason][:4] == ["create", "update", "delete", "resume"]
    assert {"create": 1}[Reason.CREATE] == 1
    assert {str(activity) for activity in Activity} == {"startup", "authentication", "cleanup", "probe"}
