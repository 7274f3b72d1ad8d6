"""``python -m tests.world``: public operators under Kopf, unchanged by the bridge, and natively, side by side.

Each is played on an embedded API server: create, change, restart, delete. What is stored after each step must be what
is stored under Kopf. The differences are in build/world/NAME.MODE.diff, the logs beside them; NAME.kopf.diff shows how
plays under Kopf differ from each other.
With ``--real``, they are played on control planes of the programs in ``$KUBEBUILDER_ASSETS``, where no pod runs.
``$WORLD_REPOSITORIES`` is a folder with checkouts, or bare repositories, of the operators; those that it lacks are
missing, as is said at first. Without it, they are cloned.
Each verdict is also written to build/world/verdicts.jsonl: after an interruption, ``--resume`` plays the rest, and what
was not the same.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import trio

from tests.controlplane import HOW
from tests.world import (  # noqa: F401 -- add to the table
    application_operators,
    further_operators,
    held_out_operators,
    later_operators,
    latest_operators,
    more_operators,
    newer_operators,
    platform_operators,
    rare_operators,
    unseen_operators,
    unusual_operators,
    webhook_operators,
)
from tests.world.operators import OPERATORS, Operator
from tests.world.playing import APART, MODES, RESULTS, Play, play
from tests.world.records import Records
from tests.world.sources import VARIABLE, Missing, find_checkout, find_missing, find_version, read_commit
from tests.world.states import compare
from trioperator import configure

# Handlers of some operators race: what differs is played a few times, until Kopf has differed from itself, too.
_PLAYS = 3
_SKIPPED = "skipped"
# They wait most of the time.
_AT_ONCE = 5 * (os.cpu_count() or 1)


class Verdict:
    """What came of one operator."""

    def __init__(self, operator: Operator, modes: Sequence[str], *, real: bool = False) -> None:
        self.operator, self.real = operator, real
        self.commit = ""
        self.plays: dict[str, list[Play]] = {mode: [] for mode in modes if mode != "native" or operator.native}
        self.words: dict[str, str] = {}
        self.failed = False

    def restore(self, record: Mapping[str, Any]) -> None:
        """Take over what an interrupted run has found."""
        self.commit, self.words = f"{record['commit']}, of the run that is resumed", record["words"]

    def differences(self, mode: str) -> list[str]:
        """Return how a mode differs from Kopf, at least: handlers may race, also under Kopf."""
        pairs = [(kopf.states, found.states) for kopf in self.plays.get("kopf", ()) for found in self.plays[mode]]
        return min((compare(*states) for states in pairs), key=len, default=[])

    def variations(self) -> list[str]:
        """Return how plays under Kopf differ from each other."""
        kopf = [play.states for play in self.plays.get("kopf", ())]
        return max((compare(*pair) for pair in itertools.combinations(kopf, 2)), key=len, default=[])

    def unexplained(self, mode: str) -> list[str]:
        """Return how plays of a mode differ from those of Kopf, unless these differ from each other as well."""
        if self.variations():
            return []
        pairs = [(kopf.states, found.states) for kopf in self.plays.get("kopf", ()) for found in self.plays[mode]]
        return max((compare(*pair) for pair in pairs), key=len, default=[])

    def to_play(self) -> list[str]:
        """Return the modes that are to be played again: those that differ, and Kopf."""
        open_modes = [mode for mode in self.plays if mode != "kopf" and mode not in self.words]
        found = [mode for mode in open_modes if self.differences(mode) or self.unexplained(mode)]
        return [mode for mode in self.plays if mode == "kopf" or mode in found] if found else []

    def describe(self) -> None:
        """Find the words for the table; the differences are written to files."""
        for mode, plays in self.plays.items():
            if mode not in self.words:
                self.words[mode] = describe(self, mode, plays)
                self.failed |= self.words[mode].startswith(("differs", "ends by itself"))


async def judge(operator: Operator, modes: Sequence[str], scratch: pathlib.Path, *, real: bool = False) -> Verdict:
    """Play an operator in the modes, and compare what is stored. What differs is played again."""
    verdict = Verdict(operator, modes, real=real)
    if sys.version_info[:2] < operator.python:
        verdict.commit, verdict.words = _SKIPPED, {"": f"needs Python {'.'.join(map(str, operator.python))}"}
        return verdict
    try:
        if operator.repository is None:
            checkout = scratch / operator.name
            checkout.mkdir()
            verdict.commit = find_version(operator.name)
        else:
            own = scratch / f"{operator.name}.repository"  # several may be from one
            checkout = await trio.to_thread.run_sync(find_checkout, operator.repository, own)
            verdict.commit = read_commit(checkout)
    except Missing as error:
        verdict.commit = f"missing: {error}"
        return verdict
    wanted = list(verdict.plays)
    for number in range(_PLAYS):
        for mode in wanted:
            await play_once(verdict, mode, checkout, scratch / f"{operator.name}.{mode}-{number}")
        wanted = verdict.to_play()
    verdict.describe()
    return verdict


async def play_once(verdict: Verdict, mode: str, checkout: pathlib.Path, home: pathlib.Path) -> None:
    """Play an operator in one mode, and keep its log."""
    name = verdict.operator.name
    home.mkdir()  # noqa: ASYNC240 -- the next step copies a whole checkout
    try:
        verdict.plays[mode].append(await play(verdict.operator.act, mode, checkout, home, real=verdict.real))
    except Exception as error:  # noqa: BLE001 -- one of many
        verdict.words[mode], verdict.failed = f"failed: {error!r}", True
        (RESULTS / f"{name}.{mode}.error").write_text(traceback.format_exc())
    if (home / "log").exists():
        shutil.copy(home / "log", RESULTS / f"{name}.{mode}.log")


def describe(verdict: Verdict, mode: str, plays: Sequence[Play]) -> str:
    """Return what came of a mode, in words for the table; the differences are written to a file."""
    found = plays[-1]
    (cost,) = (max(found.costs, key=lambda cost: cost.memory, default=None),)
    used = f"{sum(c.cpu for c in found.costs):.1f} s CPU, {cost.memory:.0f} MiB" if cost else ""
    stops = "/".join(f"{c.exit_code} in {c.stopped_in:.1f} s" for c in found.costs)
    path = RESULTS / f"{verdict.operator.name}.{mode}.diff"
    path.unlink(missing_ok=True)
    word = f"{len(found.states)} states"
    if mode != "kopf" and verdict.plays.get("kopf"):
        always, lines = verdict.differences(mode), verdict.differences(mode) or verdict.unexplained(mode)
        steps = ", ".join(line[2:] for line in lines if line.startswith("^ "))
        again = f" in one of {len(plays)} plays; Kopf differs from itself, too" if len(plays) > 1 else ""
        word = f"differs{'' if always else ' at times, as Kopf does not'}: {steps}" if steps else f"same{again}"
    else:
        lines = verdict.variations()
    if lines:
        path.write_text("\n".join(lines) + "\n")
    if any(cost.ended_itself for cost in found.costs):
        word = f"ends by itself, {word}"
    (RESULTS / f"{verdict.operator.name}.{mode}.states").write_text(
        "".join(f"== {step}\n" + "".join(f"{line}\n" for line in lines) for step, lines in found.states.items())
    )
    return f"{word} ({used}; exit {stops})"


async def judge_apart(operator: Operator, modes: Sequence[str], *, real: bool) -> Verdict:
    """Judge an operator in a folder that is removed at once: it has a whole checkout for each play."""
    folder = tempfile.mkdtemp()
    try:
        return await judge(operator, modes, pathlib.Path(folder), real=real)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(shutil.rmtree, folder)


class Schedule:
    """Operators that are still to be played, those that share ports with most others first: they take longest."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        shared = collections.Counter(port for each in operators for port in each.ports)
        self._left = sorted(operators, key=lambda each: -sum(shared[port] for port in each.ports))
        self._taken: set[int] = set()
        self._changed = trio.Condition()

    async def work(self, play: Callable[[Operator], Awaitable[None]]) -> None:
        """Play operators one after the other, each while nobody else has its ports, until none are left."""
        while (operator := await self._take()) is not None:
            try:
                await play(operator)
            finally:
                with trio.CancelScope(shield=True):
                    async with self._changed:
                        self._taken.difference_update(operator.ports)
                        self._changed.notify_all()

    async def _take(self) -> Operator | None:
        async with self._changed:
            while self._left:
                for operator in self._left:
                    if self._taken.isdisjoint(operator.ports):
                        self._left.remove(operator)
                        self._taken.update(operator.ports)
                        return operator
                await self._changed.wait()
            return None


