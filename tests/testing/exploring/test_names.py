"""Tests for :mod:`trioperator.testing.exploring.names`: what names of fields say, and what users add."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.testing.exploring.names import find_strategy, register, unregister_all


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    unregister_all()


@pytest.mark.parametrize(
    ("name", "type"),
    [("replicas", "integer"), ("image", "string"), ("schedule", "string"), ("storage", "string"), ("labels", "object")],
)
def test_well_known_names_have_values_of_their_own(name: str, type: str) -> None:
    assert find_strategy(name, {"type": type}) is not None
    assert find_strategy(name, {"type": "boolean"}) is None


def test_other_names_say_nothing() -> None:
    assert find_strategy("flavor", {"type": "string"}) is None
    assert find_strategy("", {"type": "string"}) is None


def test_values_that_do_not_fit_are_left_out() -> None:
    assert find_strategy("replicas", {"type": "integer"}, fits=lambda value: value > 1000) is None


def test_what_is_registered_last_wins() -> None:
    register("flavor", st.just("small"))
    register("FLAVOR", st.just("large"), type="string")
    strategy = find_strategy("flavor", {"type": "string"})
    assert strategy is not None

    @given(strategy)
    def check(value: str) -> None:
        assert value == "large"

    check()
    assert find_strategy("flavors", {"type": "string"}) is None
