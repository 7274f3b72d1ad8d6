"""Tests for :mod:`trioperator._model.conditions`."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator._model.conditions import describe_condition, is_met


def with_conditions(*conditions: Any, **status: Any) -> dict[str, Any]:
    return {"metadata": {"generation": 2}, "status": {"conditions": list(conditions), **status}}


READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("condition", "obj", "met"),
    [
        ("Ready", with_conditions(READY), True),
        ("Ready=True", with_conditions(READY), True),
        ("Ready=False", with_conditions(READY), False),
        ("Ready=False", with_conditions({"type": "Ready", "status": "False"}), True),
        ("Ready", with_conditions({"type": "Ready", "status": "Unknown"}), False),
        ("Ready", with_conditions({"type": "Other", "status": "True"}, "nonsense", READY), True),
        ("Ready", with_conditions({**READY, "observedGeneration": 1}), False),
        ("Ready", with_conditions({**READY, "observedGeneration": 2}), True),
        ("Ready", with_conditions(READY, observedGeneration=1), False),
        ("Ready", with_conditions(READY, observedGeneration=2), True),
        ("Ready", with_conditions(), False),
        ("Ready", {"status": None}, False),
        ("Ready", {}, False),
        (lambda obj: obj.get("x"), {"x": 1}, True),
        (lambda obj: obj.get("x"), {}, False),
    ],
)
def test_a_condition_is_met_by_the_newest_generation(condition: Any, obj: dict[str, Any], met: bool) -> None:
    assert is_met(condition, obj) is met


def test_conditions_have_names() -> None:
    assert describe_condition("Ready") == "Ready"
    assert describe_condition(with_conditions) == "with_conditions"
