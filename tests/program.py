"""Operators as processes of their own."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import time

from tests.forking import Forked


class Program:
    """An operator in a process of its own, whose log can be waited for."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked, log: pathlib.Path) -> None:
        self.process = process
        self.log = log

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, *, seconds: float = 120, count: int = 1, after: int = 0) -> str:
        """Wait until the output has a text so many times *after* a position; return the output."""
        deadline = time.monotonic() + seconds
        while self.output[after:].count(text) < count:
            assert time.monotonic() < deadline, f"{text!r} is not logged in:\n{self.output}"
            assert self.process.poll() is None or self.output[after:].count(text) >= count, self.output
            time.sleep(0.05)
        return self.output

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)
