"""``python -m tests.alerts``: a day of healthy objects in virtual time, in which no alert may fire; a soak."""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

import trio
from trio.testing import MockClock

from tests.alerts.faults import live_well
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster


async def main(objects: int, hours: float) -> str:
    """Return what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(clock=wall_now, seed=0)
        return await live_well(cluster, pathlib.Path(folder), objects=objects, hours=hours)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1000)
    parser.add_argument("--hours", type=float, default=24)
    options = parser.parse_args()
    problem = trio.run(main, options.objects, options.hours, clock=MockClock(autojump_threshold=0))
    sys.stdout.write(problem or f"{options.objects} objects, {options.hours:g} hours: no alert.\n")
    sys.exit(bool(problem))
