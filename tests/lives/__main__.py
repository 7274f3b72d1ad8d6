"""``python -m tests.lives``: live by seeds, show plans, and shorten those in which something goes wrong."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from tests.lives import planted
from tests.lives.drawing import draw, draw_given
from tests.lives.life import live
from tests.lives.plans import Plan

T = TypeVar("T")


def main() -> int:
    """Parse the arguments, and live."""
    parser = argparse.ArgumentParser(prog="python -m tests.lives", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="the first seed (default: random)")
    parser.add_argument("--lives", type=int, default=1, help="how many seeds")
    parser.add_argument("--seconds", type=float, help="live until so much time has passed")
    parser.add_argument("--having", metavar="NAME", action="append", default=[], help="pass over plans without this")
    parser.add_argument("--parts", metavar="NAMES", help="only lives with these parts, and with --troubles")
    parser.add_argument("--troubles", metavar="NAMES", default="", help="the troubles of lives with --parts")
    parser.add_argument("--together", default="alone", help="how operators live with --parts (default: %(default)s)")
    parser.add_argument("--show", action="store_true", help="print plans")
    parser.add_argument("--first", action="store_true", help="end after the first life with a finding")
    parser.add_argument("--shrink", action="store_true", help="leave out what a finding does not need")
    arguments = parser.parse_args()
    found: collections.Counter[str] = collections.Counter()
    number = 0
    for seed in _seeds(arguments):
        number += 1
        plan = _draw(seed, arguments)
        if not all(map(plan.has, arguments.having)):
            continue
        findings = _report(plan, arguments)
        found.update(findings.keys())
        if findings and arguments.first:
            break
    print(f"{number} lives; findings: {dict(found) or 'none'}")
    return 1 if found else 0


def _draw(seed: int, arguments: argparse.Namespace) -> Plan:
    if arguments.parts is None:
        return draw(seed)
    names, troubles = arguments.parts.split(","), frozenset(filter(None, arguments.troubles.split(",")))
    return draw_given(seed, arguments.together, names, troubles)


def _seeds(arguments: argparse.Namespace) -> Iterator[int]:
    """Yield the seeds, until there were enough, or the time is over."""
    until = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    for seed in range(arguments.seed, sys.maxsize):
        if seed >= arguments.seed + arguments.lives if until is None else time.monotonic() > until:
            return
        yield seed


def _report(plan: Plan, arguments: argparse.Namespace) -> dict[str, str]:
    """Live the life of a plan, print what is to be known of it, and return the findings."""
    if arguments.show:
        print(plan, flush=True)
    begun = time.process_time()
    findings = live(plan)
    for kind, text in findings.items():
        parts = "+".join(part.name for part in plan.parts)
        troubles = ",".join((*sorted(plan.troubles), *plan.options.get("tuning", ())))
        print(f"seed {plan.seed} ({plan.together}, {parts}; {troubles}): {kind}: {text}", flush=True)
    if findings and arguments.shrink:
        print(shrink(plan, set(findings)), flush=True)
    if arguments.show:
        print(f"{time.process_time() - begun:.2f} s of CPU")
    return findings


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
    sys.exit(planted.main(sys.argv[2:]) if sys.argv[1:2] == ["planted"] else main())
