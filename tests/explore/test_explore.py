"""Planted defects are found, in sequences that the mended operators pass, and correct operators raise no alarm."""

from __future__ import annotations

import pathlib

import pytest

from tests.explore.correct import CORRECT, Correct, find_false_alarms
from tests.explore.planted import PLANTED, Planted
from tests.explore.search import search


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.name.replace(" ", "-"))
def test_a_planted_defect_is_found_and_its_mend_passes(planted: Planted, tmp_path: pathlib.Path) -> None:
    result = search(planted, tmp_path, sequences=4)
    if result.finding is None:  # few need more
        result = search(planted, tmp_path, sequences=12)
    assert result.finding is not None, result.others
    assert len(result.finding.states) <= 3
    # A play has one perturbation, so that no finding needs two.
    assert bool(result.finding.perturbation) == bool(result.finding.fault) == bool(planted.faults)
    assert result.fails, "the test that is written"
    assert result.passes, "the test, with the mend"


@pytest.mark.parametrize(
    "correct", [each for each in CORRECT if isinstance(each, Correct)], ids=lambda each: each.name.replace(" ", "-")
)
def test_a_correct_operator_raises_no_alarm(correct: Correct) -> None:
    assert find_false_alarms(correct, sequences=2) == []
