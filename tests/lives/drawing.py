"""The drawing of plans: what a seed stands for."""

from __future__ import annotations

import itertools
import random
from typing import Any, NamedTuple

from tests.lives.parts import PARTS
from tests.lives.parts.additions import ADDITIONS
from tests.lives.plans import TROUBLE, PartPlan, Plan, Step
from tests.lives.troubles import Troubles, draw_ambushes
from tests.lives.tuning import draw_tuning


class _Way(NamedTuple):
    """A way in which operators live together, with the parts that they have and the troubles that they get into."""

    weight: int
    together: str
    parts: list[str]
    troubles: list[str]


_WAYS = [
    _Way(
        12,
        "alone",
        [
            *["changes", "children"] * 2,
            *["selection"] * 3,
            "children",
            "background",
            "waiting",
            *["scripts", "nested", "indexed"] * 2,
            "places",
        ],
        ["writes", "reads", "watches", "restart", "thieves", "clock", "versions", "restore", "upgrades", "rights"]
        + ["fights", "releases", "denials", "clock", "protection"]
        + ["holds"] * 2,
    ),
    _Way(
        4,
        "leader",
        ["changes", "changes", "background", "selection", "children", "nested", "indexed"],
        [*["lease", "slow leases", "retire"] * 2, "late start", "watches", "restart", "holds", "fights", "denials"],
    ),
    _Way(3, "leader", ["tasks"], ["lease", "freeze", "slow", "restart"]),
    _Way(
        1,
        "shards",
        ["changes", "background", "selection", "children", "nested"],
        ["slow leases", "late start", "watches", "restart", "retire", "holds", "fights", "releases"],
    ),
    _Way(
        3,
        "peering",
        ["changes", "background", "background", "children", "selection", "nested", "indexed"],
        [*["pauses", "slow peering"] * 2, "late start", "restart", "watches", "fights", "denials", "holds"],
    ),
    _Way(
        1,
        "apart",
        ["children"],
        ["restart", "watches", "writes", "reads", "thieves", "fights", "denials", "versions", "restore", "protection"],
    ),
]
# The duration of leases, the deadline of renewals, and the period of retries.
_LEASES = [(15, 10, 2), (15, 10, 2), (3, 2, 0.5), (2.5, 2.4, 0.3), (2.5, 2.4, 0.3)]
_MOST_EDITS = 40
# The parts whose handlers may run on asyncio, as those of operators for Kopf.
_ON_ASYNCIO = {"background", "changes", "indexed", "nested", "resumed"}
# The parts that a trouble is most about: most lives with it have one of them.
_FAVOURITES = {
    "clock": ["background", "changes"],
    "retire": ["changes"],
    "thieves": ["children"],
    "upgrades": ["changes"],
}
_FAVOURED = 0.6
# The shares of lives in which kinds are gone for a while, and of those that have objects to resume.
_WITHOUT_KINDS, _RESUMED = 0.06, 0.1
# The shares of lives of peers that have peering objects in namespaces, of all that have a CA of webhooks, and of those
# of one operator that is stopped while handlers are at work.
_PLACES, _REVIEWED, _STOPPED = 0.2, 0.04, 0.05
# The share of lives whose operators have children of a kind that is gone now and then.
_TREES = 0.04
# Troubles that were added later, by the shares of the lives that have them, of those in which they may happen.
_LATER = {
    "freeze": 0.4,
    "pokes": 0.06,
    "restore": 0.2,
    "rollout": 0.3,
    "strangers": 0.08,
    "successors": 0.08,
    "towns": 0.4,
    "rollbacks": 0.2,
    "reversals": 0.2,
    "versions": 0.4,
    "fillings": 0.08,
    "logins": 0.06,
    "clinging": 0.2,
    "bursts": 0.15,
}
# The shares of lives of their parts in which timers wait for objects to be idle, delete handlers are optional, and
# daemons take some time to end.
_IDLE, _OPTIONAL, _LASTING = 0.3, 0.3, 0.3
# The share of lives with changes in which their objects have other handlers, too; and of those with daemons in which
# events are handled, too.
_ADDED, _NOTED = 0.3, 0.3


def draw(seed: int) -> Plan:
    """Return the plan of a life."""
    rng = random.Random(f"life {seed}")
    way = rng.choices(_WAYS, [way.weight for way in _WAYS])[0]
    chosen = rng.sample(way.troubles, min(len(way.troubles), rng.choice([0, 1, 1, 2, 2, 3])))
    names = list(dict.fromkeys(rng.choice(way.parts) for _ in range(rng.choice([1, 1, 2]))))
    names, troubles = _fit(rng, names, frozenset(chosen))
    return _draw(seed, rng, way, *_draw_added(seed, way, names, troubles))


