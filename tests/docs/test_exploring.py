"""The page about exploring, followed word by word."""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess
import sys

from tests.docs.pages import ROOT, read_blocks, read_commands, read_files
from trioperator.testing.exploring.oracles import ORACLES
from trioperator.testing.exploring.perturbations import FAULTS

PAGE = "docs/exploring.md"


def test_the_first_look_shows_what_the_page_says(tmp_path: pathlib.Path) -> None:
    files = read_files(PAGE)
    assert list(files) == ["crd.yaml", "app.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (command, output), *_ = [each for each in read_commands(PAGE) if "explore app.py" in each[0]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", *shlex.split(command), "--seconds=300"]  # longer than the default, on a busy machine
    result = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith(output.removesuffix("…\n")), result.stdout


def test_the_test_on_the_page_fails_for_the_finding_alone(tmp_path: pathlib.Path) -> None:
    for name, text in read_files(PAGE).items():
        (tmp_path / name).write_text(text)
    (block,) = (each for each in read_blocks(PAGE, "python") if "check_states(" in each.text)
    (tmp_path / "test_app.py").write_text(block.text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert "1 failed" in result.stdout, result.stdout + result.stderr
    assert "ConfigMap default/example should not be there" in result.stdout


def test_each_oracle_and_each_fault_has_a_section() -> None:
    headings = {block for block in (ROOT / PAGE).read_text().splitlines() if block.startswith("### ")}
    assert {f"### {name}" for name in (*ORACLES, *FAULTS)} <= headings
