"""Tests for :mod:`trioperator.cli.check`: all mistakes at once, where they are, and the exit code."""

from __future__ import annotations

import json
import logging
import pathlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import yaml
from typer.testing import CliRunner, Result

import trioperator
from tests.runtime.conftest import CRD
from trioperator.cli.controls import CLIControls
from trioperator.cli.root import app as command

Check: TypeAlias = Callable[..., Result]
Run: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]

GOOD = """\
import trioperator

@trioperator.on.startup()
def configure(settings): ...

@trioperator.on.create("widgets")
@trioperator.on.update("widgets")
async def apply(spec, name): ...
"""
BAD = """\
import asyncio
import trioperator as kopf

@kopf.on.create("widgts")
async def create_fn(spec, nmae):
    await asyncio.sleep(1)

@kopf.on.create("widgts")
def create_fn(spec): ...

@kopf.on.validate("pods")
def check(**_):
    kopf.AiohttpSession()
"""


@pytest.fixture
def check(restored_modules: None, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[Check]:
    """Return a function that writes files, and checks them in this process, in their directory."""
    monkeypatch.chdir(tmp_path)
    registry, handlers, level = trioperator.get_default_registry(), logging.root.handlers[:], logging.root.level

    def check(*args: str, **files: str) -> Result:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        controls = CLIControls(registry=trioperator.OperatorRegistry())
        paths = [f"{name}.py" for name in files]
        return CliRunner().invoke(command, ["check", *args, *paths], obj=controls)

    yield check
    trioperator.set_default_registry(registry)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def test_an_operator_without_mistakes_is_listed_by_kind(check: Check) -> None:
    result = check(good=GOOD)
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "operator",
        "  startup   configure  good.py:3",
        "widgets",
        "  update    apply      good.py:6",
        "  create    apply      good.py:6",
        "",
        "3 handlers, no problems.",
    ]


def test_what_is_received_of_a_kind_is_shown(check: Check) -> None:
    source = GOOD.replace('("widgets")', '("widgets", labels={"tier": "gold"})')
    assert "widgets  (received: tier=gold)" in check(good=source).output.splitlines()
    assert json.loads(check("--format", "json", good=source).output)["selectors"] == {"widgets": "tier=gold"}


def test_all_mistakes_are_reported_at_once_in_their_lines(check: Check, tmp_path: pathlib.Path) -> None:
    (tmp_path / "crds.yaml").write_text(yaml.safe_dump(CRD))
    result = check("--manifests", "crds.yaml", good=GOOD, bad=BAD)
    assert result.exit_code == 1
    problems = [line for line in result.output.splitlines() if line.startswith("bad.py:")]
    assert [(line.split(": ")[0], line.rsplit("[")[-1]) for line in problems] == [
        ("bad.py:4", "arguments]"),
        ("bad.py:4", "kinds]"),
        ("bad.py:6", "asyncio]"),
        ("bad.py:8", "ids]"),
        ("bad.py:11", "webhooks]"),
        ("bad.py:13", "names]"),
    ]
    assert "good.py:6: " not in result.output
    assert result.output.splitlines()[-1] == "6 handlers, 6 problems."


def test_kinds_are_checked_only_with_manifests(check: Check) -> None:
    text = '@trioperator.on.create("nothing")\ndef fn(): ...\n'
    assert check(app=f"import trioperator\n{text}").exit_code == 0
    assert (
        "Nothing defines the kind nothing"
        in check("--manifests", "/dev/null", app=f"import trioperator\n{text}").output
    )


def test_imports_that_fail_are_reported_for_all_files_in_their_lines(check: Check, tmp_path: pathlib.Path) -> None:
    (tmp_path / "helper.py").write_text("pass\n\n1 / 0\n")
    result = check(
        syntax="import trioperator\ndef (:\n",
        decorator="import trioperator\n\n@trioperator.on.create()\ndef fn(): ...\n",
        within="import helper\n",
        good=GOOD,
    )
    assert result.exit_code == 1
    places = [line.split(": ")[0] for line in result.output.splitlines() if line.endswith("[import]")]
    assert places == ["decorator.py:3", "helper.py:3", "syntax.py:2"]
    assert "Cannot load the file within.py: ZeroDivisionError: division by zero" in result.output
    assert "3 handlers, 3 problems." in result.output


def test_names_that_are_missing_are_not_reported_twice(check: Check) -> None:
    result = check(app="import trioperator as kopf\nkopf.spawn_tasks\n\ndef later(): kopf.adop\n")
    assert [line.split(": ")[0] for line in result.output.splitlines()[:-1]] == ["app.py:2", "app.py:4"]
    assert "nurseries" in result.output


def test_sources_that_handlers_import_are_checked(check: Check, tmp_path: pathlib.Path) -> None:
    (tmp_path / "helpers.py").write_text("import asyncio\n\nasync def fetch():\n    await asyncio.sleep(1)\n")
    app = "import helpers, trioperator\n\n@trioperator.on.create('pods')\nasync def fn():\n    await helpers.fetch()\n"
    assert "helpers.py:4: fetch(), which Handler 'fn' calls, uses asyncio.sleep" in check(app=app).output


def test_files_without_handlers_are_reported(check: Check) -> None:
    result = check(app="import trioperator\n")
    assert (result.exit_code, result.output.splitlines()[0]) == (
        1,
        "app.py: Nothing is handled: no decorator has registered a function. [handlers]",
    )


def test_json_has_the_handlers_and_the_problems(check: Check) -> None:
    result = check("--format", "json", bad=BAD)
    assert result.exit_code == 1
    document: dict[str, Any] = json.loads(result.output)
    assert document["handlers"][0] == {
        "id": "create_fn",
        "decorator": "create",
        "kind": "widgts",
        "file": "bad.py",
        "line": 4,
    }
    assert [problem["check"] for problem in document["problems"]] == [
        "arguments",
        "asyncio",
        "ids",
        "webhooks",
        "names",
    ]
    assert set(document["problems"][0]) == {"check", "message", "file", "line"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "pass files or modules"),
        (["missing.py"], "No such file"),
        (["-m", "missing_module"], "missing_module"),
        (["--manifests", "missing.yaml", "app.py"], "missing.yaml"),
        (["--format", "xml", "app.py"], "xml"),
    ],
)
def test_what_cannot_be_checked_is_wrong_usage(
    check: Check, tmp_path: pathlib.Path, args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(GOOD)
    result = check(*args)
    assert result.exit_code == 2
    assert words in result.output + capsys.readouterr().err


def test_modules_are_checked_by_name_in_a_process_without_a_cluster(run: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "my_operator").mkdir()
    (tmp_path / "my_operator" / "__init__.py").write_text("")
    (tmp_path / "my_operator" / "main.py").write_text(BAD)
    result = run("check", "-m", "my_operator.main")
    assert (result.returncode, result.stderr) == (1, "")
    assert "my_operator/main.py:6: Handler 'create_fn' uses asyncio.sleep" in result.stdout
    assert "\x1b" not in result.stdout
