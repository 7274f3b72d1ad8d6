"""Running one operator and reading off what it uses: CPU, memory, and the journal of its handlers' calls."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Final

from tests.bench.objects import GROUP, PLURAL, VERSION

HERE = pathlib.Path(__file__).resolve().parent
_SCHEDULED = 2  # the kernel's number of the clock that counts a process' time on a CPU, all threads, dead ones too


class RunFailed(Exception):
    """Raised when an operator did not do what it was started for."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework under measurement, and the interpreter that has it; or a *program* that is an operator as it is."""

    name: str
    version: str
    python: pathlib.Path
    environment: dict[str, str]
    program: pathlib.Path | None = None
    prefix: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """The beginning of its command line."""
        return [*self.prefix, str(self.python), "-m", self.name]

    def run(self, *, handlers: str, style: str, journal: pathlib.Path) -> tuple[list[str], dict[str, str]]:
        """Return the command that runs its operator, and the environment variables."""
        if self.program is not None:
            return [str(self.program)], {"ROLE": _ROLES[handlers], "OUT": str(journal)}
        election = ["--leader-elect"] if "lease" in os.environ.get("BENCH_WITH", "") else []
        command = [*self.command, "run", "-A", "--standalone", *election, str(HERE / "subject.py")]
        return command, {
            **self.environment,
            "BENCH_FRAMEWORK": self.name,
            "BENCH_STYLE": style,
            "BENCH_RESOURCE": f"{GROUP}/{VERSION}/{PLURAL}",
            "BENCH_HANDLERS": "lifecycle" if handlers == "resume" else handlers,
            "BENCH_JOURNAL": str(journal),
        }


# What the handlers of the subject are called in the environment of a program.
_ROLES: Final = {"lifecycle": "storm", "resume": "resume", "events": "event"}


def cpu_seconds(pid: int) -> float:
    """Return the user and system time that a process has used so far, in seconds, to the microsecond (Linux only)."""
    return time.clock_gettime((~pid << 3) | _SCHEDULED)


def resident_mib(pid: int) -> float:
    """Return a process' resident memory in MiB."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RunFailed(f"process {pid} has no memory: it has ended")


class Journal:
    """The output of the handlers so far."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.counts: collections.Counter[str] = collections.Counter()
        self.first: dict[tuple[str, str], int] = {}
        """When a handler was first called for an object, in monotonic nanoseconds."""
        self.latest = 0
        self._offset = 0
        path.write_bytes(b"")

    def read(self) -> None:
        """Take in the lines that are new."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode().splitlines():
            what, name, at = line.split()
            what, when = what.partition(":")[0], _parse_time(at)
            self.counts[what] += 1
            self.first.setdefault((what, name), when)
            self.latest = max(self.latest, when)

    def forget(self) -> None:
        """Begin to count from zero."""
        self.read()
        self.counts.clear()
        self.first.clear()
        self.latest = 0


def _parse_time(text: str) -> int:
    """Return the time of a call in monotonic nanoseconds; programs may write the wall time, in seconds."""
    if "." not in text:
        return int(text)
    return round((float(text) - time.time() + time.monotonic()) * 1e9)


class OperatorProcess:
    """One running operator."""

    def __init__(self, process: subprocess.Popen[bytes], *, journal: Journal, log: pathlib.Path) -> None:
        self.journal = journal
        self.started_at = time.monotonic_ns()
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        """The process' number."""
        return self._process.pid

    def cpu(self) -> float:
        """Return the CPU seconds used since the process began."""
        self._check()
        return cpu_seconds(self.pid)

    def memory(self) -> float:
        """Return the resident memory in MiB."""
        self._check()
        return resident_mib(self.pid)

    def wait_for(self, what: str, count: int, *, timeout: float = 300.0) -> None:
        """Wait until a handler has been called for so many objects."""
        deadline = time.monotonic() + timeout
        while True:
            self._check()
            self.journal.read()
            seen = sum(1 for kind, _ in self.journal.first if kind == what)
            if seen >= count:
                return
            if time.monotonic() > deadline:
                raise RunFailed(f"'{what}' was called for {seen} objects of {count} in {timeout:.0f} s\n{self.tail()}")
            time.sleep(0.05)

    def wait_until_idle(self, *, quiet: float = 1.0, share: float = 0.02, timeout: float = 120.0) -> None:
        """Wait until the process uses less than *share* of a CPU for *quiet* seconds."""
        deadline = time.monotonic() + timeout
        before, since = self.cpu(), time.monotonic()
        while time.monotonic() < since + quiet:
            if time.monotonic() > deadline:
                raise RunFailed(f"the operator is not idle after {timeout:.0f} s\n{self.tail()}")
            time.sleep(0.1)
            if self.cpu() - before > quiet * share:
                before, since = self.cpu(), time.monotonic()

    def stop(self, *, timeout: float = 30.0) -> tuple[int, float]:
        """Ask the operator to end. Returns its exit code and the seconds that it took; kills it after *timeout*."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return code, time.monotonic() - began

    def tail(self, lines: int = 30) -> str:
        """Quote the end of the operator's log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def _check(self) -> None:
        if (code := self._process.poll()) is not None:
            raise RunFailed(f"the operator ended with code {code}:\n{self.tail()}")


@contextlib.contextmanager
def open_operator(
    framework: Framework,
    *,
    kubeconfig: pathlib.Path,
    handlers: str,
    style: str,
    folder: pathlib.Path,
    variables: Mapping[str, str],
) -> Iterator[OperatorProcess]:
    """Run the operator; it is killed at the end if it has not been stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    log, journal = folder / "operator.log", Journal(folder / "journal")
    command, own = framework.run(handlers=handlers, style=style, journal=journal.path)
    environment = {**os.environ, **own, "KUBECONFIG": str(kubeconfig), **variables}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield OperatorProcess(process, journal=journal, log=log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
