"""Fixtures that run the command, as a process or in this one, and that undo imports."""

from __future__ import annotations

import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeAlias

import pytest
import trio
from typer.testing import CliRunner

import trioperator
from tests import forking
from trioperator.apiserver import Cluster, serve_cluster, write_kubeconfig
from trioperator.cli.root import app

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]
Start: TypeAlias = Callable[..., subprocess.Popen[str]]

#: Runs the command on the cluster: with its arguments, and what it reads.
Command: TypeAlias = Callable[..., Awaitable[subprocess.CompletedProcess[bytes]]]

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Undo the level that a command sets in this process: tests that come later count messages."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> dict[str, str]:
    """Return environment variables without those that configure a cluster or the command."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TRIOPERATOR_", "KUBE"))}
    paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    sources = str(ROOT / ".hypothesis")  # where Hypothesis keeps what it has read in all modules, which takes a second
    return {
        **kept,
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(paths),
        "COLUMNS": "120",
        "HYPOTHESIS_STORAGE_DIRECTORY": sources,
    }


@pytest.fixture
def run(environment: dict[str, str], tmp_path: pathlib.Path) -> Run:
    """Return a function that runs the command and waits for it."""

    def run(*args: str | pathlib.Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return forking.run(args, env={**environment, **variables}, cwd=tmp_path)

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


@pytest.fixture
async def command(
    cluster: Cluster,
    restored_modules: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    nursery: trio.Nursery,
) -> AsyncIterator[Command]:
    """Return a function that runs the command in a thread, as a process of its own takes most of a second.

    The cluster is served over TCP, as the command has an event loop of its own.
    """
    url = str(await nursery.start(serve_cluster, cluster))
    write_kubeconfig(str(tmp_path / "kubeconfig"), cluster.kubeconfig(url))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.chdir(tmp_path)
    registry, handlers, level = trioperator.get_default_registry(), logging.root.handlers[:], logging.root.level

    async def command(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        trioperator.set_default_registry(trioperator.OperatorRegistry())
        done = await trio.to_thread.run_sync(lambda: CliRunner().invoke(app, args, input=stdin))
        return subprocess.CompletedProcess(args, done.exit_code, done.stdout_bytes, done.stderr_bytes)

    yield command
    trioperator.set_default_registry(registry)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    nursery.cancel_scope.cancel()
