"""Modules of files: names that show the file, and that worker processes can import."""

from __future__ import annotations

import importlib
import pathlib
import sys

import pytest

from trioperator.cli.scripts import ScriptFinder, find_script, install_finder, name_script


@pytest.mark.parametrize(
    "path", ["main.py", "./main.py", "/app/some.where/main.py", "100%2Epy", "my operator", "__init__.py", "ä.py"]
)
def test_a_name_shows_the_file_and_is_no_name_in_a_package(path: str) -> None:
    name = name_script(path, index=12)
    assert "." not in name
    assert name.startswith("__trioperator_script_12__")
    assert find_script(name) == path


@pytest.mark.parametrize("name", ["main", "trioperator", "__trioperator_script_0", "__trioperator_script_0__"])
def test_other_modules_are_left_to_others(name: str) -> None:
    assert find_script(name) is None
    assert ScriptFinder.find_spec(name) is None


def test_a_file_is_imported_by_the_name_of_its_module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of_worker.py").write_text("value = 5\n")
    install_finder()
    name = name_script("of_worker.py", index=0)
    try:
        module = importlib.import_module(name)
        assert (module.value, module.__file__) == (5, str(tmp_path / "of_worker.py"))
    finally:
        sys.modules.pop(name, None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name_script("absent.py", index=0))


def test_the_finder_is_installed_once() -> None:
    install_finder()
    install_finder()
    assert sys.meta_path.count(ScriptFinder) == 1
