"""The search for planted defects, and for false alarms about correct operators."""

from __future__ import annotations

import contextlib
import pathlib
import runpy
import time
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from tests.explore.planted import FIELDS, Planted
from tests.testing.exploring.operators import make_crd, make_player
from trioperator.testing.exploring.explorer import Budget, Explorer, SubjectReport
from trioperator.testing.exploring.findings import Finding
from trioperator.testing.exploring.reports import Inputs, Report, write_tests

_SECONDS = 60.0


class Result(NamedTuple):
    """What was found of a planted defect, and whether the test that is written for it fails, and passes with the mend.

    *others* are the alarms besides.
    """

    finding: Finding | None
    seconds: float
    fails: bool = False
    passes: bool = False
    others: Collection[Finding] = ()

    @property
    def is_right(self) -> bool:
        """Whether the defect was found, in time, with a test that fails for it alone."""
        return self.finding is not None and self.fails and self.passes and self.seconds <= _SECONDS


def search(planted: Planted, folder: pathlib.Path, *, sequences: int = 8) -> Result:
    """Search for a planted defect, write the test of what is found, and call it with the defect and with the mend."""
    start = time.monotonic()
    report = _explore(planted, folder, sequences)
    seconds = time.monotonic() - start
    alarms = [each for each in report.findings if not each.is_information]
    finding = next((each for each in alarms if {each.oracle, each.fault} & planted.oracles), None)
    if finding is None:
        return Result(None, seconds, others=alarms)
    path = _write_test(report, finding, folder)
    fails = not _passes(path)
    (folder / "app.py").write_text(planted.mended)
    return Result(finding, seconds, fails, _passes(path), [each for each in alarms if each is not finding])


def _explore(planted: Planted, folder: pathlib.Path, sequences: int) -> SubjectReport:
    explorer = Explorer(make_player(folder, planted.code, make_crd(**FIELDS)))
    budget = Budget(sequences=sequences, seconds=_SECONDS)
    if not planted.faults:
        return explorer.run(budget)
    for states in explorer.draw_short():
        explorer.perturb([states], planted.faults, budget)
        if explorer.report.findings or budget.left <= 0:
            break
    return explorer.report


def _write_test(report: SubjectReport, finding: Finding, folder: pathlib.Path) -> str:
    """Write the test of a finding, as the command does it, and return its path."""
    inputs = Inputs(files=[str(folder / "app.py")], crds=[str(folder / "crd.yaml")])
    alone = msgspec.structs.replace(report, findings=[finding])
    (path,) = write_tests(Report(inputs=inputs, subjects=[alone], seconds=0), str(folder / "found"))
    return path


def _passes(path: str) -> bool:
    """Call the test in a file, and return whether it passes."""
    names = runpy.run_path(path)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    with contextlib.suppress(AssertionError):
        test()
        return True
    return False
