"""``python -m tests.bench ledger``: instructions that the ledger and the guard against contention take in a storm.

The operator of the benchmark runs under callgrind, without and with them: what they take is the difference. The
embedded API server is another process, whose work does not count. The kernel's does not either, so the shares are
higher than those of CPU time.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Final

from tests.bench.environments import find_trioperator
from tests.bench.objects import clear_objects, prepare
from tests.bench.processes import OperatorProcess, open_operator
from tests.bench.scenarios import Run, Sizes
from tests.bench.servers import ApiServer, open_embedded

# Of a CPU that an idle operator may take, under callgrind.
_IDLE: Final = 0.2
# Of the instructions that the ledger and the guard may take.
_GOAL: Final = 0.02
# Of the changes in a storm of 1,000 objects in a second, those of which the ledger finds the fields: 50, and then 50 a
# second. Each object changes once, or five times.
_WITH_FIELDS: Final = {"create": 0.0, "update": 0.1, "delete": 0.0, "events": 0.02}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """An operator under callgrind."""

    operator: OperatorProcess
    output: pathlib.Path

    def count(self) -> int:
        """Return the instructions since the last call, once the operator is idle."""
        self.operator.wait_until_idle(quiet=2.0, share=_IDLE)
        known = set(self.output.parent.glob(f"{self.output.name}*"))
        subprocess.run(["vgdb", f"--pid={self.operator.pid}", "dump"], check=True, capture_output=True)
        (dump,) = set(self.output.parent.glob(f"{self.output.name}*")) - known
        found = re.search(r"^(?:summary|totals): (\d+)", dump.read_text(), re.MULTILINE)
        assert found is not None, f"callgrind has written no sum to {dump}"
        return int(found[1])


@contextlib.contextmanager
def _open_counted(server: ApiServer, folder: pathlib.Path, kind: str, *, what: str) -> Iterator[Counted]:
    output = folder / "callgrind"
    framework = find_trioperator()
    options = ["--tool=callgrind", f"--callgrind-out-file={output}"]
    variables = {"PYTHONHASHSEED": "0", "BENCH_COUNTED": what}
    framework = dataclasses.replace(framework, prefix=("valgrind", *options))
    kubeconfig = server.operator_kubeconfig
    with open_operator(
        framework, kubeconfig=kubeconfig, handlers=kind, style="async", folder=folder, variables=variables
    ) as operator:
        yield Counted(operator=operator, output=output)


def _count_lifecycle(server: ApiServer, folder: pathlib.Path, count: int, *, what: str) -> dict[str, int]:
    found = {}
    with _open_counted(server, folder, "lifecycle", what=what) as counted:
        run = Run(framework=find_trioperator(), server=server, style="async", sizes=Sizes(), folder=folder)
        for number in (1, count):  # the first time is for what is done only once
            for operation in ("create", "update", "delete"):
                run.load(operation, number)
                counted.operator.wait_for(operation, number)
                if operation == "delete":
                    run.wait_until_gone()
                found[operation] = counted.count()
            counted.operator.journal.forget()
    return found


def _count_events(server: ApiServer, folder: pathlib.Path, count: int, *, what: str) -> dict[str, int]:
    with _open_counted(server, folder, "events", what=what) as counted:
        run = Run(framework=find_trioperator(), server=server, style="async", sizes=Sizes(), folder=folder)
        run.load("create", count)
        counted.operator.wait_for("event", count)
        counted.count()
        counted.operator.journal.forget()
        run.load("update", count, repeats=5)
        counted.operator.wait_for("event", count)
        return {"events": counted.count()}


def main(arguments: list[str]) -> int:
    """Count and print. Returns 1 if their share of the whole storm is above two per cent, 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench ledger", description=__doc__)
    parser.add_argument("--objects", type=int, default=50, help="how many (default: %(default)s)")
    options = parser.parse_args(arguments)
    if shutil.which("vgdb") is None:
        parser.error("valgrind is needed, whose tool callgrind counts")
    counts: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(prefix="trioperator-bench-") as name:
        folder = pathlib.Path(name)
        with open_embedded(folder=folder / "server") as server:
            prepare(server.kubeconfig)
            for what in ("none", "storm", "fields"):
                counts[what] = _count_lifecycle(server, folder / what / "lifecycle", options.objects, what=what)
                counts[what] |= _count_events(server, folder / what / "events", options.objects, what=what)
                clear_objects(server.kubeconfig)
                print(what, counts[what], file=sys.stderr, flush=True)
    print(f"{'thousands of instructions per object':<40}{'ledger':>10}{'fields':>10}{'all':>10}{'share':>10}")
    taken, all_together = 0.0, 0.0
    for phase, without in counts["none"].items():
        own, fields = counts["storm"][phase] - without, counts["fields"][phase] - counts["storm"][phase]
        spent = own + _WITH_FIELDS[phase] * fields
        taken, all_together = taken + spent, all_together + without + spent
        each = "".join(f"{number / 1000 / options.objects:>10.1f}" for number in (own, fields, without + spent))
        print(f"{phase:<40}{each}{spent / (without + spent):>10.2%}")
    print(f"{'storm':<70}{taken / all_together:>10.2%}")
    return 1 if taken > _GOAL * all_together else 0
