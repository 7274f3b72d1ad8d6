"""``python -m tests.fuzz apiserver``: attack the embedded API server, and print what it did not withstand."""

from __future__ import annotations

import argparse
import time

from tests.fuzz.apiserver import attack


def main() -> int:
    """Run rounds with one seed after the other until the time is over; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=["apiserver"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first round; each has the next one")
    parser.add_argument("--requests", type=int, default=50, help="requests in each round")
    options = parser.parse_args()
    end, seed, failures = time.monotonic() + options.seconds, options.seed, 0
    while seed == options.seed or time.monotonic() < end:
        for problem in attack(seed, requests=options.requests):
            failures += 1
            print(f"seed {seed}: {problem}", flush=True)  # noqa: T201 - it is a command
        seed += 1
    print(f"{seed - options.seed} rounds of {options.requests} requests, {failures} problems")  # noqa: T201
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
