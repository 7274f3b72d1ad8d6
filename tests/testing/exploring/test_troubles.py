"""Tests for :mod:`trioperator.testing.exploring.troubles`: a good operator ends as without them."""

from __future__ import annotations

import pathlib

import pytest

from tests.testing.exploring.operators import GOOD, make_player
from trioperator.testing.exploring.perturbations import CUT, NONE, Perturbation
from trioperator.testing.exploring.snapshots import compare

ONE, TWO = {"spec": {"size": 1}}, {"spec": {"size": 2, "greeting": "a"}}

PERTURBATIONS = [
    Perturbation(fault="crash", at=0, what="before write"),
    Perturbation(fault="crash", at=1, what="after write"),
    Perturbation(fault="blind", at=1, until=1),
    Perturbation(fault="blind", at=1, until=2),
    Perturbation(fault="blind", at=1, until=1, what=CUT),
    Perturbation(fault="blind", at=1, until=2, what=CUT),
    Perturbation(fault="blind", at=0, what="after write"),
    Perturbation(fault="late", what="configmaps", seconds=45),
    Perturbation(fault="order", at=3),
    Perturbation(fault="edit", at=0, what="somebody labels the object"),
    Perturbation(fault="edit", at=0, what="somebody deletes the object"),
    Perturbation(fault="edit", at=0, what="the next change comes"),
    Perturbation(fault="drift", what="somebody deletes ConfigMap default/example"),
    Perturbation(fault="drift", what="somebody changes ConfigMap default/example"),
]


@pytest.mark.parametrize("perturbation", PERTURBATIONS, ids=str)
def test_what_happens_besides_does_not_matter_in_the_end(tmp_path: pathlib.Path, perturbation: Perturbation) -> None:
    player = make_player(tmp_path, GOOD)
    plain, play = (player.play([ONE, TWO], perturbation=each) for each in (NONE, perturbation))
    assert play.leftovers == []
    if not play.last.is_blind:
        assert compare(play.last.snapshot, plain.last.snapshot) == []
    assert len(play.steps) == len(plain.steps)


def test_each_of_them_happens(tmp_path: pathlib.Path) -> None:
    player = make_player(tmp_path, GOOD)
    plain = player.play([ONE, TWO])
    crashed = player.play([ONE, TWO], perturbation=PERTURBATIONS[1])
    assert len(crashed.calls) > len(plain.calls), "the operator is started again"
    down = player.play([ONE, TWO], perturbation=PERTURBATIONS[3])
    assert not down.steps[1].calls
    cut = player.play([ONE, TWO], perturbation=PERTURBATIONS[5])
    assert not cut.steps[1].calls
    assert cut.steps[1].is_blind
    crashed = player.play([ONE, TWO], perturbation=PERTURBATIONS[6])
    assert crashed.steps[0].is_blind
    assert not crashed.steps[1].is_blind
    drifted = player.play([ONE, TWO], perturbation=PERTURBATIONS[-2])
    assert len(drifted.writes) > len(plain.writes), "the child is created again"
