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


def print_planted() -> bool:
    """Print what is found of planted defects; return whether that is enough."""
    found, slowest = 0, 0.0
    for planted in PLANTED:
        with tempfile.TemporaryDirectory() as folder:
            result = search(planted, pathlib.Path(folder))
        name = "not found" if result.finding is None else result.finding.oracle
        steps = "" if result.finding is None else f"{len(result.finding.states)} states"
        mended = "" if result.is_mended else "  and still there when it is mended"
        print(f"{planted.name:<45}{name:<12}{steps:<10}{result.seconds:6.1f} s{mended}", flush=True)
        found += result.finding is not None and result.is_mended
        slowest = max(slowest, result.seconds)
    print(f"{found} of {len(PLANTED)} planted defects are found, the slowest in {slowest:.1f} s.\n")
    return found >= 18 and slowest <= 60


def print_correct() -> bool:
    """Print what is found of correct operators; return whether that is little enough."""
    alarms = 0
    for correct in CORRECT:
        start = time.monotonic()
        found = find_false_alarms(correct, sequences=12, faults=[*FAULTS])
        seconds = time.monotonic() - start
        names = ", ".join(finding.oracle for finding in found) or "nothing"
        print(f"{correct.name:<45}{names:<22}{seconds:6.1f} s", flush=True)
        for finding in found:
            print("\n".join(f"    {line}" for line in [str(finding.states), *finding.lines]))
        alarms += len(found)
    print(f"{alarms} false alarms about {len(CORRECT)} correct operators.")
    return alarms <= 1


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    results = [print_planted(), print_correct()]
    sys.exit(0 if all(results) else 1)
