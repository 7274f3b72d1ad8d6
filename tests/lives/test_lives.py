"""Lives of operators in which everything goes wrong that may: nothing is lost, done twice, or left behind.

A failing life is named by its seed: ``python -m tests.lives --seed SEED --show`` lives it again, ``--shrink`` leaves
out what it does not need, and README.md tells what findings mean.
"""

from __future__ import annotations

import itertools
import os

import pytest

from tests.lives.drawing import draw
from tests.lives.life import live
from tests.lives.parts import PARTS
from tests.lives.plans import TROUBLE

# How many lives each test lives. `nox -s soak` has more.
SEEDS = int(os.environ.get("TRIOPERATOR_SEEDS", "10"))
BATCHES = 8

# Seeds and findings of which the causes are known, and not mended yet.
PENDING_SEEDS: frozenset[int] = frozenset()
PENDING_FINDINGS: frozenset[str] = frozenset()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_operators_survive_whatever_happens(batch: int) -> None:
    for seed in range(batch * SEEDS, (batch + 1) * SEEDS):
        if seed in PENDING_SEEDS:
            continue
        plan = draw(seed)
        findings = {kind: text for kind, text in live(plan).items() if kind not in PENDING_FINDINGS}
        assert not findings, f"{findings}\n{plan}"


# A timer whose writes somebody undoes for a while; an object that is released while it is paused.
@pytest.mark.parametrize("seed", [420016, 420025])
def test_what_went_wrong_once_does_not_again(seed: int) -> None:
    assert live(draw(seed)) == {}


def test_a_seed_stands_for_a_plan() -> None:
    assert all(draw(seed) == draw(seed) for seed in range(50))


def test_lives_have_all_parts_and_troubles() -> None:
    plans = [draw(seed) for seed in range(500)]
    assert {part.name for plan in plans for part in plan.parts} == set(PARTS)
    assert {plan.together for plan in plans} == {"alone", "leader", "shards", "peering", "apart"}
    assert {"fights", "releases", "denials"} <= frozenset().union(*(plan.troubles for plan in plans))
    assert any(ambush.stopping for plan in plans for ambush in plan.ambushes)
    assert all(0 <= step.at < TROUBLE + 20 for step in itertools.chain(*(plan.steps for plan in plans)))


def test_the_same_plan_is_the_same_life() -> None:
    plan = next(plan for plan in map(draw, itertools.count()) if plan.parts[0].name == "children")
    assert live(plan) == live(plan)
