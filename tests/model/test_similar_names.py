"""Tests for :mod:`trioperator._model.similar_names`."""

from __future__ import annotations

from trioperator._model.similar_names import find_similar, suggest


def test_unknown_names_are_listed_with_the_ones_that_may_have_been_meant() -> None:
    assert suggest(["nmae", "xyz"], ["name", "spec"]) == "nmae (did you mean name?), xyz"


def test_how_similar_a_name_must_be_can_be_chosen() -> None:
    assert find_similar("jobsets", ["jobs", "pods"]) == "jobs"
    assert find_similar("jobsets", ["jobs", "pods"], cutoff=0.9) is None
