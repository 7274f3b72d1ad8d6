"""Tests for :mod:`trioperator.testing.strategies`: what is public."""

from __future__ import annotations

from trioperator.testing import strategies


def test_users_find_what_they_need() -> None:
    assert sorted(strategies.__all__) == ["from_examples", "from_schema", "register"]
    assert all(getattr(strategies, name).__doc__ for name in strategies.__all__)
