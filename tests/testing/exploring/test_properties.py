"""Tests for :mod:`trioperator.testing.exploring.properties`: tests of users, as exploring.md has them."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

from tests.testing.exploring.forgetful import FORGETFUL
from tests.testing.exploring.operators import GOOD, write_crd

ROOT = pathlib.Path(__file__).parents[3]
TEST = """\
import pytest
from trioperator.testing import explores

@pytest.fixture
def other():
    return 1

@explores("webapps", "app.py", crds=["crd.yaml"], steps=2, max_examples=4)
def test_the_way_does_not_matter(other, play):
    assert other == 1
    play.check("path", "revert")
"""


def run(folder: pathlib.Path, source: str, *, max_examples: int = 4) -> str:
    (folder / "app.py").write_text(source)
    (folder / "test_app.py").write_text(TEST.replace("max_examples=4", f"max_examples={max_examples}"))
    write_crd(folder)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=1"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return result.stdout + result.stderr


def test_a_good_operator_passes(tmp_path: pathlib.Path) -> None:
    assert "1 passed" in run(tmp_path, GOOD)


def test_a_finding_is_shrunk_by_hypothesis(tmp_path: pathlib.Path) -> None:
    output = run(tmp_path, FORGETFUL, max_examples=40)
    assert "1 failed" in output, output
    shown = r"play=.*\[\{'spec': \{'greeting': '\w+'\}\}, \{'spec': \{\}\}\]"
    assert re.search(shown, output, re.DOTALL), output[-2000:]
