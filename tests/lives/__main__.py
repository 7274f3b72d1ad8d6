"""``python -m tests.lives``: live by seeds, show plans, and shorten those in which something goes wrong."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import random
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from tests.lives.drawing import draw
from tests.lives.life import live
from tests.lives.plans import Plan

T = TypeVar("T")


def main() -> int:
    """Parse the arguments, and live."""
    parser = argparse.ArgumentParser(prog="python -m tests.lives", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="the first seed (default: random)")
    parser.add_argument("--lives", type=int, default=1, help="how many seeds")
    parser.add_argument("--seconds", type=float, help="live until so much time has passed")
    parser.add_argument("--show", action="store_true", help="print plans")
    parser.add_argument("--shrink", action="store_true", help="leave out what a finding does not need")
    arguments = parser.parse_args()
    until = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    found: collections.Counter[str] = collections.Counter()
    number = 0
    for seed in range(arguments.seed, sys.maxsize):
        if number >= arguments.lives if until is None else time.monotonic() > until:
            break
        number += 1
        plan = draw(seed)
        if arguments.show:
            print(plan, flush=True)
        begun = time.process_time()
        findings = live(plan)
        found.update(findings.keys())
        for kind, text in findings.items():
            parts = "+".join(part.name for part in plan.parts)
            print(
                f"seed {seed} ({plan.together}, {parts}; {','.join(sorted(plan.troubles))}): {kind}: {text}", flush=True
            )
        if findings and arguments.shrink:
            print(shrink(plan, set(findings)), flush=True)
        if arguments.show:
            print(f"{time.process_time() - begun:.2f} s of CPU")
    print(f"{number} lives; findings: {dict(found) or 'none'}")
    return 1 if found else 0


def shrink(plan: Plan, kinds: set[str]) -> Plan:
    """Return a plan with less in it in which the same goes wrong."""
    plan = _shrink(plan, plan.steps, lambda plan, steps: dataclasses.replace(plan, steps=steps), kinds)
    return _shrink(plan, plan.ambushes, lambda plan, rest: dataclasses.replace(plan, ambushes=rest), kinds)


def _shrink(plan: Plan, rest: tuple[T, ...], put: Callable[[Plan, tuple[T, ...]], Plan], kinds: set[str]) -> Plan:
    size = len(rest)
    while size:
        start = 0
        while start < len(rest):
            fewer = rest[:start] + rest[start + size :]
            if kinds & live(put(plan, fewer)).keys():
                rest = fewer
            else:
                start += size
        size //= 2
    return put(plan, rest)


if __name__ == "__main__":
    sys.exit(main())
