"""Tests for :mod:`trioperator.cli.root`: the help and the version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TypeAlias

import pytest

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


def test_help_cuts_no_sentence(run: Run) -> None:
    result = run("--help")
    assert "without a cluster" in result.stdout
    assert "..." not in result.stdout.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("command", "option"), [("manifests", "--replicas"), ("run", "--priority"), ("explore", "--steps")]
)
def test_help_says_in_words_what_numbers_an_option_takes(run: Run, command: str, option: str) -> None:
    text = run(command, "--help").stdout
    assert f"{option} NUMBER" in " ".join(text.split())
    assert "<int" not in text
    assert " range>" not in text


def test_no_arguments_are_a_usage_error(run: Run) -> None:
    assert run().returncode == 2
    result = run("run")
    assert result.returncode == 2
    assert "pass files or modules (-m) with handlers" in result.stderr


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        (
            "trioperator",
            "trioperator._supervisor.tree trioperator._kube.api_client trioperator.client trioperator.helpers.logins",
        ),
        (
            "trioperator._supervisor.tree",
            "trioperator._reconciling trioperator._webhooks.service trioperator._webhooks.server httpx",
        ),
        (
            "trioperator.cli.root",
            "trioperator.apiserver trioperator.cli.embedded trioperator.cli.loading yaml hypercorn",
        ),
    ],
)
def test_nothing_is_loaded_that_only_some_commands_need(module: str, heavy: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert set(heavy.split()) & set(result.stdout.split()) == set()


@pytest.mark.parametrize(
    ("words", "expected"), [("trioperator ch", {"check"}), ("trioperator run --embed", {"--embedded"})]
)
def test_shells_complete_commands_and_options(environment: dict[str, str], words: str, expected: set[str]) -> None:
    code = "import sys; sys.argv[0] = 'trioperator'; from trioperator.cli import main; main()"
    variables = {"_TRIOPERATOR_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert expected <= set(result.stdout.split())


def test_only_the_root_command_has_the_options_that_install_completion(run: Run) -> None:
    assert "--install-completion" in run("--help").stdout
    assert "--install-completion" not in run("run", "--help").stdout
