"""What exploring costs: ``python -m tests.explore.speed`` prints the CPU time of perturbed plays, and of transitions.

The operator is examples/20-reconcile, with three children: a Deployment, whose Pods run on the embedded controllers, a
Service and an Ingress.
"""

from __future__ import annotations

import logging
import pathlib
import tempfile
import time
from typing import Final

from tests.explore.examples import EXAMPLES
from trioperator.testing.exploring.explorer import Budget, Explorer
from trioperator.testing.exploring.perturbations import FAULTS, Extent, iterate_perturbations
from trioperator.testing.exploring.plays import Player
from trioperator.testing.exploring.subjects import State

_HOST: Final = "a.example.com"
_STATES: Final[list[State]] = [
    {"spec": {"image": "nginx", "replicas": 1, "host": _HOST}},
    {"spec": {"image": "nginx:1.29", "replicas": 2, "host": _HOST}},
]


def measure_plays(player: Player) -> str:
    """Play two states and the deletion with each perturbation, and return what that costs."""
    plain = player.play(_STATES)
    perturbations = list(
        iterate_perturbations(
            FAULTS.keys(),
            Extent(
                writes=len(plain.writes),
                steps=len(_STATES),
                watched=plain.watched,
                children=[name for name in plain.last.snapshot if name.partition(" ")[0] in player.subject.owned],
            ),
        )
    )
    start = time.process_time()
    for perturbation in perturbations:
        player.play(_STATES, perturbation=perturbation)
    seconds = time.process_time() - start
    count = len(perturbations)
    return f"{count} perturbed plays: {seconds:.1f} s of CPU time, {100 * seconds / count:.1f} s for 100 of them"


def measure_transitions(player: Player) -> str:
    """Explore some sequences, and return what that costs."""
    start, before = time.process_time(), player.transitions
    Explorer(player).run(Budget(sequences=12, seconds=600))
    seconds, count = time.process_time() - start, player.transitions - before
    return f"{count} transitions: {1000 * seconds / count:.0f} ms of CPU time each"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        player = next(each for each in EXAMPLES if each.name == "20-reconcile").make_player(pathlib.Path(folder))
        print(measure_plays(player))
        print(measure_transitions(player))
