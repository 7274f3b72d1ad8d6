"""Pyright finds in typed kinds what mypy finds: ``nox -s pyright`` installs it, with the Node.js that it runs on."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import msgspec
import pytest

CHECKED = pathlib.Path(__file__).parent / "typed_checks.py"


def test_pyright_infers_the_types_of_typed_kinds(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("basedpyright", reason="`nox -s pyright` installs basedpyright, of 280 MiB, and runs this")
    shutil.copy(CHECKED, tmp_path / "app.py")  # a program that uses the package, not a part of this project
    (tmp_path / "pyrightconfig.json").write_bytes(
        msgspec.json.encode({"typeCheckingMode": "standard", "enableTypeIgnoreComments": False})
    )
    command = [sys.executable, "-m", "basedpyright", "--outputjson", f"--pythonpath={sys.executable}", "app.py"]
    result = subprocess.run(command, capture_output=True, cwd=tmp_path, check=False, timeout=250)
    found = msgspec.json.decode(result.stdout)["generalDiagnostics"]
    errors = {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}
    lines = CHECKED.read_text().splitlines()
    assert sorted(errors) == [number for number, line in enumerate(lines, 1) if "# type: ignore" in line], found
