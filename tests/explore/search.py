"""The search for planted defects, and for false alarms about correct operators."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Sequence
from typing import NamedTuple

from tests.explore.planted import FIELDS, Planted
from tests.testing.exploring.operators import make_crd, make_player
from trioperator.testing.exploring.explorer import Budget, Explorer
from trioperator.testing.exploring.oracles import Finding
from trioperator.testing.exploring.subjects import State

_SECONDS = 60.0


class Result(NamedTuple):
    """What was found of a planted defect; *is_mended* is whether nothing is found any more when it is mended."""

    finding: Finding | None
    seconds: float
    is_mended: bool


def search(planted: Planted, folder: pathlib.Path, *, sequences: int = 8) -> Result:
    """Search for a planted defect, and play what was found again with the mend."""
    start = time.monotonic()
    finding = _find(planted, folder, sequences)
    seconds = time.monotonic() - start
    if finding is None:
        return Result(None, seconds, False)
    return Result(finding, seconds, not _play(planted, folder, finding.states, planted.mended))


def _find(planted: Planted, folder: pathlib.Path, sequences: int) -> Finding | None:
    explorer = Explorer(make_player(folder, planted.code, make_crd(**FIELDS)))
    budget = Budget(sequences=sequences, seconds=_SECONDS)
    if planted.faults:
        for states in explorer.draw_short():
            explorer.perturb([states], planted.faults, budget)
            if explorer.report.findings or budget.left <= 0:
                break
    else:
        explorer.run(budget)
    alarms = [each for each in explorer.report.findings if not each.is_information]
    return next((each for each in alarms if each.oracle in planted.oracles), None)


def _play(planted: Planted, folder: pathlib.Path, states: Sequence[State], source: str) -> list[Finding]:
    explorer = Explorer(make_player(folder, source, make_crd(**FIELDS)))
    report = explorer.play(states)
    explorer.perturb([states], planted.faults, Budget(sequences=1, seconds=_SECONDS))
    return [each for each in report.findings if not each.is_information]