async def judge_all(
    operators: Sequence[Operator], modes: Sequence[str], at_once: int, records: Records, *, real: bool = False
) -> list[Verdict]:
    """Judge the operators, some at once, and print each verdict."""
    verdicts: list[Verdict] = []
    schedule = Schedule(operators)

    async def one(operator: Operator) -> None:
        began = trio.current_time()
        if record := records.find(operator.name):
            verdict = Verdict(operator, modes, real=real)
            verdict.restore(record)
        else:
            verdict = await judge_apart(operator, modes, real=real)
            if verdict.words and verdict.commit != _SKIPPED:
                records.add(operator.name, commit=verdict.commit, words=verdict.words, failed=verdict.failed)
        verdicts.append(verdict)
        place = f"{len(verdicts)} of {len(operators)}, {trio.current_time() - began:.0f} s"
        print(f"{operator.name} ({verdict.commit}; {place})", flush=True)
        for mode, words in verdict.words.items():
            print(f"    {mode:8} {words}", flush=True)

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(schedule.work, one)
    return verdicts


def write_requirements(operators: Sequence[Operator]) -> None:
    """Write a file with what all operators import, and one for each that needs other versions of something.

    Those that this Python cannot play need nothing.
    """
    APART.mkdir(parents=True, exist_ok=True)
    played = [each for each in operators if sys.version_info[:2] >= each.python]
    lines = sorted({line for each in played for line in each.requirements})
    (RESULTS / "requirements.txt").write_text("\n".join(lines) + "\n")
    for each in played:
        if each.apart:
            (APART / f"{each.name}.txt").write_text("\n".join(each.apart) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description="Play public operators, and compare.")
    parser.add_argument("names", nargs="*", help=f"only these of {', '.join(OPERATORS)}")
    parser.add_argument("--modes", default=",".join(MODES), help="separated by commas: kopf, bridge, native")
    parser.add_argument("--at-once", type=int, default=_AT_ONCE, help="how many are played at the same time")
    parser.add_argument("--resume", action="store_true", help="play what an interrupted run has not found to be right")
    parser.add_argument("--requirements", action="store_true", help="only write what the operators import, to files")
    parser.add_argument("--real", action="store_true", help="on control planes of $KUBEBUILDER_ASSETS, without nodes")
    options = parser.parse_args()
    if options.real and not os.environ.get("KUBEBUILDER_ASSETS"):
        parser.error(HOW)
    if unknown := set(options.names) - OPERATORS.keys():
        parser.error(f"unknown operators: {', '.join(sorted(unknown))}")
    chosen = [OPERATORS[name] for name in options.names or OPERATORS]
    if options.requirements:
        write_requirements(chosen)
        return
    configure(quiet=True)
    # A timeout must not leave operators behind. Trio knows when SIGINT may raise, but handles no SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    RESULTS.mkdir(parents=True, exist_ok=True)
    modes = options.modes.split(",")
    if missing := find_missing(each.repository for each in chosen):
        print(f"Missing: put checkouts of {', '.join(missing)} into ${VARIABLE}, as OWNER+NAME.", flush=True)
    records = Records(RESULTS, modes, real=options.real, resume=options.resume)
    call = functools.partial(judge_all, chosen, modes, options.at_once, records, real=options.real)
    sys.exit(summarize(trio.run(call)))


def summarize(verdicts: Sequence[Verdict]) -> bool:
    """Print how many operators do the same, and which do not. Returns whether any differs or is missing."""
    failed = sorted(verdict.operator.name for verdict in verdicts if verdict.failed)
    missing = sorted(verdict.operator.name for verdict in verdicts if not verdict.words)
    skipped = sorted(verdict.operator.name for verdict in verdicts if verdict.commit == _SKIPPED)
    played = len(verdicts) - len(missing) - len(skipped)
    print(f"{played - len(failed)} of {played} operators do the same.")
    for title, names in (("These do not", failed), ("Missing", missing), ("Skipped on this Python", skipped)):
        if names:
            print(f"{title}: {', '.join(names)}.")
    return bool(failed or missing)


if __name__ == "__main__":
    main()
