"""The limits on nesting and paths."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.model.nesting import (
    BODY_DEPTH_LIMIT,
    DEPTH_LIMIT,
    LONG_PATHS,
    TOO_MANY_VALUES,
    VALUES_LIMIT,
    depth_of,
    is_too_deep,
    size_problem,
)


def nested(levels: int) -> Any:
    value: Any = 1
    for at in range(levels):
        value = [value] if at % 2 else {"a": value}
    return value


def test_the_depth_counts_lists_and_objects() -> None:
    assert [depth_of(value) for value in (1, "x", [], {}, [1, [2]], {"a": {"b": []}, "c": 1})] == [0, 0, 1, 1, 2, 3]


def test_the_depth_is_counted_up_to_the_limit_only() -> None:
    assert not is_too_deep(nested(DEPTH_LIMIT))
    assert is_too_deep(nested(DEPTH_LIMIT + 1))
    assert depth_of(nested(100_000)) == BODY_DEPTH_LIMIT + 1
    cycle: list[Any] = []
    cycle.append(cycle)
    assert is_too_deep(cycle)


def test_the_paths_of_all_fields_and_items_are_limited() -> None:
    key, fields = "k" * 100_000, {f"f{at}": at for at in range(1000)}
    assert size_problem({key: {}, **fields}) == ""
    assert size_problem({key: fields}) == LONG_PATHS
    assert size_problem([{key: [[0] * 1000]}]) == LONG_PATHS
    assert size_problem({key: {key: {key: {str(at): [1] for at in range(100)}}}}) == LONG_PATHS
    assert size_problem({"data": {f"key-{at}": "x" for at in range(20_000)}, "items": [{}] * 19_000}) == ""
    assert size_problem(5) == ""


@pytest.mark.parametrize(
    "value",
    [
        [0] * VALUES_LIMIT,
        dict.fromkeys(map(str, range(VALUES_LIMIT))),
        [[0] * 999] * (VALUES_LIMIT // 1000),
        [{"a": 0}] * (VALUES_LIMIT // 2),
    ],
)
def test_the_number_of_fields_and_items_is_limited(value: Any) -> None:
    assert size_problem(value) == ""
    assert size_problem([value]) == TOO_MANY_VALUES
