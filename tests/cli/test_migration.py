"""Tests for :mod:`trioperator.cli.migration`: ``trioperator check --kopf``, which runs nothing of the operator."""

from __future__ import annotations

import json
import logging
import pathlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from typer.testing import CliRunner, Result

from trioperator.cli.root import app as command

Check: TypeAlias = Callable[..., Result]

FINE = """\
import kopf
from . import helpers

raise SystemExit("It is imported.")
"""
HELPERS = """\
import asyncio

async def helper():
    await asyncio.sleep(1)
"""


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[Check]:
    """Return a function that checks files in the current directory, which has a package."""
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "main.py").write_text(FINE)
    (package / "helpers.py").write_text(HELPERS)
    (package / "unused.py").write_text("import kopf\nkopf.AiohttpSession()\n")
    handlers, level = logging.root.handlers[:], logging.root.level
    yield lambda *args: CliRunner().invoke(command, ["check", "--kopf", *args], catch_exceptions=False)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.mark.parametrize("args", [["package/main.py"], ["-m", "package.main"]])
def test_the_file_and_what_it_imports_are_read_and_not_run(check: Check, args: list[str]) -> None:
    done = check(*args)
    assert done.exit_code == 0
    assert done.stdout == (
        "package/helpers.py:4: asyncio.sleep needs asyncio: natively, use trio.sleep(). [asyncio: native]\n"
        "package/main.py:1: import kopf becomes import trioperator as kopf. [imports: native]\n"
        "\n"
        "0 to change before it runs with python -m trioperator.kopf, 0 that differ from Kopf there, 2 to change to make"
        " it native.\n"
    )


def test_a_directory_stands_for_its_files_and_what_fails_is_exit_code_1(check: Check) -> None:
    done = check("package", "--format", "json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)["differences"]
    assert [(each["file"], each["effect"]) for each in found if each["check"] == "names"] == [
        ("package/unused.py", "fails")
    ]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nothing.py"], "Cannot read the file nothing.py: No such file or directory.\n"),
        (["broken.py"], "Cannot read the file broken.py: invalid syntax"),
        (["deep500.py"], "Cannot read the file deep500.py: it is nested too deeply"),
        (["deep20000.py"], "Cannot read the file deep20000.py: it is nested too deeply"),
        (["-m", "package.nothing"], "There is no module package.nothing"),
        (["-m", "json"], "There is no module json"),
    ],
)
def test_sources_that_cannot_be_read_are_exit_code_2(
    check: Check, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], args: list[str], words: str
) -> None:
    (tmp_path / "broken.py").write_text("def")
    for terms in (500, 20_000):
        (tmp_path / f"deep{terms}.py").write_text(f"number = {' + '.join(['1'] * terms)}")
    done = check(*args)
    assert done.exit_code == 2
    assert words in done.stderr + capfd.readouterr().err
