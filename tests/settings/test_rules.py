"""Tests for :mod:`trioperator.settings.rules`: which values a rule accepts, and what a section does with the others."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import math
from typing import Any, ClassVar

import pytest

import trioperator
from trioperator.errors import ConfigError
from trioperator.settings import rules
from trioperator.settings.rules import Rule, Section, section, setting


@pytest.mark.parametrize(
    ("rule", "accepted", "rejected"),
    [
        (rules.BOOLEAN, [True, False], [0, 1, None, "yes"]),
        (rules.TEXT, ["x"], ["", None, b"x", 1]),
        (rules.INTEGER, [0, -1, 5], [True, 1.0, "1", None]),
        (rules.COUNT, [1, 5], [0, -1, True, 1.0, None]),
        (rules.SECONDS, [0, 1.5, math.inf], [-1, True, math.nan, "1", None]),
        (rules.TIMEOUT, [0.1, 5, math.inf], [0, -1, False, math.nan, None]),
        (
            rules.DELAYS,
            [0, 1.5, [], [1, 2.5], (0,), range(3), {1, 2}],
            [-1, [1, -1], [1, "2"], "12", b"12", {1: 2}, iter([1]), itertools.count(), None],
        ),
        (
            rules.FINALIZER,
            ["example.com/finalizer", "x", "my-operator.example.com/A_b.c"],
            ["", "/x", "x/", "a/b/c", "Example.com/x", "x" * 64, "example.com/-x", None],
        ),
        (rules.EXECUTOR, [concurrent.futures.ThreadPoolExecutor(3)], [3, None, object()]),
        (
            rules.PROGRESS_STORAGE,
            [trioperator.AnnotationsProgressStorage(), trioperator.StatusProgressStorage()],
            [trioperator.AnnotationsProgressStorage, trioperator.AnnotationsDiffBaseStorage(), None, "annotations"],
        ),
        (
            rules.DIFFBASE_STORAGE,
            [trioperator.AnnotationsDiffBaseStorage()],
            [trioperator.AnnotationsDiffBaseStorage, trioperator.AnnotationsProgressStorage(), None],
        ),
        (rules.WEBHOOK_SERVER, [trioperator.WebhookServer(), print], [None, trioperator.WebhookServer, 5]),
    ],
    ids=lambda value: value.expected[:25] if isinstance(value, Rule) else "",
)
def test_a_rule_accepts_its_values_only(rule: Rule, accepted: list[Any], rejected: list[Any]) -> None:
    assert [value for value in accepted if not rule.accepts(value)] == []
    assert [value for value in rejected if rule.accepts(value)] == []
    assert all(rule.or_none().accepts(value) for value in [None, *accepted])
    assert not any(rule.or_none().accepts(value) for value in rejected if value is not None)


def test_a_single_delay_becomes_a_tuple_and_others_stay_as_they_are() -> None:
    assert rules.DELAYS.convert is not None
    assert rules.DELAYS.convert(5) == (5,)
    delays = [1, 2]
    assert rules.DELAYS.convert(delays) is delays


def test_a_rule_that_accepts_none_says_so() -> None:
    assert rules.SECONDS.or_none().expected == "a number of seconds, 0 or more, or None"


DELAYS_OR_NONE = rules.DELAYS.or_none()


@section
class Example(Section):
    """A section of settings."""

    _path: ClassVar[str] = "settings.example"
    count: int = setting(1, rules.COUNT)
    delays: tuple[float, ...] | None = setting((1,), DELAYS_OR_NONE)

    @property
    def double(self) -> int:
        return self.count * 2

    @double.setter
    def double(self, value: int) -> None:
        self.count = value // 2


def test_values_are_checked_and_converted_on_assignment() -> None:
    example = Example()
    example.count, example.delays = 5, 7  # type: ignore[assignment]
    assert (example.count, example.delays) == (5, (7,))
    example.delays = None
    assert example.delays is None
    example.double = 6
    assert example.count == 3


def test_an_invalid_value_is_rejected_and_the_old_one_kept() -> None:
    example = Example()
    with pytest.raises(ConfigError) as caught:
        example.count = 0
    assert str(caught.value) == "settings.example.count is 0, but it must be a whole number, 1 or more."
    assert example.count == 1
    with pytest.raises(ConfigError):
        Example(count=-1)


def test_a_long_value_is_shortened() -> None:
    with pytest.raises(ConfigError) as caught:
        Example().count = "x" * 1000  # type: ignore[assignment]
    assert len(str(caught.value)) < 250
    assert "xxx…" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("cuont", "did you mean 'count'?"), ("zzz", "available are count, delays, double.")],
)
def test_an_unknown_name_is_rejected_with_a_hint(name: str, hint: str) -> None:
    example = Example()
    with pytest.raises(AttributeError) as caught:
        setattr(example, name, 5)
    assert str(caught.value) == f"There is no setting settings.example.{name}: {hint}"
    with pytest.raises(AttributeError, match=f"There is no setting settings.example.{name}"):
        getattr(example, name)
    with pytest.raises(AttributeError, match=f"There is no setting settings.example.{name}"):
        Example(**{name: 5})  # type: ignore[arg-type]


def test_sections_of_the_same_class_are_compared_by_their_settings() -> None:
    assert Example() == Example(count=1, delays=(1,)) != Example(count=2)
    assert Example() != trioperator.OperatorSettings()
    assert dataclasses.replace(Example(count=2), delays=None) == Example(count=2, delays=None)
    assert repr(Example(count=2)) == "Example(count=2, delays=(1,))"
