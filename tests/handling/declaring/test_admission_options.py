"""Tests for :mod:`trioperator._handling.declaring.admission_options`, through the decorators."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator import on
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.reviews.admission import AdmissionHandler, WebhookType
from trioperator._handling.reviews.conversion import ConversionHandler
from trioperator._model.custom_kind import KindInfo, set_kind
from trioperator.errors import ConfigError


def fn(**_: Any) -> None: ...


def decorate(name: str, **options: Any) -> AdmissionHandler:
    registry = OperatorRegistry()
    assert getattr(on, name)("widgets", registry=registry, **options)(fn) is fn
    (handler,) = registry.admission_handlers()
    assert registry.resource_handlers() == ()  # nothing is watched for it
    return handler


@pytest.mark.parametrize("name", ["validate", "mutate"])
def test_without_options_the_defaults_apply(name: str) -> None:
    handler = decorate(name)
    assert handler.type is {"validate": WebhookType.VALIDATING, "mutate": WebhookType.MUTATING}[name]
    assert (handler.id, handler.operations, handler.subresource) == ("fn", frozenset(), None)
    assert handler.review_timeout == 30
    assert (handler.persistent, handler.side_effects, handler.ignore_failures) == (None, False, False)
    assert str(handler) == "Webhook 'fn'"


def test_all_options_reach_the_handler() -> None:
    handler = decorate(
        "mutate",
        id="my-id",
        operations=["CREATE", "UPDATE"],
        subresource="status",
        persistent=True,
        side_effects=True,
        ignore_failures=True,
        timeout=5,
        namespace_selector={"matchLabels": {"a": "b"}},
        match_conditions={"small": "object.spec.size < 5"},
        match_policy="Exact",
        reinvocation_policy="IfNeeded",
        labels={"x": "y"},
        field="spec.size",
    )
    assert (handler.id, handler.field, handler.labels) == ("my-id/spec.size", ("spec", "size"), {"x": "y"})
    assert handler.operations == {"CREATE", "UPDATE"}
    assert (handler.subresource, handler.review_timeout) == ("status", 5)
    assert (handler.persistent, handler.side_effects, handler.ignore_failures) == (True, True, True)
    assert handler.namespace_selector == {"matchLabels": {"a": "b"}}
    assert handler.match_conditions == {"small": "object.spec.size < 5"}
    assert (handler.match_policy, handler.reinvocation_policy) == ("Exact", "IfNeeded")


@pytest.mark.parametrize(
    ("options", "operations"),
    [
        ({"operation": "DELETE"}, {"DELETE"}),
        ({"operations": "DELETE"}, {"DELETE"}),
        ({"operation": "*"}, set()),
        ({"operations": None, "operation": None}, set()),
        ({"operations": []}, set()),
    ],
)
def test_one_operation_or_several_can_be_named(options: dict[str, Any], operations: set[str]) -> None:
    assert decorate("validate", **options).operations == operations


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operation": "PATCH"}, "the operation 'PATCH': known ones are CONNECT, CREATE, DELETE, UPDATE"),
        ({"operation": "CREATE", "operations": ["CREATE"]}, "use one or the other"),
        ({"subresource": 5}, "must be a string such as 'status'"),
        ({"persistent": "yes"}, "must be True or False"),
        ({"timeout": 31}, "from 1 to 30"),
        ({"timeout": 0.5}, "from 1 to 30"),
        ({"namespace_selector": "x"}, "must be a mapping"),
        ({"match_conditions": ["x"]}, "must be a mapping"),
        ({"match_policy": "Some"}, "'Equivalent' or 'Exact'"),
        ({"reinvocation_policy": "Always"}, "'Never' or 'IfNeeded'"),
    ],
)
def test_a_wrong_option_is_rejected_by_the_decorator(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        decorate("mutate", **options)


@pytest.mark.parametrize("option", ["errors", "retries", "backoff"])
def test_there_are_no_options_for_retries(option: str) -> None:
    with pytest.raises(TypeError, match=f"on.validate has no option {option}"):
        decorate("validate", **{option: None})


def test_only_mutating_handlers_are_reinvoked() -> None:
    with pytest.raises(TypeError, match="no option reinvocation_policy"):
        decorate("validate", reinvocation_policy="IfNeeded")


def convert(*selector: Any, **options: Any) -> ConversionHandler:
    registry = OperatorRegistry()
    assert on.convert(*selector, registry=registry, **options)(fn) is fn
    (handler,) = registry.conversion_handlers()
    assert (registry.resource_handlers(), registry.admission_handlers()) == ((), ())
    assert registry.webhook_handlers() == (handler,)
    return handler


def test_conversions_have_a_selector_and_two_versions() -> None:
    handler = convert("example.com", "widgets", from_="v1", to="v2", id="my-id", param=5)
    assert (handler.from_version, handler.to_version, handler.id, handler.param) == ("v1", "v2", "my-id", 5)
    assert (str(handler.selector), str(handler)) == ("example.com/widgets", "Conversion 'my-id'")


def test_conversions_of_a_kind_that_a_class_declares_are_for_all_versions() -> None:
    class Widget:
        pass

    info = KindInfo(group="example.com", version="v1", kind="Widget", plural="widgets", singular="widget")
    set_kind(Widget, info)
    handler = convert(Widget, from_="v1", to="v2")
    assert str(handler.selector) == "example.com/widgets"
    assert (handler.selector.version, handler.model) == (None, Widget)


@pytest.mark.parametrize(
    ("selector", "options", "error", "match"),
    [
        (("widgets",), {"to": "v2"}, TypeError, "on.convert has from_=None: it must be a version such as 'v1'"),
        (("widgets",), {"from_": "v1", "to": 2}, TypeError, "on.convert has to=2: it must be a version"),
        (("widgets",), {"from_": "example.com/v1", "to": "v2"}, TypeError, "from_='example.com/v1'"),
        (("widgets",), {"from_": "v1", "to": "v1"}, ValueError, "has the version 'v1' in both"),
        (("example.com", "v1", "widgets"), {"from_": "v1", "to": "v2"}, TypeError, "selects the version 'v1'"),
        (("widgets",), {"from_": "v1", "to": "v2", "labels": {}}, TypeError, "on.convert has no option labels"),
        ((), {"from_": "v1", "to": "v2"}, TypeError, "exactly one name"),
    ],
)
def test_invalid_options_of_conversions_are_rejected(
    selector: Any, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        convert(*selector, **options)


def test_two_conversions_between_the_same_versions_are_rejected() -> None:
    registry = OperatorRegistry()
    for name in ("one", "two"):
        on.convert("widgets", from_="v1", to="v2", id=name, registry=registry)(fn)
    on.convert("widgets", from_="v2", to="v1", registry=registry)(fn)
    with pytest.raises(ConfigError) as caught:
        registry.check()
    expected = "Conversion 'one' and Conversion 'two' both convert widgets from v1 to v2: one of them is too many."
    assert str(caught.value) == expected


def test_conversions_must_not_require_unknown_arguments() -> None:
    registry = OperatorRegistry()
    on.convert("widgets", from_="v1", to="v2", registry=registry)(lambda diff: None)
    with pytest.raises(ConfigError, match="requires arguments that do not exist: diff"):
        registry.check()
