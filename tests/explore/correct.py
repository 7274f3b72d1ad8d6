"""Correct operators: what is found of them is a false alarm."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.explore.planted import FIELDS, PLANTED
from tests.testing.exploring.operators import GOOD, make_crd, make_player
from trioperator.testing.exploring.app import FilesApp
from trioperator.testing.exploring.checks import make_players
from trioperator.testing.exploring.explorer import Budget, Explorer
from trioperator.testing.exploring.oracles import Finding
from trioperator.testing.exploring.plays import Player

EXAMPLES: Final = pathlib.Path(__file__).parents[2] / "examples"
_MENDED: Final = ("what is only in memory", "done outside before it is recorded", "a deletion that fails")


class Correct(NamedTuple):
    """A correct operator: an example with its objects, or a source."""

    name: str
    source: str = ""
    examples: Sequence[str] = ("obj.yaml",)

    def make_player(self, folder: pathlib.Path) -> Player:
        """Return a player of the operator."""
        if self.source:
            return make_player(folder, self.source, make_crd(**FIELDS))
        app = FilesApp([str(EXAMPLES / self.name / "main.py")])
        paths = [EXAMPLES / path for path in self.examples]
        (player,) = make_players(app, crds=[EXAMPLES / "crd.yaml"], examples=paths, kinds=["kopfexamples"])
        return player


CORRECT: Final = (
    Correct("a good operator", GOOD),
    *(Correct(f"mended: {each.name}", each.mended) for each in PLANTED if each.name in _MENDED),
    Correct("05-handlers"),
    Correct("11-filtering"),
    Correct("13-hooks"),
    Correct("14-daemons"),
    Correct("16-indexing"),
    Correct("19-database"),
    Correct("20-reconcile"),
)


def find_false_alarms(correct: Correct, *, sequences: int, faults: Sequence[str] = ()) -> list[Finding]:
    """Return what is found of a correct operator."""
    with tempfile.TemporaryDirectory() as folder:
        explorer = Explorer(correct.make_player(pathlib.Path(folder)))
        report = explorer.run(Budget(sequences=sequences, seconds=60))
        explorer.perturb(explorer.draw_short()[:1] if faults else [], faults, Budget(sequences=1, seconds=60))
        return [each for each in report.findings if not each.is_information]
