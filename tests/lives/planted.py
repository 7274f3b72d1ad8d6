"""``python -m tests.lives planted``: which defects lives find by themselves, in how many, and by which finding.

Each defect is planted into a copy of the package. Lives are lived with that in a process of its own, until one has a
finding, which the same life without the defect must not have. Those are passed over, and counted, that lack what the
defect is about: they might find it earlier.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Final

import trioperator
from tests.lives.defects import DEFECTS, Defect, Edit
from tests.lives.drawing import draw
from tests.lives.life import live

_PACKAGE: Final = pathlib.Path(trioperator.__file__).parent
_TESTS: Final = pathlib.Path(__file__).parents[2]
_FINDING: Final = re.compile(r"^seed (?P<seed>\d+) \((?P<life>.*?)\): (?P<kind>[^:]+): (?P<text>.*)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Found:
    """What has been found of a defect: in which life, of how many."""

    lives: int
    seed: int
    life: str
    kind: str
    text: str


def plant(edit: Edit, package: pathlib.Path) -> None:
    """Make an edit in a package. Raises ValueError unless its text is there once."""
    path = package / edit.module
    source = path.read_text()
    if (count := source.count(edit.text)) != 1:
        raise ValueError(f"{edit.module} has this {count} times, not once:\n{edit.text}")
    path.write_text(source.replace(edit.text, edit.planted))


@contextlib.contextmanager
def planted(defect: Defect) -> Iterator[pathlib.Path]:
    """Yield a folder with a copy of the package that has a defect."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        package = pathlib.Path(shutil.copytree(_PACKAGE, pathlib.Path(folder, _PACKAGE.name)))  # with what is compiled
        for edit in defect.edits:
            plant(edit, package)
        yield pathlib.Path(folder)


def hunt(defect: Defect, *, seed: int, lives: int) -> Found | None:
    """Live until something is found of a defect, for so many lives at most; return None if nothing is."""
    end, next_seed = seed + lives, seed
    with planted(defect) as folder:
        while next_seed < end:
            output = _live(folder, defect, next_seed, end - next_seed)
            match = _FINDING.search(output)
            if match is None and not output.rstrip().endswith("findings: none"):
                raise RuntimeError(f"The lives of {defect.name!r} end with:\n{output[-2000:]}")
            if match is None:
                return None
            last = int(match["seed"])
            if not live(draw(last)):  # else this life has a finding in any case
                return Found(last - seed + 1, last, match["life"], match["kind"], match["text"])
            next_seed = last + 1
    return None


def _live(folder: pathlib.Path, defect: Defect, seed: int, lives: int) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(_TESTS)])}
    command = [sys.executable, "-m", "tests.lives", "--seed", str(seed), "--lives", str(lives), "--first"]
    for name in defect.having:
        command += ["--having", name]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    """Hunt the defects of these numbers, or all, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.lives planted", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="which defects (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--lives", type=int, default=300, help="how many lives at most, for each defect")
    options = parser.parse_args(arguments)
    chosen = [each for each in DEFECTS if not options.numbers or each.number in options.numbers]
    count = 0
    for defect in chosen:
        found = None if defect.beyond else hunt(defect, seed=options.seed, lives=options.lives)
        count += found is not None
        print(f"{defect.number:2}  {defect.name}\n    {_describe(defect, found, options.lives)}", flush=True)
    print(f"{count} of {len(chosen)} defects are found.")
    return 0 if count == sum(not each.beyond for each in chosen) else 1


def _describe(defect: Defect, found: Found | None, lives: int) -> str:
    if found is not None:
        return f"life {found.lives} (seed {found.seed}: {found.life}): {found.kind}: {found.text[:150]}"
    return f"not by lives: {defect.beyond}" if defect.beyond else f"not found in {lives} lives"
