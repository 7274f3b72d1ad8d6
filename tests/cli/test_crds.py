"""Tests for :mod:`trioperator.cli.crds`: the command that prints definitions."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
import yaml
from typer.testing import CliRunner, Result

import trioperator
from trioperator.cli.failures import USAGE_ERROR
from trioperator.cli.root import app as command

Invoke: TypeAlias = Callable[..., Result]

APP = '''
import msgspec
from trioperator import crds

class Spec(msgspec.Struct):
    size: int = 1
    """The size."""

@crds.kind("example.com/v1")
class Zebra(msgspec.Struct):
    spec: Spec

@crds.kind("example.com/v1")
class Ant(msgspec.Struct):
    spec: Spec
'''


@pytest.fixture
def invoke(restored_modules: None, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[Invoke]:
    """Return a function that runs the command in this process, in the directory of the file."""
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    registry, handlers = trioperator.get_default_registry(), logging.root.handlers[:]

    def invoke(*args: str, input: str | None = None) -> Result:
        trioperator.set_default_registry(trioperator.OperatorRegistry())
        return CliRunner().invoke(command, ["crds", *args], input=input)

    yield invoke
    trioperator.set_default_registry(registry)
    logging.root.handlers[:] = handlers


def test_definitions_are_printed_in_the_same_order_with_the_same_bytes(invoke: Invoke) -> None:
    first, second = invoke("app.py"), invoke("app.py")
    assert first.exit_code == 0
    assert first.stdout == second.stdout
    ant, zebra = yaml.safe_load_all(first.stdout)
    assert [each["metadata"]["name"] for each in (ant, zebra)] == ["ants.example.com", "zebras.example.com"]
    spec = ant["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["size"] == {"type": "integer", "default": 1, "description": "The size."}
    assert "&id" not in first.stdout


def test_modules_can_be_passed(invoke: Invoke) -> None:
    assert invoke("-m", "app").stdout == invoke("app.py").stdout


def test_compatible_changes_pass_and_others_are_one_line_each(invoke: Invoke) -> None:
    old = invoke("app.py").stdout
    pathlib.Path("old.yaml").write_text(f"{old}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: x}}\n")
    pathlib.Path("app.py").write_text(APP.replace('"""The size."""', "more: str | None = None"))
    result = invoke("app.py", "--check", "old.yaml")
    assert (result.exit_code, result.stdout) == (0, "")

    pathlib.Path("app.py").write_text(APP.replace("size: int", "size: str").replace(" = 1", ' = ""'))
    for source in ("old.yaml", "-"):
        result = invoke("app.py", "--check", source, input=old)
        assert result.exit_code == 1
        assert result.stdout.splitlines() == [
            f"{name}.example.com: v1.spec.size: the type changes from integer to string" for name in ("ants", "zebras")
        ]


def test_names_of_fields_in_definitions_do_not_control_the_terminal(invoke: Invoke) -> None:
    old = invoke("app.py").stdout.replace(" size:", ' "\\e[2J\\u009b2J":')
    result = invoke("app.py", "--check", "-", input=old)
    assert result.exit_code == 1
    assert "v1.spec.?[2J?2J" in result.stdout
    assert "\x1b" not in result.stdout
    assert "\x9b" not in result.stdout


@pytest.mark.parametrize(
    ("old", "problem"),
    [
        ("kind: Namespace\napiVersion: v1\nmetadata: {name: x}", "There are no CustomResourceDefinitions in -."),
        (
            "kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1\nmetadata: {name: ants.example.com}",
            "The definitions in - are not valid: KeyError: 'spec'.",
        ),
    ],
)
def test_wrong_old_definitions_are_reported(invoke: Invoke, old: str, problem: str) -> None:
    result = invoke("app.py", "--check", "-", input=old)
    assert result.exit_code == USAGE_ERROR
    assert problem in result.output


def test_without_files_there_is_nothing_to_print(invoke: Invoke) -> None:
    assert invoke().exit_code == USAGE_ERROR


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("x = 1", "No class declares a kind"),
        (
            APP + "\n@crds.kind('example.com/v1')\nclass Bad(msgspec.Struct):\n    spec: list[int | bool]\n",
            "Bad.spec[]",
        ),
    ],
)
def test_problems_are_reported_without_a_traceback(invoke: Invoke, source: str, problem: str) -> None:
    pathlib.Path("app.py").write_text(source)
    result = invoke("app.py")
    assert result.exit_code == USAGE_ERROR
    assert problem in result.output
    assert "Traceback" not in result.output
