"""The page about testing: whoever follows it word by word, from an empty folder, gets what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from tests.docs.pages import read_files

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()
TUTORIAL = PAGE[PAGE.index("## From an empty folder") : PAGE.index("## The operator of a test")]


def test_the_page_can_be_followed_word_by_word(tmp_path: Path) -> None:
    files = read_files("docs/testing.md")
    assert list(files) == ["crd.yaml", "main.py", "test_main.py", "pytest.ini"]
    assert len(files["main.py"].splitlines()) <= 60
    (crashes,) = re.findall(
        r"^```python\n(from trioperator.testing import crash_at.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "test_crashes.py").write_text(f"import pathlib\nfrom test_main import database\n{crashes}")
    plugin = [] if entry_points(group="pytest11", name="trioperator") else ["-p", "trioperator.testing.plugin"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (promised,) = re.findall(r"^(\d passed)$", TUTORIAL, re.MULTILINE)
    assert promised == "3 passed"
    assert "4 passed" in result.stdout, result.stdout + result.stderr  # with the one about crashes


def test_the_extra_brings_what_the_page_needs() -> None:
    assert "pip install 'trioperator[testing]'" in TUTORIAL
    assert '\ntesting = ["pytest>=' in (ROOT / "pyproject.toml").read_text()
