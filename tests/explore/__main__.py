"""What exploring finds: a table of planted defects, and of correct operators. ``nox -s explore`` prints it.

It fails if fewer than 18 defects are found, if one is found in more than a minute, or with more than one false alarm.
"""

from __future__ import annotations

import logging
import pathlib
import sys
import tempfile
import time

from tests.explore.correct import CORRECT, find_false_alarms
from tests.explore.planted import PLANTED
from tests.explore.search import search
from trioperator.testing.exploring.perturbations import FAULTS

_ROW = "{:<46}{:<10}{:<16}{:>6}{:>9}   {:<8}{:<8}"


def print_planted() -> bool:
    """Print what is found of planted defects; return whether that is enough."""
    found, slowest = 0, 0.0
    print(_ROW.format("planted defect", "found by", "also", "states", "seconds", "test", "mended"))
    for planted in PLANTED:
        with tempfile.TemporaryDirectory() as folder:
            result = search(planted, pathlib.Path(folder))
        finding = result.finding
        name, states = ("nothing", "") if finding is None else (finding.fault or finding.oracle, len(finding.states))
        others = ", ".join(each.oracle for each in result.others)
        verdicts = ("fails" if result.fails else "passes", "passes" if result.passes else "fails")
        print(_ROW.format(planted.name, name, others, states, f"{result.seconds:.1f}", *verdicts), flush=True)
        found += result.is_right
        slowest = max(slowest, result.seconds)
    print(f"{found} of {len(PLANTED)} planted defects are found, the slowest in {slowest:.1f} s.\n")
    return found >= 18 and slowest <= 60


def print_correct() -> bool:
    """Print what is found of correct operators; return whether that is little enough."""
    alarms = 0
    print(_ROW.format("correct operator", "found by", "", "", "seconds", "", "").rstrip())
    for correct in CORRECT:
        start = time.monotonic()
        found = find_false_alarms(correct, sequences=12, faults=[*FAULTS])
        seconds = time.monotonic() - start
        names = ", ".join(finding.oracle for finding in found) or "nothing"
        print(_ROW.format(correct.name, names, "", "", f"{seconds:.1f}", "", "").rstrip(), flush=True)
        for finding in found:
            print("\n".join(f"    {line}" for line in [str(finding.states), *finding.lines]))
        alarms += len(found)
    print(f"{alarms} false alarms about {len(CORRECT)} correct operators.")
    return alarms <= 1


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    results = [print_planted(), print_correct()]
    sys.exit(0 if all(results) else 1)