def _draw_added(seed: int, way: _Way, names: list[str], troubles: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Return parts and troubles with what was added later, drawn apart, so that plans without that stay as they are."""
    rng = random.Random(f"added {seed}")
    if rng.random() < _WITHOUT_KINDS and "scripts" not in names:  # whose objects nobody creates again
        troubles |= {"kinds"}
    if rng.random() < _RESUMED and way.together != "apart" and not {"places", "scripts", "tasks"} & {*names}:
        names = rng.choice([["resumed"], ["resumed"], [*names, "resumed"]])
    if rng.random() < _PLACES and way.together == "peering":
        names, troubles = ["places"], troubles - {"holds", "kinds", "fights"}
    if rng.random() < _REVIEWED and way.together != "apart" and not {"places", "scripts", "tasks"} & {*names}:
        names, troubles = ["reviewed"], troubles - {"retire", "upgrades"}
    if rng.random() < _STOPPED and way.together == "alone":
        names, troubles = ["changes"], frozenset({"stops"})
    elif rng.random() < _TREES and way.together != "apart" and not {"places", "scripts", "tasks"} & {*names}:
        names, troubles = ["trees"], troubles - {"retire", "upgrades"}
    return names, troubles | _draw_later(seed, way, names, troubles)


def _draw_later(seed: int, way: _Way, names: list[str], troubles: frozenset[str]) -> frozenset[str]:
    """Return more troubles, drawn apart again."""
    rng = random.Random(f"later {seed}")
    later = {trouble for trouble, share in _LATER.items() if rng.random() < share}
    if way.together in {"alone", "apart"}:
        later -= {"restore", "rollout"}  # they have restores and upgrades of their own
    if {"restore", "freeze"} & (later | troubles):
        later -= {"bursts"}  # what is held back is of another time then
    if names != ["waiting"]:
        later -= {"freeze"}  # which is about leaders, or threads
    if "changes" not in names:
        later -= {"rollout", "rollbacks", "reversals"}
    if troubles & {"upgrades", "retire"} or "rollout" in later:
        later -= {"rollbacks"}
    if "background" not in names or way.together != "alone":
        later -= {"versions"}
    if "children" not in names:
        later -= {"clinging"}
    if "places" not in names:
        later -= {"towns"}
    if "stops" in troubles:
        return frozenset()  # an operator that stops has a second to store what handlers have seen
    if {"places", "scripts", "tasks"} & {*names} or "kinds" in troubles:
        later -= {"pokes", "restore", "strangers", "successors", "fillings"}
    if troubles & {"holds"} or "pokes" in later:
        later -= {"restore"}  # a backup may have a pause that has ended
    if "restore" in troubles:
        later -= {"pokes"}
    return frozenset(later)


def draw_given(seed: int, together: str, names: list[str], troubles: frozenset[str]) -> Plan:
    """Return the plan of a life of operators that live *together* like this, with these parts and troubles."""
    way = next(way for way in _WAYS if way.together == together)
    return _draw(seed, random.Random(f"life {seed} of {together}, {names}, {sorted(troubles)}"), way, names, troubles)


def _draw(seed: int, rng: random.Random, way: _Way, names: list[str], troubles: frozenset[str]) -> Plan:
    parts = tuple(PartPlan(name=name, options=PARTS[name].draw(rng, troubles)) for name in names)
    operators = _draw_operators(rng, way, troubles)
    trouble = Troubles(rng, operators, names)
    for kind in sorted(troubles):
        for _ in range(1 if kind == "restore" else rng.choice([1, 2, 3])):
            trouble.draw(kind)
    return Plan(
        seed=seed,
        together=way.together,
        replicas=len(operators),
        parts=parts,
        troubles=troubles,
        options=_draw_options(rng, way, names, troubles)
        | _draw_later_options(seed, names, troubles)
        | {"tuning": draw_tuning(seed, {*names, *troubles})},
        steps=(*_draw_edits(rng, parts, until=5 if "stops" in troubles else TROUBLE), *trouble.steps),
        ambushes=tuple(draw_ambushes(rng, troubles, names)),
    )


def _fit(rng: random.Random, names: list[str], troubles: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Return parts and troubles that go together."""
    if troubles & {"lease", "pauses"} and rng.random() < 0.5:
        troubles |= {"late start"}
    if "tasks" in names:
        troubles = (troubles | {"slow"}) - {"late start"} if rng.random() < _FAVOURED else frozenset({"slow"})
        names = ["tasks", *rng.choice([[], [], ["changes"]])]
    for trouble, parts in _FAVOURITES.items():
        if trouble in troubles and rng.random() < _FAVOURED:
            names = [rng.choice(parts)]
    if "places" in names or "rights" in troubles:
        names = ["places"]
    if "restore" in troubles or {"places", "scripts"} & set(names):
        troubles -= {"holds"}  # a backup may have a pause that has ended; tenants and notes are in other places
    if "scripts" in names:
        more = {rng.choice(["writes", "watches", "reads"])} if rng.random() < 0.5 else set()
        troubles = (troubles | more) - {"restore", "clock"}
    return names, troubles


def _draw_operators(rng: random.Random, way: _Way, troubles: frozenset[str]) -> list[str]:
    numbers = {"alone": [1], "apart": [2], "shards": [2, 3]}.get(way.together, [1, 2])
    number = rng.choice(numbers)
    if troubles & {"retire", "slow leases"}:
        number = max(2, number)
    return [chr(ord("a") + index) for index in range(number)]


def _draw_options(rng: random.Random, way: _Way, names: list[str], troubles: frozenset[str]) -> dict[str, Any]:
    starts = [0, 3, 6] if way.together == "shards" else [0, rng.choice([0, 0.3, 1, 3, 10]), rng.choice([0, 1, 10])]
    options: dict[str, Any] = {
        "network": "connections" if "tasks" in names else "memory",
        "client_network": rng.choice(["memory", "connections"]),
        "starts": starts,
        "thread_flag": rng.random() < 0.15,
        "keeps_flag": rng.random() < 0.3,
        "mandatory": rng.random() < 0.5,
        "request_timeout": rng.choice([30, 300]),
        "client_timeout": 30 if troubles & {"restore", "retire", "watches"} else rng.choice([None, 30]),
        "write_delay": rng.choice([0.1, 0.1, 1]),
        "lease": rng.choice(_LEASES),
        "priorities": {"a": 0, "b": rng.choice([-1, 100, 666])},
    }
    if way.together == "shards":
        options["divides"] = rng.random() < 0.7
    if {*names} <= _ON_ASYNCIO:
        options["asyncio"] = rng.random() < 0.25
    if names == ["places"]:
        options["namespaces"] = ["team-a", "team-b"]
        options["mandatory"] = False  # namespaces are made without peering objects
    if "upgrades" in troubles:
        options["variants"] = [rng.choice(["full", "full", "plain", "event", "reconcile"])]
    return options


def _draw_later_options(seed: int, names: list[str], troubles: frozenset[str]) -> dict[str, Any]:
    """Return more options, drawn apart from the others."""
    rng = random.Random(f"later options {seed}")
    options: dict[str, Any] = {}
    if rng.random() < _IDLE and "background" in names:
        options["idle"] = rng.choice([2, 6])
    if rng.random() < _OPTIONAL and {"changes", "selection", "resumed"} & {*names}:
        options["optional"] = True
    if "rollout" in troubles:
        options["variants"] = [rng.choice(["full", "plain"])]
    if "rollbacks" in troubles:
        options["variants"] = ["plain"]
    if rng.random() < _LASTING and "background" in names:
        options["lasting"] = rng.choice([1, 8, 20])
    if rng.random() < _ADDED and "changes" in names:
        chosen = set(rng.sample(ADDITIONS, rng.choice([1, 1, 2, 3, 5])))
        options["additions"] = tuple(sorted(chosen - ({"daemon", "timer"} if options.get("optional") else set())))
    if rng.random() < _NOTED and "background" in names:
        options["noted"] = rng.choice([0.1, 2, 5])
    return options


def _draw_edits(rng: random.Random, parts: tuple[PartPlan, ...], *, until: float) -> list[Step]:
    """Return what those do who change objects."""
    numbers = itertools.count(1)
    steps: list[Step] = []
    for plan in parts:
        part = PARTS[plan.name]
        if not plan.options["early"]:
            creation = f"{part.plural}.create"
            steps += [
                Step(at=round(rng.uniform(0, 8), 2), deed=creation, args=(name,)) for name in plan.options["objects"]
            ]
        at = 0.0
        while (at := at + rng.choice([0, 0.01, 0.1, 1, 3, 10])) < until and len(steps) < _MOST_EDITS:
            deed, args = part.draw_deed(rng, plan.options, next(numbers))
            steps.append(Step(at=round(at, 2), deed=deed, args=args))
    return steps
