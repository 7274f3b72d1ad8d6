"""Tests for :mod:`trioperator._tooling.checking.assigned_settings`: which settings sources assign."""

from __future__ import annotations

import pytest

from trioperator._tooling.checking import Source, find_assignments


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("settings.leadership.enabled = True", [1]),
        ("\nleadership.enabled: bool = True", [2]),
        ("settings.leadership = mine", [1]),
        ("a = settings.leadership.enabled = choose()", [1]),
        ("settings.leadership.enabled = False", []),
        ("settings.leadership.enabled = None", []),
        ("settings.leadership.enabled: bool", []),
        ("settings.leadership.name = 'x'", []),
        ("other.enabled = True", []),
        ("print(settings.leadership.enabled)", []),
    ],
)
def test_what_switches_a_setting_on_is_found(text: str, lines: list[int]) -> None:
    assert list(find_assignments(Source.parse("m", "m.py", text), "leadership", "enabled")) == lines
