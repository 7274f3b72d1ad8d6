"""Tests for :mod:`trioperator._tooling.checking.selectors`: what is received of a kind, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

import trioperator
from trioperator._tooling.checking import list_selectors

on = trioperator.on
GOLD = {"tier": "gold"}


def fn(**_: Any) -> None: ...


def few(name: str) -> None: ...


@pytest.fixture
def registry() -> trioperator.OperatorRegistry:
    made = trioperator.OperatorRegistry()
    on.create("widgets", labels=GOLD, registry=made)(fn)
    on.index("example.com", "v1", "widgets", labels={"tier": "silver"}, registry=made)(fn)
    on.event("pods", registry=made)(fn)
    return made


def test_what_all_handlers_of_a_kind_require_is_received(registry: trioperator.OperatorRegistry) -> None:
    text = "tier in (gold,silver)"
    assert list_selectors(registry) == {"widgets": text, "example.com/v1/widgets": text}


@pytest.mark.parametrize("selector", [("Widget",), ("example.com", "widgets"), (trioperator.EVERYTHING,)])
def test_a_handler_that_may_be_for_the_same_kind_counts(
    registry: trioperator.OperatorRegistry, selector: tuple[Any, ...]
) -> None:
    on.event(*selector, registry=registry)(fn)
    assert list_selectors(registry) == {}


def test_handlers_of_other_kinds_do_not_count(registry: trioperator.OperatorRegistry) -> None:
    on.event("other.example.com", "widgets", registry=registry)(fn)
    assert list(list_selectors(registry)) == ["example.com/v1/widgets"]


@pytest.mark.parametrize("options", [{"owns": ["widgets"]}, {"watches": {"widgets": few}}])
def test_reconcile_handlers_of_others_count(registry: trioperator.OperatorRegistry, options: dict[str, Any]) -> None:
    on.reconcile("gadgets", registry=registry, **options)(fn)
    assert list_selectors(registry) == {}


def test_webhooks_that_may_look_up_memos_count(registry: trioperator.OperatorRegistry) -> None:
    def look(**kwargs: Any) -> None:
        kwargs["memo"].seen = True

    on.validate("widgets", id="few", registry=registry)(few)
    on.validate("widgets", id="unused", registry=registry)(fn)
    assert list_selectors(registry)
    on.validate("widgets", id="all", registry=registry)(look)
    assert list_selectors(registry) == {}


def test_settings_switch_it_off(registry: trioperator.OperatorRegistry) -> None:
    settings = trioperator.OperatorSettings()
    settings.watching.infer_selectors = False
    assert list_selectors(registry, settings) == {}
