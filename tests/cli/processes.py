"""The output of commands that run in processes."""

from __future__ import annotations

import subprocess


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stderr is not None
    lines = ""
    for line in process.stderr:
        lines += line
        if text in line:
            return lines
    raise AssertionError(f"There is no {text!r} in: {lines}")


def read_rest(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=120)[1]
