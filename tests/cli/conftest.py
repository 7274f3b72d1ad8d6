"""The command as a process, and loading as it was before."""

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
    """Have nothing in the environment that says where a cluster is, or how to run."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TRIOPERATOR_", "KUBE"))}
    paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "120"}


@pytest.fixture
def run(environment: dict[str, str], tmp_path: pathlib.Path) -> Run:
    """Run the command to its end."""

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
    """Start the command, with its logs in a pipe; what is still there at the end is killed."""
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
    """Forget what was imported meanwhile, and where it was looked for."""
    path, modules = sys.path[:], dict(sys.modules)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules.keys():
        del sys.modules[name]
