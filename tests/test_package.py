"""Tests of the wheel: what is in it, and that it runs without the repository. `nox -s package` also installs it."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import trioperator
from tests.package import ROOT, find_differences, run_operator

#: Extras for users, not for work on the project.
EXTRAS: Final = frozenset({"cel", "kopf", "live-view", "ngrok", "re2", "reload", "testing", "tracing"})
#: Packages that are imported, and why they are not declared.
EXCUSED: Final = {
    "annotationlib": "the standard library has it from Python 3.14 on",
    "click": "programs that have it may use its options",
    "pydantic_core": "only pydantic calls the function, and depends on it",
    "sniffio": "Trio depends on it",
    "typing_extensions": "type checkers have it",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return the wheel of the repository, which is built from the source distribution, as releases are."""
    folder = tmp_path_factory.mktemp("wheel")
    build(ROOT, folder, target="sdist")
    [source] = folder.glob("*.tar.gz")
    safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not before 3.11.4
    shutil.unpack_archive(source, folder / "source", **safely)
    [root] = (folder / "source").iterdir()
    build(root, folder, target="wheel")
    [wheel] = folder.glob("*.whl")
    return wheel


def build(root: pathlib.Path, folder: pathlib.Path, *, target: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", f"--target={target}", f"--directory={folder}"]
    subprocess.run(command, cwd=root, check=True, capture_output=True)


def find_imports(text: str) -> set[str]:
    """Return the packages of others that a module imports, at any time."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found


def test_the_package_imports_only_what_it_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name in EXTRAS for line in lines]
    declared = {canonicalize_name(Requirement(line).name) for line in (*project["dependencies"], *extras)}
    homes = importlib.metadata.packages_distributions().items()
    known = {name for name, found in homes if declared & {canonicalize_name(each) for each in found}}
    known |= {"trioperator", *sys.stdlib_module_names, *EXCUSED}
    for path in (ROOT / "trioperator").rglob("*.py"):
        text = path.read_text()
        if set(re.findall(r"^ *(?:from|import) (\w+)", text, re.MULTILINE)) - known:  # perhaps only in an example
            assert find_imports(text) - known == set(), path


def test_the_wheel_has_all_files_of_the_package_and_nothing_else(wheel: pathlib.Path) -> None:
    assert find_differences(wheel) == []
    with zipfile.ZipFile(wheel) as archive:
        assert {
            "trioperator/py.typed",
            "trioperator/_endpoints/live_view/assets/live.js",
            "trioperator/_endpoints/live_view/templates/layout.html",
        } <= set(archive.namelist())


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
    assert scripts == {"trioperator": "trioperator.cli:main", "trioperator-kopf": "trioperator.kopf.command:main"}
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    log = run_operator([sys.executable, "-m", "trioperator"], tmp_path, environ)
    assert f"Handled one with {tmp_path}/site/trioperator" in log


def test_the_version_is_the_next_one_of_the_changelog() -> None:
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
    assert released == sorted(released, key=Version, reverse=True)
    assert all(Version(trioperator.__version__) >= Version(version) for version in released)
