"""Alerting rules over recorded samples, as Prometheus evaluates them: as much of PromQL as the rules of operators need.

Anything else raises NotImplementedError, rather than being something else than in Prometheus. Where promtool is
installed, it has to agree.
"""

from __future__ import annotations

import bisect
import collections
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import promql_parser as promql

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]
Expression: TypeAlias = Callable[[float], Vector | float]

# Seconds for which a sample counts without a newer one.
_LOOKBACK: Final = 300.0
_FILTERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda one, other: one / other if other else math.nan if not one or math.isnan(one) else math.inf * one,
}
_AGGREGATIONS: Final[Mapping[str, Callable[[Iterable[float]], float]]] = {
    "sum": math.fsum,
    "max": max,
    "min": min,
}


class Series:
    """The samples of a series, in order of time, and when it became stale."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.times: list[float] = []
        self.values: list[float] = []
        self._gained = [0.0]  # by a counter until a sample
        self._changed = [0]  # how often the value has changed until a sample
        self.ends: list[float] = []

    def add(self, time: float, value: float) -> None:
        """Add a sample."""
        if self.values:
            last = self.values[-1]
            self._gained.append(self._gained[-1] + (value - last if value >= last else value))
            self._changed.append(self._changed[-1] + (value != last))
        self.times.append(time)
        self.values.append(value)

    def end(self, time: float) -> None:
        """Mark the series as stale, as it was not scraped."""
        self.ends.append(time)

    def at(self, time: float) -> float | None:
        """Return the value at a time, if there is one."""
        index = bisect.bisect_right(self.times, time) - 1
        if index < 0 or self.times[index] <= time - _LOOKBACK:
            return None
        stale = bisect.bisect_right(self.ends, time) - 1
        return None if stale >= 0 and self.ends[stale] > self.times[index] else self.values[index]

    def _span(self, time: float, seconds: float) -> tuple[int, int]:
        """Return the indices of the first and the last sample of a range; the last is smaller if there is none."""
        return bisect.bisect_right(self.times, time - seconds), bisect.bisect_right(self.times, time) - 1

    def changes(self, time: float, seconds: float) -> float | None:
        """Return how often the value has changed in a range."""
        first, last = self._span(time, seconds)
        return None if last < first else self._changed[last] - self._changed[first]

    def increase(self, time: float, seconds: float) -> float | None:
        """Return how much a counter has gained in a range, extrapolated to its ends."""
        first, last = self._span(time, seconds)
        if last <= first:
            return None
        gained, sampled = self._gained[last] - self._gained[first], self.times[last] - self.times[first]
        mean = sampled / (last - first)
        before, after = self.times[first] - (time - seconds), time - self.times[last]
        before = mean / 2 if before >= mean * 1.1 else before
        if gained > 0 and self.values[first] >= 0:
            before = min(before, sampled * self.values[first] / gained)  # it was not negative
        after = mean / 2 if after >= mean * 1.1 else after
        return gained * (sampled + before + after) / sampled

    def rate(self, time: float, seconds: float) -> float | None:
        """Return how much a counter has gained per second."""
        gained = self.increase(time, seconds)
        return None if gained is None else gained / seconds


class Evaluator:
    """Evaluates rules over series. *began* is the Unix time of the time zero of their samples."""

    def __init__(self, series: Collection[Series], *, began: float) -> None:
        self._series = series
        self._began = began

    def find_firing(self, rules: Sequence[Mapping[str, Any]], *, step: float, until: float) -> Iterator[str]:
        """Yield the names of the alerts that have fired until a time."""
        for rule in rules:
            expression, lasting = self.compile(promql.parse(rule["expr"])), parse_duration(rule["for"])
            active: dict[Labels, float] = {}
            for number in range(int(until // step) + 1):
                found = expression(number * step)
                if not isinstance(found, dict):
                    raise TypeError(f"{rule['expr']} is no vector")
                active = {labels: active.get(labels, number * step) for labels in found}
                if any(number * step - since >= lasting for since in active.values()):
                    yield rule["alert"]
                    break

    def compile(self, node: Any) -> Expression:
        """Return a function that evaluates an expression at a time."""
        match node:
            case promql.ParenExpr():
                return self.compile(node.expr)
            case promql.NumberLiteral():
                number: float = node.val
                return lambda _: number
            case promql.VectorSelector():
                return self._select(node)
            case promql.AggregateExpr():
                return self._aggregate(node)
            case promql.Call():
                return self._call(node)
            case promql.BinaryExpr():
                return self._combine(node)
        raise NotImplementedError(str(node))

    def _find(self, node: Any) -> list[Series]:
        matchers = list(node.matchers.matchers)
        if node.offset is not None or node.at is not None or node.matchers.or_matchers:
            raise NotImplementedError(str(node))
        return [
            each
            for each in self._series
            if dict(each.labels)["__name__"] == node.name
            and all(_matches(matcher, dict(each.labels).get(matcher.name, "")) for matcher in matchers)
        ]

    def _select(self, node: Any) -> Expression:
        found = self._find(node)
        return lambda time: {each.labels: value for each in found if (value := each.at(time)) is not None}

    def _call(self, node: Any) -> Expression:
        name = node.func.name
        if name == "time":
            return lambda time: float(self._began + time)
        if name == "absent":
            argument = self.compile(node.args[0])
            return lambda time: {} if argument(time) else {frozenset(): 1.0}
        compute = {"rate": Series.rate, "increase": Series.increase, "changes": Series.changes}.get(name)
        if compute is None:
            raise NotImplementedError(name)
        [over] = node.args
        found = [(each, _without_name(each.labels)) for each in self._find(over.vector_selector)]
        seconds = over.range.total_seconds()
        return lambda time: {
            labels: value for each, labels in found if (value := compute(each, time, seconds)) is not None
        }

    def _aggregate(self, node: Any) -> Expression:
        argument, compute, by = self.compile(node.expr), _AGGREGATIONS.get(str(node.op)), node.modifier
        if compute is None or (by is not None and by.type != promql.AggModifierType.By):
            raise NotImplementedError(str(node))
        names = frozenset(() if by is None else by.labels)

        def aggregate(time: float) -> Vector:
            groups: collections.defaultdict[Labels, list[float]] = collections.defaultdict(list)
            for labels, value in _vector(argument(time)).items():
                groups[_only(labels, names)].append(value)
            return {labels: compute(values) for labels, values in groups.items()}

        return aggregate

    def _combine(self, node: Any) -> Expression:
        one, other, op = self.compile(node.lhs), self.compile(node.rhs), str(node.op)
        on = None if node.modifier is None else node.modifier.matching
        is_known = op in _FILTERS or op in _ARITHMETIC or op in ("and", "unless")
        is_grouped = node.modifier is not None and (node.modifier.return_bool or node.modifier.group_labels)
        if not is_known or is_grouped or (on is not None and on.type != promql.LabelModifierType.Include):
            raise NotImplementedError(str(node))
        names = None if on is None else frozenset(on.labels)

        def combine(time: float) -> Vector | float:
            left, right = one(time), other(time)
            if op in ("and", "unless"):
                keys = {_key(labels, names) for labels in _vector(right)}
                return {k: v for k, v in _vector(left).items() if (_key(k, names) in keys) == (op == "and")}
            return _compute(op, left, right, names)

        return combine


def _compute(op: str, left: Vector | float, right: Vector | float, names: frozenset[str] | None) -> Vector | float:
    """Compare or calculate. Of compared vectors, the elements of the left side are left for which it is true."""
    if isinstance(left, float) and isinstance(right, float):
        return _ARITHMETIC[op](left, right)
    pairs = list(_pair(left, right, names))
    if op in _FILTERS:
        return {labels: old for labels, old, one, other in pairs if _FILTERS[op](one, other)}
    return {_without_name(labels): _ARITHMETIC[op](one, other) for labels, _, one, other in pairs}


def _pair(
    left: Vector | float, right: Vector | float, names: frozenset[str] | None
) -> Iterator[tuple[Labels, float, float, float]]:
    """Yield labels, the value that a comparison keeps, and both operands."""
    if isinstance(right, float):
        yield from ((labels, value, value, right) for labels, value in _vector(left).items())
    elif isinstance(left, float):
        yield from ((labels, value, left, value) for labels, value in right.items())
    else:
        others = {_key(labels, names): value for labels, value in right.items()}
        if len(others) != len(right) or len({_key(labels, names) for labels in left}) != len(left):
            raise ValueError("many-to-many matching")
        for labels, value in left.items():
            if (key := _key(labels, names)) in others:
                yield labels, value, value, others[key]


def _vector(found: Vector | float) -> Vector:
    if isinstance(found, float):
        raise TypeError("a scalar where a vector is needed")
    return found


def _only(labels: Labels, names: frozenset[str]) -> Labels:
    return frozenset(pair for pair in labels if pair[0] in names)


def _without_name(labels: Labels) -> Labels:
    return frozenset(pair for pair in labels if pair[0] != "__name__")


def _key(labels: Labels, names: frozenset[str] | None) -> Labels:
    return _without_name(labels) if names is None else _only(labels, names)


def _matches(matcher: Any, value: str) -> bool:
    match matcher.op:
        case promql.MatchOp.Equal:
            return bool(value == matcher.value)
        case promql.MatchOp.NotEqual:
            return bool(value != matcher.value)
        case promql.MatchOp.Re:
            return re.fullmatch(matcher.value, value) is not None
    return re.fullmatch(matcher.value, value) is None


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as ``5m``."""
    return float(promql.parse_duration(text).total_seconds())
