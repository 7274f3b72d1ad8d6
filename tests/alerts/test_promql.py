"""The evaluator of alerting rules: numbers that Prometheus has for the same samples, and what it rejects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import promql_parser
import pytest

from tests.alerts.promql import Evaluator, Series


def record(name: str, values: Sequence[float | None], *, step: float = 300, **labels: str) -> Series:
    """Return a series with a sample at each step; it is stale where there is none after one."""
    series = Series(frozenset({"__name__": name, **labels}.items()))
    for number, value in enumerate(values):
        if value is not None:
            series.add(number * step, value)
        elif number and values[number - 1] is not None:
            series.end(number * step)
    return series


def evaluate(expression: str, *series: Series, at: float) -> Any:
    """Return a scalar, or the values by their labels, as people write them."""
    found = Evaluator(series, began=1000).compile(promql_parser.parse(expression))(at)
    if isinstance(found, float):
        return found
    return {",".join(sorted(f"{name}={value}" for name, value in labels)): value for labels, value in found.items()}


RISING = [10.0 * number for number in range(11)]


@pytest.mark.parametrize(
    ("expression", "values", "expected"),
    [
        ("increase(x[50m])", RISING, 100),
        ("rate(x[50m])", RISING, 100 / 3000),
        ("increase(x[50m])", [0, 10, 20, 30, 40, 50, 0, 10, 20, 30, 40], 80 * 3000 / 2700),  # was reset
        ("increase(x[50m])", [100 + value for value in RISING], 100),
        ("changes(x[50m])", [9, 1, 2, 3, 0, 1, 0, 0, 1, 2, 0], 8),
        ("changes(x[50m])", [7] * 11, 0),
        ("x", RISING, 100),
        ("x - 1 + 3 * 2", RISING, 105),
        ("(x - time()) / x", RISING, -39),
    ],
)
def test_numbers_are_those_of_prometheus(expression: str, values: list[float], expected: float) -> None:
    [found] = evaluate(expression, record("x", values), at=3000).values()
    assert found == pytest.approx(expected)


def test_a_rate_needs_two_samples_and_is_extrapolated_by_half_a_step_into_what_is_missing() -> None:
    series = record("x", [None, None, None, 100, 110, 120], step=60)
    assert evaluate("increase(x[1m])", series, at=300) == {}
    assert evaluate("increase(x[5m])", series, at=300)[""] == pytest.approx(20 * 150 / 120)


def test_a_series_that_is_stale_or_old_has_no_value() -> None:
    series = record("x", [1, 2, None, None, 3], step=60)
    values = [evaluate("x", series, at=at).get("__name__=x") for at in (60, 119, 120, 239, 240, 539, 540)]
    assert values == [2, 2, None, None, 3, 3, None]
    assert evaluate("absent(x)", series, at=120) == {"": 1}
    assert evaluate("absent(x == 3)", series, at=240) == {}


def test_vectors_are_matched_by_their_labels() -> None:
    series = [
        record("x", [6], a="1", b="1"),
        record("x", [8], a="2", b="1"),
        record("y", [2], a="1", b="1"),
        record("z", [0], a="2", c="7"),
    ]
    assert evaluate("x / y", *series, at=0) == {"a=1,b=1": 3}
    assert evaluate("x > 6", *series, at=0) == {"__name__=x,a=2,b=1": 8}
    assert evaluate("x unless on (a) z", *series, at=0) == {"__name__=x,a=1,b=1": 6}
    assert evaluate("x and on (a) z", *series, at=0) == {"__name__=x,a=2,b=1": 8}
    assert evaluate("sum by (b) (x)", *series, at=0) == {"b=1": 14}
    assert evaluate("max(x)", *series, at=0) == {"": 8}
    assert evaluate('x{a!="1"} > missing', *series, at=0) == {}
    assert evaluate('x{a=~"1|3"}', *series, at=0) == {"__name__=x,a=1,b=1": 6}
    assert str(evaluate("sum(z) / sum(z)", *series, at=0)) == "{'': nan}"
    with pytest.raises(ValueError, match="many-to-many"):
        evaluate("x / on (b) y", *series, at=0)


@pytest.mark.parametrize(
    "expression", ["avg(x)", "deriv(x[5m])", "x offset 5m", "x or y", "sum without (a) (x)", "x == bool 1", "-x"]
)
def test_what_is_not_known_is_an_error(expression: str) -> None:
    with pytest.raises(NotImplementedError):
        evaluate(expression, record("x", [1]), record("y", [1]), at=0)


@pytest.mark.parametrize(
    ("values", "until", "fires"),
    [
        ([1] * 20, 300, True),
        ([1] * 20, 270, False),
        ([1] * 5 + [0] + [1] * 20, 420, False),  # the time begins again
        ([1] * 5 + [0] + [1] * 20, 480, True),
    ],
)
def test_an_alert_fires_when_its_condition_has_held_for_long_enough(
    values: list[float], until: float, fires: bool
) -> None:
    rules: list[Mapping[str, Any]] = [{"alert": "Wrong", "expr": "x == 1", "for": "5m"}]
    evaluator = Evaluator([record("x", values, step=30)], began=0)
    assert list(evaluator.find_firing(rules, step=30, until=until)) == (["Wrong"] if fires else [])


def test_each_set_of_labels_holds_on_its_own() -> None:
    rules = [{"alert": "Wrong", "expr": "x == 1", "for": "5m"}]
    series = [record("x", [1, 0] * 10, step=30, a="1"), record("x", [0, 1] * 10, step=30, a="2")]
    assert list(Evaluator(series, began=0).find_firing(rules, step=30, until=570)) == []
