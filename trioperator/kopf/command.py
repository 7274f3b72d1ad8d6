"""Kopf's command: the options and environment variables of ``kopf run``, ``kopf freeze`` and ``kopf resume``."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from trioperator.cli import CLIControls
from trioperator.cli import main as run_command
from trioperator.kopf.imports import install
from trioperator.kopf.running import operator
from trioperator.kopf.settings import OperatorSettings

# Names of environment variables that differ: ours of the command, by Kopf's.
_RENAMED: Final = {"PEERING": "NAME", "CLUSTERWIDE": "ALL_NAMESPACES"}
# Variables that freeze and resume share.
_LOGS: Final = ("VERBOSE", "DEBUG", "QUIET", "LOG_FORMAT", "LOG_PREFIX", "LOG_REFKEY")
_SHARED: Final = ("ID", "NAMESPACES", *_LOGS, *_RENAMED)


def main(args: Sequence[str] | None = None, *, controls: CLIControls | None = None) -> None:
    """Run Kopf's command with *args*, by default the arguments of the process, and exit."""
    given = sys.argv[1:] if args is None else args
    with install(), kopf_environment(given):
        run_command(given, controls=controls_for_kopf(controls))


def controls_for_kopf(controls: CLIControls | None) -> CLIControls:
    """Return the controls of a command that runs operators that were written for Kopf."""
    controls = controls or CLIControls()
    return dataclasses.replace(controls, operate=operator, settings=controls.settings or OperatorSettings())


def _find_command(args: Sequence[str]) -> str:
    return next((arg for arg in args if not arg.startswith("-")), "")


@contextlib.contextmanager
def kopf_environment(args: Sequence[str]) -> Iterator[None]:
    """Let the command also read its options from Kopf's environment variables, ``KOPF_RUN_…``, within the block."""
    command = _find_command(args).upper()
    prefix = f"KOPF_{command}_"
    found = {name.removeprefix(prefix): value for name, value in os.environ.items() if name.startswith(prefix)}
    ours = {_rename(command, name): value for name, value in found.items()}
    added = {name: value for name, value in ours.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _rename(command: str, name: str) -> str:
    """Return our name of one of Kopf's environment variables."""
    if command != "RUN" and name in _SHARED:
        return f"TRIOPERATOR_PEERING_{_RENAMED.get(name, name)}"
    return f"TRIOPERATOR_{command}_{name}"
