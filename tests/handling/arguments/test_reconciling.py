"""Tests for :mod:`trioperator._handling.arguments.reconciling`.

And for what the decorator and the registry make of handlers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import trioperator
from trioperator._handling.arguments.reconciling import ReconcileHandler
from trioperator._handling.declaring.registry import KindHandlers


def declare(registry: trioperator.OperatorRegistry, **options: Any) -> ReconcileHandler:
    @trioperator.on.reconcile("widgets", registry=registry, **options)
    def reconcile(name: str, children: Any) -> Iterator[Any]:
        yield name, children

    (handler,) = registry
    assert isinstance(handler, ReconcileHandler)
    return handler


def test_a_handler_has_what_its_decorator_says() -> None:
    handler = declare(trioperator.OperatorRegistry(), owns=["pods"], watches={"secrets": lambda name: name}, resync=60)
    assert str(handler.selector) == "widgets"
    assert [str(owned) for owned in handler.owns] == ["pods"]
    assert [str(mapper.selector) for mapper in handler.mappers] == ["secrets"]
    assert handler.resync == 60
    assert handler.id.endswith("reconcile")


def test_handlers_of_a_kind_keep_its_objects() -> None:
    handlers = KindHandlers.of([declare(trioperator.OperatorRegistry())])
    assert handlers
    assert handlers.keep_objects
    assert not handlers.needs_own_writes


@pytest.mark.parametrize("resync", [0, -1, "3", float("inf"), True])
def test_the_resync_is_checked(resync: Any) -> None:
    with pytest.raises(ValueError, match="resync"):
        declare(trioperator.OperatorRegistry(), resync=resync)


def test_unknown_arguments_of_the_function_and_of_its_mappers_are_found_before_anything_starts() -> None:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.reconcile("widgets", watches={"secrets": lambda nam: nam}, registry=registry)
    async def reconcile(childs: Any) -> None: ...

    with pytest.raises(trioperator.ConfigError) as caught:
        registry.check()
    assert "childs (did you mean children?)" in str(caught.value)
    assert "watches= of Handler" in str(caught.value)
    assert "nam (did you mean name?)" in str(caught.value)


def test_children_are_no_argument_of_filters() -> None:
    registry = trioperator.OperatorRegistry()
    declare(registry, when=lambda children: bool(children))
    with pytest.raises(trioperator.ConfigError, match="children"):
        registry.check()


def test_a_function_that_is_declared_twice_is_called_once_for_an_object() -> None:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.reconcile("widgets", registry=registry)
    @trioperator.on.reconcile("toys", registry=registry)
    async def reconcile() -> None: ...

    one, other = registry
    assert one.fn is other.fn
