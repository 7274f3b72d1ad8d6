"""Tests for :mod:`trioperator._model.exception_groups`."""

from __future__ import annotations

from trioperator._model.exception_groups import iterate_leaves, unwrap_group

ONE, TWO = ValueError("one"), KeyboardInterrupt()


def test_the_only_error_in_groups_is_unwrapped() -> None:
    assert unwrap_group(ONE) is ONE
    assert unwrap_group(ExceptionGroup("", [ExceptionGroup("", [ONE])])) is ONE


def test_a_group_of_several_errors_stays_a_group() -> None:
    several = BaseExceptionGroup("", [ONE, TWO])
    assert unwrap_group(BaseExceptionGroup("", [several])) is several


def test_leaves_are_the_errors_at_any_depth() -> None:
    assert list(iterate_leaves(ONE)) == [ONE]
    assert list(iterate_leaves(BaseExceptionGroup("", [BaseExceptionGroup("", [ONE]), TWO]))) == [ONE, TWO]
