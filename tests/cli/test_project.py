"""Tests for :mod:`trioperator.cli.project`: which modules are an operator's own."""

from __future__ import annotations

import os
import pathlib
import tempfile

import pytest

import trioperator
from trioperator.cli.loading import load_file, load_module
from trioperator.cli.project import find_project_modules, find_roots, is_library


@pytest.fixture
def project(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, restored_modules: None) -> pathlib.Path:
    """Return the directory of a file that imports a package of the project and a library in it."""
    root = tmp_path / "project"
    library = root / ".venv" / "lib" / "site-packages"
    (root / "own_package").mkdir(parents=True)
    library.mkdir(parents=True)
    (root / "own_package" / "__init__.py").write_text("")
    (root / "own_package" / "part.py").write_text("")
    (library / "installed_library.py").write_text("")
    (root / "main.py").write_text("import own_package.part, installed_library, tempfile, trioperator\n")
    monkeypatch.syspath_prepend(str(library))
    monkeypatch.chdir(root)
    return root


def test_modules_in_the_directories_of_the_files_are_the_projects(project: pathlib.Path) -> None:
    load_file("main.py")
    found = find_project_modules(["main.py"], [])
    assert found == {
        "__trioperator_script_0__main%2Epy": str(project / "main.py"),
        "own_package": str(project / "own_package" / "__init__.py"),
        "own_package.part": str(project / "own_package" / "part.py"),
    }


def test_packages_are_those_of_the_modules(project: pathlib.Path) -> None:
    load_module("own_package.part")
    assert find_roots([], ["own_package.part", "not_imported"]) == (str(project / "own_package"), str(project))
    assert set(find_project_modules([], ["own_package.part"])) == {"own_package", "own_package.part"}


@pytest.mark.parametrize("path", [tempfile.__file__, trioperator.__file__, pytest.__file__, "<frozen importlib._x>"])
def test_libraries_are_known_by_their_paths(path: str) -> None:
    assert is_library(path)


def test_a_project_may_be_installed_itself(tmp_path: pathlib.Path) -> None:
    root = str(tmp_path / "site-packages" / "my_operator")
    assert is_library(os.path.join(root, "main.py"))
    assert not is_library(os.path.join(root, "main.py"), root)
