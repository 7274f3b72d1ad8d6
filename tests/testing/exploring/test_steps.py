"""Tests for :mod:`trioperator.testing.exploring.steps`."""

from __future__ import annotations

import pytest

from trioperator.testing.exploring.steps import Step


@pytest.mark.parametrize(
    ("responses", "rejections"),
    [
        ([("create", "pods a", 422)], {"pods a": 422}),
        ([("patch", "pods a", 422), ("patch", "pods a", 200)], {}),
        ([("patch", "pods a", 200), ("patch", "pods a", 403)], {"pods a": 403}),
        ([("patch", "pods a", 409), ("delete", "pods b", 422)], {}),
        ([("patch", "pods a", 500)], {"pods a": 500}),  # what cannot be applied at all, by its types
        ([("create", "events ", 403)], {}),  # in a namespace that is being deleted
    ],
)
def test_what_is_rejected_counts_until_it_is_accepted(
    responses: list[tuple[str, str, int]], rejections: dict[str, int]
) -> None:
    step = Step(state=None, responses=responses)
    assert step.rejections == rejections
    assert step.is_failing is bool(rejections)
    assert not step.is_refused


def test_an_operator_that_is_down_may_have_had_more_to_do() -> None:
    step = Step(state=None, responses=[("patch", "jobs.batch a", 422)], is_blind=True)
    assert step.rejections == {}
    assert not step.is_failing
