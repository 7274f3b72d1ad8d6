"""Lives of operators in which everything goes wrong that may: nothing is lost, done twice, or left behind.

A failing life is named by its seed: ``python -m tests.lives --seed SEED --show`` lives it again, ``--shrink`` leaves
out what it does not need, and README.md tells what findings mean.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from typing import Any

import pytest

from tests.lives.drawing import _LATER, draw
from tests.lives.life import live
from tests.lives.parts import PARTS
from tests.lives.plans import TROUBLE, PartPlan, Plan, Step

# How many lives each test lives. `nox -s soak` has more.
SEEDS = int(os.environ.get("TRIOPERATOR_SEEDS", "10"))
BATCHES = 8

# Seeds and findings of which the causes are known, and not mended yet.
PENDING_SEEDS: frozenset[int] = frozenset()
PENDING_FINDINGS: frozenset[str] = frozenset()


def make_plan(
    seed: int,
    troubles: set[str],
    part: PartPlan,
    *steps: tuple[Any, ...],
    write_delay: float = 0.1,
    together: str = "alone",
) -> Plan:
    """Return the plan of a life of one operator, or of two that live *together*."""
    return Plan(
        seed=seed,
        together=together,
        replicas=1 if together == "alone" else 2,
        parts=(part,),
        troubles=frozenset(troubles),
        options={
            "network": "memory",
            "client_network": "memory",
            "client_timeout": 30,
            "request_timeout": 300,
            "write_delay": write_delay,
            "starts": (0, 3),
            "lease": (15, 10, 2),
        },
        steps=tuple(Step(at=at, deed=deed, args=tuple(args)) for at, deed, *args in steps),
        ambushes=(),
    )


@pytest.mark.parametrize("batch", range(BATCHES))
def test_operators_survive_whatever_happens(batch: int) -> None:
    for seed in range(batch * SEEDS, (batch + 1) * SEEDS):
        if seed in PENDING_SEEDS:
            continue
        plan = draw(seed)
        findings = {kind: text for kind, text in live(plan).items() if kind not in PENDING_FINDINGS}
        assert not findings, f"{findings}\n{plan}"


# Plans of seeds that are gone, as the generator has changed since, without what their findings did not need.
OLD_PLANS = {
    "what has left a selector, is brought back by a restore, and leaves again before the next list": make_plan(
        301024,
        {"restore"},
        PartPlan(
            name="selection",
            options={
                "objects": {"m0": {"serial": "0"}, "m1": {"serial": "0"}},
                "early": True,
                "deleting": True,
                "renaming": False,
                "on_change": "finish",
            },
        ),
        (13.0, "members.delete", "m1"),
        (16.1, "members.edit", "m0", {"serial": "4"}),
        (16.1, "members.create", "m1"),
        (16.11, "members.edit", "m0", {"serial": "6"}),
        (16.3, "back_up"),
        (26.13, "members.delete", "m1"),
        (36.13, "members.edit", "m0", {"serial": "11"}),
        (36.14, "members.label", "m0", None),
        (36.3, "restore"),
        (37.14, "members.label", "m0", "tin"),
        write_delay=1,
    ),
    "a change whose record is held, as somebody undoes what its handler has written, when etcd is restored": make_plan(
        450133,
        {"fights", "restore"},
        PartPlan(
            name="changes",
            options={
                "objects": {f"w{number}": {"serial": "0"} for number in range(4)},
                "early": False,
                "deleting": False,
                "storing": True,
                "on_change": "cancel",
            },
        ),
        (0.97, "widgets.create", "w0"),
        (3.02, "widgets.create", "w2"),
        (3.36, "widgets.create", "w1"),
        (6.49, "widgets.create", "w3"),
        (8.2, "widgets.edit", "w2", {"serial": "7"}),
        (8.68, "widgets.fight", "w0", 0.05, 20),
        (11.74, "back_up"),
        (31.74, "restore"),
    ),
    "a timer whose writes somebody undoes for a while": make_plan(
        420016,
        {"fights"},
        PartPlan(
            name="background", options={"objects": {"g0": {"serial": "0"}}, "early": True, "interval": 5, "cron": False}
        ),
        (36.87, "gizmos.fight", "g0", 2, 40),
    ),
    "a timer of two leaders, one after the other, whose writes somebody undoes": make_plan(
        500362,
        {"fights", "retire"},
        PartPlan(
            name="background", options={"objects": {"g0": {"serial": "0"}}, "early": True, "interval": 3, "cron": False}
        ),
        (10.52, "gizmos.fight", "g0", 0.3, 40),
        (32.84, "retire", "a"),
        (36.55, "gizmos.delete", "g0"),
        (37.44, "gizmos.fight", "g0", 0.3, 20),
        (37.55, "gizmos.create", "g0"),
        together="leader",
    ),
    "a leader that acts while the Lease of a restored etcd still names an earlier one": make_plan(
        790000,
        {"restart", "restore"},
        PartPlan(
            name="background", options={"objects": {"g0": {"serial": "0"}}, "early": True, "interval": 1, "cron": False}
        ),
        (18.61, "back_up"),
        (19, "crash", "a"),
        (45, "restore"),
        together="leader",
    ),
    "a handler that is to be tried again while somebody undoes what it has written": make_plan(
        28,
        {"fights"},
        PartPlan(
            name="changes",
            options={
                "objects": {f"w{number}": {"serial": "0"} for number in range(4)},
                "early": True,
                "deleting": True,
                "storing": False,
                "on_change": "finish",
            },
        ),
        (0, "widgets.edit", "w0", {"serial": "28"}),
        (0, "widgets.edit", "w2", {"serial": "29"}),
        (0.1, "widgets.delete", "w3"),
        (32.44, "widgets.fight", "w0", 0.3, 20),
    ),
    "a release that wants finalizers, which are forbidden for a while, and calls nobody": make_plan(
        200146,
        {"denials", "upgrades"},
        PartPlan(
            name="changes",
            options={
                "objects": {"w0": {"serial": "0"}},
                "early": True,
                "deleting": False,
                "storing": False,
                "on_change": "finish",
            },
        ),
        (34.09, "fault", "a", "status", 403, 20, None, {"verb": ["patch"]}),
        (35.72, "stop", "a"),
        (45.72, "start", "a", "full"),
    ),
}


@pytest.mark.parametrize("plan", OLD_PLANS.values(), ids=OLD_PLANS)
def test_what_went_wrong_once_does_not_again(plan: Plan) -> None:
    assert live(plan) == {}


def test_records_of_a_peer_that_is_outranked_may_stay_and_those_of_the_other_one_may_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = PartPlan(
        name="selection",
        options={
            "objects": {"m1": {"serial": "0"}},
            "early": False,
            "deleting": False,
            "renaming": True,
            "on_change": "finish",
        },
    )
    alone = make_plan(500365, set(), part, (7.64, "members.create", "m1"), (12, "members.label", "m1", "tin"))
    options = {**alone.options, "starts": [0, 10], "priorities": {"a": 0, "b": 666}}
    plan = dataclasses.replace(alone, together="peering", replicas=2, options=options)
    assert live(plan) == {}
    monkeypatch.setattr(PARTS["selection"], "_list_active_ids", lambda part: {*part.ids.values()})
    assert "has ['member-a-1']" in live(plan)["left record"]


def test_a_seed_stands_for_a_plan() -> None:
    assert all(draw(seed) == draw(seed) for seed in range(50))


def test_lives_have_all_parts_and_troubles() -> None:
    plans = [draw(seed) for seed in range(500)]
    assert {part.name for plan in plans for part in plan.parts} == set(PARTS)
    assert {plan.together for plan in plans} == {"alone", "leader", "shards", "peering", "apart"}
    assert {"fights", "releases", "denials", "kinds"} <= frozenset().union(*(plan.troubles for plan in plans))
    assert {*_LATER} <= frozenset().union(*(plan.troubles for plan in plans))
    assert {"idle", "optional"} <= {name for plan in plans for name in plan.options}
    ways = {(plan.together, name) for plan in plans for name in (*plan.troubles, *(part.name for part in plan.parts))}
    assert {("leader", "restore"), ("shards", "restore"), ("peering", "restore"), ("peering", "places")} <= ways
    assert any(ambush.stopping for plan in plans for ambush in plan.ambushes)
    assert all(0 <= step.at < TROUBLE + 20 for step in itertools.chain(*(plan.steps for plan in plans)))


def test_the_same_plan_is_the_same_life() -> None:
    plan = next(plan for plan in map(draw, itertools.count()) if plan.parts[0].name == "children")
    assert live(plan) == live(plan)
