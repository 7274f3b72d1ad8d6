"""Fixtures that run the command as a process, and that undo imports."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
Start: TypeAlias = Callable[..., subprocess.Popen[str]]

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    """Return environment variables without those that configure a cluster or the command."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TRIOPERATOR_", "KUBE"))}
    paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "120"}


@pytest.fixture
def run(environment: dict[str, str], tmp_path: pathlib.Path) -> Run:
    """Return a function that runs the command and waits for it."""

    def run(*args: str | pathlib.Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trioperator", *args],
            env={**environment, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def start(environment: dict[str, str], tmp_path: pathlib.Path) -> Iterator[Start]:
    """Return a function that starts the command with its logs in a pipe; afterwards the processes are killed."""
    processes: list[subprocess.Popen[str]] = []

    def start(*args: str | pathlib.Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "trioperator", *args],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    try:
        yield start
    finally:
        for process in processes:
            with process:
                process.kill()


@pytest.fixture
def restored_modules() -> Iterator[None]:
    """Restore ``sys.path`` and ``sys.modules`` afterwards."""
    path, modules = sys.path[:], dict(sys.modules)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules.keys():
        del sys.modules[name]
