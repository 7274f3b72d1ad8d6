"""The parts of a registry by Kopf's names."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import trioperator as kopf
from trioperator._handling.declaring.parts import PARTS


def make_registry() -> Any:
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    @kopf.on.create("example.com", "v1", "things", registry=registry)
    @kopf.on.resume("example.com", "v1", "things", registry=registry)
    @kopf.on.event("pods", registry=registry)
    @kopf.timer("jobs", interval=1, registry=registry)
    @kopf.index("nodes", registry=registry)
    def fn(**_: Any) -> None:
        pass

    @kopf.on.validate("things", registry=registry)
    def check(**_: Any) -> None:
        pass

    return registry


def test_handlers_are_counted_by_kopf_s_names() -> None:
    registry = make_registry()
    counts = {name: len(getattr(registry, name)._handlers) for name in PARTS}
    expected = {"_activities": 1, "_indexing": 1, "_watching": 1, "_spawning": 1, "_changing": 2, "_webhooks": 1}
    assert counts == expected


def test_tests_of_operators_find_what_is_declared() -> None:
    handlers = make_registry()._changing.get_all_handlers()
    found = {(h.selector.group, h.selector.version, h.selector.any_name) for h in handlers}
    assert found == {("example.com", "v1", "things")}
    assert {h.fn.__name__ for h in handlers} == {"fn"}
    assert [h.initial for h in handlers].count(True) == 1
    assert {str(selector) for selector in make_registry()._spawning.get_all_selectors()} == {"jobs"}
    assert make_registry()._activities.get_all_selectors() == frozenset()


def test_a_part_is_read_only_and_other_names_are_unknown() -> None:
    registry = make_registry()
    registry._changing.get_all_handlers().clear()
    assert len(registry._changing.get_all_handlers()) == 2
    with pytest.raises(AttributeError, match="OperatorRegistry has no attribute '_others'"):
        _ = registry._others
    assert len(list(copy.copy(registry))) == len(list(registry))
