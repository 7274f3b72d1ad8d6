"""Tests for :mod:`trioperator.testing.exploring.troubles`: a good operator ends as without them."""

from __future__ import annotations

import pathlib

import pytest

from tests.testing.exploring.operators import GOOD, make_player
from trioperator.testing.exploring.oracles import judge_perturbed
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


REVIEWING = """
@trioperator.on.startup()
def configure(settings):
    settings.admission.server = trioperator.WebhookServer()
    settings.admission.managed = "explored.example.com"

@trioperator.on.mutate("webapps")
def default(patch, spec):
    patch.spec["size"] = spec.get("size", 0)
"""


@pytest.mark.parametrize("perturbation", [each for each in PERTURBATIONS if each.fault == "blind"], ids=str)
def test_changes_that_an_operator_that_is_down_cannot_review_are_sent_again(
    tmp_path: pathlib.Path, perturbation: Perturbation
) -> None:
    player = make_player(tmp_path, GOOD + REVIEWING)
    plain, play = (player.play([ONE, TWO], perturbation=each) for each in (NONE, perturbation))
    assert play.leftovers == []
    assert play.release is not None
    assert list(judge_perturbed(play, plain, perturbation)) == []


PROTECTING = """
@trioperator.on.validate("webapps", operation="DELETE")
def protect():
    raise trioperator.AdmissionError("it is protected")
"""


def test_an_operator_may_refuse_the_deletion(tmp_path: pathlib.Path) -> None:
    play = make_player(tmp_path, GOOD + REVIEWING + PROTECTING).play([ONE, TWO])
    assert len(play.steps) == 2
    assert play.release is None
    assert not play.leftovers


LATE_WRITES = """
@trioperator.timer("webapps", interval=200, initial_delay=200)
def tick(patch, status):
    patch.status["ticks"] = status.get("ticks", 0) + 1
"""


@pytest.mark.parametrize("what", ["somebody labels the object", "somebody pauses the object, until all is at rest"])
def test_nothing_is_edited_when_the_traces_of_that_are_removed(tmp_path: pathlib.Path, what: str) -> None:
    player = make_player(tmp_path, GOOD + LATE_WRITES)
    writes = len(player.play([ONE]).writes)
    for at in range(writes):
        last = player.play([ONE], perturbation=Perturbation(fault="edit", at=at, what=what)).last
        metadata = last.snapshot["WebApp default/example"]["metadata"]
        assert "labels" not in metadata
        assert "trioperator.dev/paused" not in metadata.get("annotations", {})


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
