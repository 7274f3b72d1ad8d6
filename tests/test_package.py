"""Tests of the wheel: what is in it, and that it runs without the repository. `nox -s package` also installs it."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from packaging.version import Version

import trioperator
from tests.package import ROOT, find_differences, run_operator


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return the wheel of the repository."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target=wheel", f"--directory={folder}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def test_the_wheel_has_all_files_of_the_package_and_nothing_else(wheel: pathlib.Path) -> None:
    assert find_differences(wheel) == []
    with zipfile.ZipFile(wheel) as archive:
        assert {"trioperator/py.typed", "trioperator/web/live_view.html"} <= set(archive.namelist())


def test_missing_and_unexpected_files_are_found(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            if name != "trioperator/py.typed":
                target.writestr(name, source.read(name))
        target.writestr("tests/test_package.py", "")
    assert find_differences(other) == ["-trioperator/py.typed", "+tests/test_package.py"]


def test_an_operator_runs_with_the_wheel_alone(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    [distribution] = importlib.metadata.distributions(name="trioperator", path=[str(tmp_path / "site")])
    assert distribution.version == trioperator.__version__
    scripts = {point.name: point.value for point in distribution.entry_points if point.group == "console_scripts"}
    assert scripts == {"trioperator": "trioperator.cli:main"}
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    log = run_operator([sys.executable, "-m", "trioperator"], tmp_path, environ)
    assert f"Handled one with {tmp_path}/site/trioperator" in log


def test_the_version_is_the_next_one_of_the_changelog() -> None:
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
    assert released == sorted(released, key=Version, reverse=True)
    assert all(Version(trioperator.__version__) >= Version(version) for version in released)
