"""Correct operators: what is found of them is a false alarm."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.explore.examples import EXAMPLES, Example
from tests.explore.planted import FIELDS, PLANTED
from tests.testing.exploring.operators import GOOD, SHARDED, make_crd, make_player
from trioperator.testing.exploring.explorer import Budget, Explorer
from trioperator.testing.exploring.findings import Finding
from trioperator.testing.exploring.plays import Player

# Seconds after which exploring ends early, and says less: more than it takes on a machine that is busy.
_SECONDS: Final = 300.0
_MENDED: Final = ("what is only in memory", "done outside before it is recorded", "a deletion that fails")


class Correct(NamedTuple):
    """A correct operator: its source."""

    name: str
    source: str
    intended: Sequence[str] = ()

    def make_player(self, folder: pathlib.Path) -> Player:
        """Return a player of the operator."""
        return make_player(folder, self.source, make_crd(**FIELDS))


CORRECT: Final[tuple[Correct | Example, ...]] = (
    Correct("a good operator", GOOD),
    Correct("shards, and a condition", SHARDED),
    *(Correct(f"mended: {each.name}", each.mended) for each in PLANTED if each.name in _MENDED),
    *EXAMPLES,
)


def find_false_alarms(correct: Correct | Example, *, sequences: int, faults: Sequence[str] = ()) -> list[Finding]:
    """Return what is found of a correct operator."""
    with tempfile.TemporaryDirectory() as folder:
        explorer = Explorer(correct.make_player(pathlib.Path(folder)), ignored=correct.intended)
        report = explorer.run(Budget(sequences=sequences, seconds=_SECONDS))
        explorer.perturb(explorer.draw_short()[:1] if faults else [], faults, Budget(sequences=1, seconds=_SECONDS))
        return [each for each in report.findings if not each.is_information]
