"""Tests for :mod:`trioperator.cli.root`: the help and the version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TypeAlias

import trioperator

Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


def test_version(run: Run) -> None:
    result = run("--version")
    assert result.returncode == 0
    assert result.stdout == f"trioperator, version {trioperator.__version__}\n"


def test_help_shows_options_with_their_variables(run: Run) -> None:
    result = run("run", "--help")
    assert result.returncode == 0
    assert "--log-format" in result.stdout
    assert "TRIOPERATOR_RUN_NAMESPACES" in result.stdout


def test_no_arguments_are_a_usage_error(run: Run) -> None:
    assert run().returncode == 2
    result = run("run")
    assert result.returncode == 2
    assert "pass files or modules (-m) with handlers" in result.stderr


def test_help_does_not_load_what_only_commands_need() -> None:
    code = "import sys, trioperator.cli.root; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    heavy = {"trioperator.apiserver", "trioperator.cli.embedded", "trioperator.cli.loading", "yaml", "hypercorn"}
    assert heavy & set(result.stdout.split()) == set()
