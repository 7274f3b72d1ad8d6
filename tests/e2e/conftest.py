"""Operators on a real control plane, run as a user runs them."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator

import pytest

from tests import forking
from tests.controlplane import ControlPlane
from tests.program import Program


@pytest.fixture
def start_operator(controlplane: ControlPlane, tmp_path: pathlib.Path) -> Iterator[Callable[..., Program]]:
    """Start operators as a user does, against the real control plane."""
    programs: list[Program] = []
    sources: list[str] = []

    def start(source: str, *options: str, ready: bool = True, kubeconfig: pathlib.Path | None = None) -> Program:
        if source not in sources:
            sources.append(source)
        file = tmp_path / f"app{sources.index(source)}.py"  # the same operator is the same file
        file.write_text(source)
        log = tmp_path / f"log{len(programs)}.txt"
        scope = () if any(option in ("-n", "-A") for option in options) else ("-A",)
        with log.open("wb") as out:
            process = forking.start(
                ["run", "--verbose", *scope, *options, file],
                env={**os.environ, "KUBECONFIG": str(kubeconfig or controlplane.folder / "operator.kubeconfig")},
                stdout=out.fileno(),
                stderr=out.fileno(),
            )
        program = Program(process, log)
        programs.append(program)
        if ready:
            program.wait_for("The operator is ready.")
        return program

    try:
        yield start
    finally:
        for program in programs:
            if program.process.poll() is None:
                program.process.kill()
                program.process.wait()
