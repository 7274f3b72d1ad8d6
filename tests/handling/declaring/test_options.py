"""Tests for :mod:`trioperator._handling.declaring.options`: what decorators accept, and how they reject the rest."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

from trioperator._handling.declaring.options import (
    CreateOptions,
    check_not_async,
    check_options,
    parse_durations,
    parse_filters,
    parse_on_change,
    parse_retry_options,
    parse_selection,
    parse_spawning_options,
    parse_timer_options,
)
from trioperator._handling.handlers.filters import ABSENT, PRESENT
from trioperator._handling.handlers.handler import ErrorsMode
from trioperator._model.resource import Resource

WIDGETS = Resource("example.com", "v1", "widgets")
GADGETS = Resource("example.com", "v1", "gadgets")


async def async_fn(*_: Any, **__: Any) -> bool:
    return True


def fn(*_: Any, **__: Any) -> bool:
    return True


def reject(error: type[Exception], message: str) -> Any:
    return pytest.raises(error, match=re.escape(message))


def test_unknown_options_are_rejected_with_the_available_ones() -> None:
    given = {"id": "x", "field": "spec"}
    assert check_options("@on.create", given, CreateOptions) == given
    with reject(TypeError, "@on.create has no option nme, zzz. Available options: annotations, backoff"):
        check_options("@on.create", {"zzz": 1, "nme": 2, "id": 3}, CreateOptions)


def test_options_of_retries_that_are_not_given_are_left_out() -> None:
    assert parse_retry_options("@x", {"timeout": None, "id": "x"}) == {}
    given = {"errors": ErrorsMode.IGNORED, "timeout": 1.5, "retries": 0, "backoff": 2}
    assert parse_retry_options("@x", given) == given


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"errors": "ignored"}, TypeError),
        ({"timeout": -1}, ValueError),
        ({"timeout": "5"}, ValueError),
        ({"timeout": math.nan}, ValueError),
        ({"timeout": True}, ValueError),
        ({"retries": 1.5}, ValueError),
        ({"retries": -1}, ValueError),
        ({"backoff": -0.1}, ValueError),
    ],
)
def test_wrong_options_of_retries_are_rejected(options: Mapping[str, Any], error: type[Exception]) -> None:
    [(key, _)] = options.items()
    with reject(error, f"@x has {key}="):
        parse_retry_options("@x", options)


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("finish", False), ("cancel", True)])
def test_a_change_may_cancel_a_call(value: str | None, expected: bool) -> None:
    assert parse_on_change("@x", {"on_change": value}) is expected
    assert parse_on_change("@x", {}) is False
    with reject(ValueError, "@x has on_change='stop': it must be 'finish' or 'cancel'."):
        parse_on_change("@x", {"on_change": "stop"})


# ------------------------------------------------------------------------------------- selectors and filters


@pytest.mark.parametrize(
    ("selector", "options"),
    [
        (("widgets",), {}),
        (("example.com", "v1", "widgets"), {}),
        ((), {"plural": "widgets", "group": "example.com"}),
        ((lambda resource: resource.plural == "widgets",), {}),
    ],
)
def test_a_selection_has_a_selector_and_filters(selector: tuple[Any, ...], options: dict[str, Any]) -> None:
    selection = parse_selection("@x", selector, {**options, "when": fn})
    assert selection["selector"].matches(WIDGETS)
    assert not selection["selector"].matches(GADGETS)
    assert selection["when"] is fn


def handler(**kwargs: Any) -> None: ...
def two_arguments(one: Any, two: Any) -> bool:
    return True


def one_argument(spec: Any) -> None: ...
def one_argument_and_more(body: Any, **_: Any) -> None: ...


class Class:
    def __init__(self, thing: Any) -> None: ...


@pytest.mark.parametrize(
    "selector",
    [handler, async_fn, two_arguments, one_argument, one_argument_and_more, Class, lambda any_index, **_: True],
)
def test_a_handler_is_not_taken_for_a_selector(selector: Any) -> None:
    with reject(TypeError, f"@x got {selector.__qualname__} as a selector"):
        parse_selection("@x", (selector,), {})


def by_annotation(kind: Resource, **_: Any) -> bool:
    return kind.plural == "widgets"


@pytest.mark.parametrize("fn", [by_annotation, lambda resource, **_: resource.plural == "widgets"])
def test_a_selector_may_take_any_keyword_arguments_as_all_functions_in_kopf_do(fn: Any) -> None:
    selection = parse_selection("@x", (fn,), {})
    assert selection["selector"].matches(WIDGETS)
    assert not selection["selector"].matches(GADGETS)


def test_a_selector_may_bind_values_as_defaults() -> None:
    selection = parse_selection("@x", (lambda one, name="widgets": one.plural == name,), {})
    assert selection["selector"].matches(WIDGETS)


def test_filters_that_are_not_given_are_none() -> None:
    assert parse_filters("@x", {}) == dict.fromkeys(("labels", "annotations", "when", "field", "value"))


@pytest.mark.parametrize("field", ["spec.size", ["spec", "size"], ("spec", "size")])
def test_a_field_is_a_path(field: Any) -> None:
    assert parse_filters("@x", {"field": field, "value": 0})["field"] == ("spec", "size")
    assert parse_filters("@x", {"field": field, "value": 0})["value"] == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"value": 1}, TypeError, "@x has value=... without field=..."),
        ({"old": 1, "new": 2}, TypeError, "@x has old, new=... without field=..."),
        ({"field": "spec", "value": 1, "new": 2}, TypeError, "@x has value=... together with old=... or new=..."),
        ({"when": True}, TypeError, "@x has when=True: it must be a function."),
        ({"when": async_fn}, TypeError, "@x has an async function in when=...: it must be a sync function."),
        ({"field": "spec", "value": async_fn}, TypeError, "@x has an async function in value=..."),
        ({"field": "spec", "old": async_fn}, TypeError, "@x has an async function in old=..."),
        ({"labels": "app"}, TypeError, "@x has labels='app': it must be a mapping."),
        ({"annotations": ["app"]}, TypeError, "@x has annotations=['app']: it must be a mapping."),
        ({"labels": {"a": None}}, ValueError, "@x has labels={'a': None}: use PRESENT or ABSENT instead of None."),
        ({"labels": {"a": async_fn}}, TypeError, "@x has an async function in labels=..."),
        ({"labels": {"a": 1}}, TypeError, "@x has labels={'a': 1}: the value must be a string such as '1', PRESENT,"),
        (
            {"annotations": {"a": True}},
            TypeError,
            "@x has annotations={'a': True}: the value must be a string such as 'true'",
        ),
        ({"labels": {1: "a"}}, TypeError, "@x has labels={1: 'a'}: the key must be a string."),
        ({"field": "spec..x"}, ValueError, "@x has field='spec..x': it must be a dotted string without empty parts"),
        ({"field": ".spec"}, ValueError, "@x has field='.spec': it must be a dotted string without empty parts"),
        (
            {"field": ["spec", 0]},
            ValueError,
            "@x has field=['spec', 0]: it must be a dotted string without empty parts",
        ),
    ],
)
def test_wrong_filters_are_rejected(options: Mapping[str, Any], error: type[Exception], message: str) -> None:
    with reject(error, message):
        parse_filters("@x", options)


def test_metadata_may_be_values_markers_and_functions() -> None:
    labels = {"a": "x", "b": PRESENT, "c": ABSENT, "d": fn}
    assert parse_filters("@x", {"labels": labels})["labels"] == labels


def test_only_sync_functions_are_accepted() -> None:
    check_not_async("@x", "when", fn)
    check_not_async("@x", "when", "not a function")
    with reject(TypeError, "@x has an async function in when=..."):
        check_not_async("@x", "when", async_fn)


# -------------------------------------------------------------------------------------------- times and timers


@pytest.mark.parametrize(
    ("key", "accepted", "rejected"),
    [
        ("interval", [0.1, 5], [0, -1, math.inf, math.nan, "5", True]),
        ("cancellation_polling", [0.1, 5], [0, -1, math.inf]),
        ("idle", [0, 5], [-1, math.inf, math.nan, "5", False]),
        ("cancellation_timeout", [0, 5], [-1, math.inf]),
    ],
)
def test_durations_are_numbers_of_seconds(key: str, accepted: list[Any], rejected: list[Any]) -> None:
    for value in accepted:
        assert parse_durations("@x", {key: value, "other": "x"}, key) == {key: value}
    for value in rejected:
        with reject(ValueError, f"@x has {key}={value!r}: it must be a number of seconds"):
            parse_durations("@x", {key: value}, key)
    assert parse_durations("@x", {key: None}, key) == {}


@pytest.mark.parametrize(("finalizer", "expected"), [(None, True), (True, True), (False, False)])
def test_daemons_have_a_finalizer_unless_they_want_none(finalizer: bool | None, expected: bool) -> None:
    parsed = parse_spawning_options("@x", ("widgets",), {"finalizer": finalizer, "retries": 3, "initial_delay": 5})
    assert (parsed["finalizer"], parsed["retries"], parsed["initial_delay"]) == (expected, 3, 5)
    assert parsed["selector"].matches(WIDGETS)


def test_an_initial_delay_may_be_computed() -> None:
    assert parse_spawning_options("@x", ("widgets",), {"initial_delay": fn})["initial_delay"] is fn


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"finalizer": "yes"}, TypeError, "@x has finalizer='yes': it must be True or False."),
        ({"initial_delay": -1}, ValueError, "@x has initial_delay=-1"),
        ({"initial_delay": async_fn}, TypeError, "@x has an async function in initial_delay=..."),
    ],
)
def test_wrong_options_of_daemons_are_rejected(
    options: Mapping[str, Any], error: type[Exception], message: str
) -> None:
    with reject(error, message):
        parse_spawning_options("@x", ("widgets",), options)


def test_a_timer_is_due_by_intervals() -> None:
    assert parse_timer_options("@x", {}) == {"sharp": False}
    given = {"interval": 5, "idle": 2, "sharp": True}
    assert parse_timer_options("@x", given) == given


def test_a_timer_is_due_by_a_schedule() -> None:
    parsed = parse_timer_options("@x", {"cron": "@hourly", "timezone": "Europe/Berlin"})
    moment = datetime.datetime(2026, 1, 1, 12, 30, tzinfo=datetime.UTC)
    assert parsed["schedule"].next_after(moment) == datetime.datetime(2026, 1, 1, 13, tzinfo=datetime.UTC)
    assert not parsed["sharp"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cron": "@hourly", "interval": 5}, TypeError, "@x has cron=... together with interval, sharp or idle"),
        ({"cron": "@hourly", "idle": 5}, TypeError, "@x has cron=... together with interval, sharp or idle"),
        ({"cron": "@hourly", "sharp": True}, TypeError, "@x has cron=... together with interval, sharp or idle"),
        ({"cron": 5}, TypeError, "@x has cron=5: it must be a string"),
        ({"cron": "often"}, ValueError, "'often' is not a cron expression"),
        ({"timezone": "Europe/Berlin", "interval": 5}, TypeError, "@x has timezone=... without cron=..."),
        ({"sharp": True}, TypeError, "@x has sharp=True without interval=..."),
        ({"interval": 0}, ValueError, "@x has interval=0"),
    ],
)
def test_wrong_options_of_timers_are_rejected(options: Mapping[str, Any], error: type[Exception], message: str) -> None:
    with reject(error, message):
        parse_timer_options("@x", options)
