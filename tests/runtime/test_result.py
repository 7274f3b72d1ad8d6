"""Results of reconciles."""

from __future__ import annotations

from typing import assert_never

import pytest

from trioperator._runtime.result import AGAIN, DONE, Again, Done, RequeueAt, Result, earlier


def describe(result: Result) -> str:
    match result:
        case Done():
            return "done"
        case Again():
            return "again"
        case RequeueAt(time):
            return f"at {time:g}"
        case _:
            assert_never(result)


@pytest.mark.parametrize(
    ("result", "expected"), [(DONE, "done"), (AGAIN, "again"), (RequeueAt(5.5), "at 5.5"), (RequeueAt(0.0), "at 0")]
)
def test_one_match_decides(result: Result, expected: str) -> None:
    assert describe(result) == expected


def test_results_are_values() -> None:
    assert RequeueAt(5) == RequeueAt(5) != RequeueAt(6)
    assert len({DONE, Done(), AGAIN, Again(), RequeueAt(5), RequeueAt(5)}) == 3
    with pytest.raises(AttributeError):
        RequeueAt(5).time = 6  # type: ignore[misc]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (DONE, DONE, DONE),
        (RequeueAt(5), DONE, RequeueAt(5)),
        (DONE, RequeueAt(5), RequeueAt(5)),
        (RequeueAt(6), RequeueAt(5), RequeueAt(5)),
    ],
)
def test_of_two_parts_the_earlier_one_counts(one: Result, other: Result, expected: Result) -> None:
    assert earlier(one, other) == expected
