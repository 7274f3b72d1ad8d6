"""The lives of the operator: one process after another, each killed after a while, at once or in order by turns."""

from __future__ import annotations

import collections
import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys

import trio

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUBJECT = pathlib.Path(__file__).with_name("subject.py")
# Seconds that Kubernetes gives a pod to stop.
_GRACE = 30.0
# Last lines of tracebacks. Those of the subject's own failures are planned.
_EXCEPTION = re.compile(r"^[ |]*((?!ValueError: planned)[\w.]+(?:Error|Exception|Group|Exit)\b.*)$", re.MULTILINE)


class Lives:
    """Processes of the operator. ``problems`` are the ends and the tracebacks that should not have been."""

    def __init__(self, folder: pathlib.Path, kubeconfig: pathlib.Path) -> None:
        self.problems: list[str] = []
        self.counts: collections.Counter[str] = collections.Counter()
        self.journal = folder / "journal"
        self._folder = folder
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": str(ROOT),
            "SOAK_JOURNAL": str(self.journal),
        }
        self._numbers = itertools.count(1)
        self._process: trio.Process | None = None
        self._log = folder

    @property
    def pid(self) -> int:
        """The process that was started last."""
        assert self._process is not None
        return self._process.pid

    async def run(self, *, period: float, until: float) -> None:
        """Run the operator until cancelled. It is killed in each *period*, but not after the time *until*."""
        signals = itertools.cycle([signal.SIGKILL, signal.SIGTERM])
        while True:
            process = await self._start()
            end = trio.current_time() + period
            with trio.move_on_at(end if end < until else float("inf")) as scope:
                await process.wait()
            if scope.cancelled_caught:
                await self.end(next(signals))
            else:
                self._note_exit(process)
                await trio.sleep(1)

    async def end(self, number: signal.Signals) -> None:
        """End the operator by a signal."""
        process = self._process
        assert process is not None
        process.send_signal(number)
        with trio.move_on_after(_GRACE, shield=True) as scope:
            await process.wait()
        self.counts[number.name] += 1
        if scope.cancelled_caught:
            self.problems.append(f"{self._log.name}: it has not stopped {_GRACE:g} s after {number.name}")
            process.kill()
        elif number is signal.SIGTERM and process.returncode != 0 and self._is_ready():
            self.problems.append(f"{self._log.name}: it has stopped with the exit code {process.returncode}")
        self._find_tracebacks()

    def kill(self) -> None:
        """Leave no process behind."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _start(self) -> trio.Process:
        self._log = self._folder / f"operator-{next(self._numbers):03}.log"
        with self._log.open("wb") as log:
            self._process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "trioperator", "run", "-A", str(SUBJECT)],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.counts["started"] += 1
        return self._process

    def _is_ready(self) -> bool:
        return b"The operator is ready." in self._log.read_bytes()

    def _note_exit(self, process: trio.Process) -> None:
        """Note an end without a signal: an operator may give up, but only while it starts."""
        self.counts["could not start"] += 1
        if self._is_ready():
            self.problems.append(f"{self._log.name}: it has ended by itself, with the exit code {process.returncode}")
        self._find_tracebacks()

    def _find_tracebacks(self) -> None:
        text = self._log.read_text(errors="replace")
        if "Traceback (most" in text:
            found = collections.Counter(match[1][:200] for match in _EXCEPTION.finditer(text))
            self.problems += [f"{self._log.name}: {number} times {line}" for line, number in found.items()]
