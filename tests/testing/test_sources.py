"""Tests for :mod:`trioperator.testing.sources`."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest

import trioperator
from trioperator._handling.declaring.registry import OperatorRegistry, get_default_registry
from trioperator.cli.loading import LoadingError
from trioperator.errors import ConfigError
from trioperator.testing.sources import Source, fresh_registry, gather_handlers

SOURCE = """
import trioperator
import {helper}

@trioperator.on.create("pods")
def create_fn(**_): ...
"""
HELPER = """
import trioperator

@trioperator.on.delete("pods")
def delete_fn(**_): ...
"""


@pytest.fixture
def module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Write a module that imports another one, and return its name, which no other test has."""
    name = f"operator_of_{request.node.name}"
    (tmp_path / f"{name}.py").write_text(SOURCE.format(helper=f"helper_of_{name}"))
    (tmp_path / f"helper_of_{name}.py").write_text(HELPER)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return name


def gather(*sources: Source) -> list[str]:
    return sorted(handler.id for handler in gather_handlers(sources, get_default_registry()))


def test_what_a_test_declares_ends_with_it() -> None:
    before = list(get_default_registry())
    with fresh_registry():
        trioperator.on.create("pods")(print)
        assert gather() == ["print"]
        with fresh_registry():
            trioperator.on.create("pods")(repr)
            assert gather() == ["print", "repr"]
        assert gather() == ["print"]
    assert list(get_default_registry()) == before


KINDS = """
import msgspec
import trioperator
from trioperator import crds

@crds.kind("{group}/v1", kind="Thing")
class Old(msgspec.Struct):
    spec: dict[str, str]

@crds.kind("{group}/v2", kind="Thing", storage=True)
class New(msgspec.Struct):
    spec: dict[str, str]

@crds.kind("{group}/v1")
class Child(msgspec.Struct):
    spec: dict[str, str]

@trioperator.on.create(New)
def create_fn(**_): ...
"""


def test_kinds_of_a_module_belong_to_its_handlers(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kinds_of_sources.py").write_text(KINDS.format(group="sources.example.com"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def find(*sources: Source) -> list[str]:
        return sorted(cls.__name__ for cls in gather_handlers(sources, get_default_registry()).kinds())

    for _ in range(2):  # as in two tests
        with fresh_registry():
            assert find("kinds_of_sources") == ["Child", "New", "Old"]
    create_fn = sys.modules["kinds_of_sources"].create_fn
    with fresh_registry():
        assert find(create_fn) == ["New", "Old"]
    with fresh_registry():
        trioperator.on.create("pods")(print)
        assert find() == []


CONVERSION = """
import trioperator
from shared_kinds import New, Old

@trioperator.on.convert(New, from_="v1", to="v2")
def upgrade(body: Old) -> New: ...
"""


def test_modules_find_the_kinds_of_a_module_that_an_earlier_one_has_imported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared_kinds.py").write_text(KINDS.format(group="shared.example.com"))
    (tmp_path / "shared_first.py").write_text("from shared_kinds import create_fn")
    (tmp_path / "shared_second.py").write_text(CONVERSION)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for _ in range(2):
        with fresh_registry():
            assert gather("shared_first", "shared_second") == ["create_fn", "upgrade"]


def test_a_module_is_imported_once_with_all_that_it_imports(module: str) -> None:
    for _ in range(2):  # as in two tests
        with fresh_registry():
            assert gather(module) == ["create_fn", "delete_fn"]
            assert gather(sys.modules[module]) == ["create_fn", "delete_fn"]
    assert module not in {handler.fn.__module__ for handler in get_default_registry()}


def test_a_file_is_loaded_once_with_all_that_it_imports(module: str, tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        with fresh_registry():
            assert gather(tmp_path / f"{module}.py") == ["create_fn", "delete_fn"]


def test_a_module_that_was_imported_before_has_its_own_handlers(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = OperatorRegistry()
    monkeypatch.setattr("trioperator._handling.declaring.registry._Default.registry", base)
    imported: Any = __import__(module)
    with fresh_registry():
        assert gather(module) == ["create_fn"]
        assert gather(module, f"helper_of_{module}") == ["create_fn", "delete_fn"]
        assert gather(imported.create_fn) == ["create_fn"]
    with fresh_registry(module):  # as if it was that of the test
        assert gather() == ["create_fn"]


def test_what_other_tests_of_a_file_declare_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    base = OperatorRegistry()
    monkeypatch.setattr("trioperator._handling.declaring.registry._Default.registry", base)

    def local_fn(**_: object) -> None: ...

    trioperator.on.create("pods")(local_fn)
    trioperator.on.create("pods")(module_fn)
    with fresh_registry(__name__):
        assert gather() == ["module_fn"]


def module_fn(**_: object) -> None: ...


def test_registries_and_functions_are_sources() -> None:
    registry = OperatorRegistry()
    trioperator.on.create("pods", registry=registry)(print)
    with fresh_registry():
        trioperator.on.create("pods")(repr)
        assert gather(registry) == ["print", "repr"]
        assert gather(repr) == ["repr"]


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        ("nowhere/main.py", ConfigError, "No such file"),
        ("no_such_module", ConfigError, "No module named 'no_such_module'"),
        ("colorsys", ConfigError, "There are no handlers in 'colorsys'"),
        (len, ConfigError, "There are no handlers in <built-in function len>"),
        (3, TypeError, "Pass a file, a module, a registry or a decorated function, not 3"),
    ],
)
def test_what_is_no_source_is_an_error(source: Any, error: type[Exception], text: str) -> None:
    with fresh_registry(), pytest.raises(error, match=text):
        gather(source)


def test_an_error_in_a_file_is_raised_from_the_error_itself(tmp_path: pathlib.Path) -> None:
    (tmp_path / "main.py").write_text("1 / 0")
    with fresh_registry(), pytest.raises(LoadingError, match="ZeroDivisionError") as caught:
        gather(tmp_path / "main.py")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
