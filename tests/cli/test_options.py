"""Tests for :mod:`trioperator.cli.options`."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from trioperator.cli.options import declare_option, split_names, taking


@pytest.mark.parametrize(
    ("names", "expected"),
    [("", ()), ("a", ("a",)), ("a,b", ("a", "b")), (" a , b ,", ("a", "b")), (",,", ()), ("a b", ("a b",))],
)
def test_lists_are_separated_by_commas(names: str, expected: tuple[str, ...]) -> None:
    assert split_names(names) == expected


def run(env: dict[str, str], *args: str) -> str:
    app = typer.Typer()

    @app.command()
    def command(
        one: Annotated[str, declare_option("RUN", "--one", env="ONE", help="One.")] = "default",
        two: Annotated[str, declare_option("RUN", "--two", "-t", env=("TWO", "SECOND"))] = "default",
    ) -> None:
        typer.echo(f"{one} {two}")

    result = CliRunner().invoke(app, args, env=env)
    assert result.exit_code == 0, result.output
    return result.output.strip()


@pytest.mark.parametrize(
    ("env", "args", "expected"),
    [
        ({}, [], "default default"),
        ({}, ["--one", "1", "-t", "2"], "1 2"),
        ({"TRIOPERATOR_RUN_ONE": "1", "TRIOPERATOR_RUN_TWO": "2"}, [], "1 2"),
        ({"TRIOPERATOR_RUN_SECOND": "2"}, [], "default 2"),
        ({"TRIOPERATOR_RUN_TWO": "2", "TRIOPERATOR_RUN_SECOND": "3"}, [], "default 2"),
        ({"TRIOPERATOR_RUN_ONE": "1"}, ["--one", "5"], "5 default"),
        ({"TRIOPERATOR_ONE": "1", "RUN_ONE": "1"}, [], "default default"),
    ],
)
def test_an_option_has_the_environment_variables_of_its_command(
    env: dict[str, str], args: list[str], expected: str
) -> None:
    assert run(env, *args) == expected


class Options(msgspec.Struct, frozen=True, kw_only=True):
    files: Annotated[list[str], typer.Argument()] = []
    name: Annotated[str, declare_option("RUN", "--name", env="NAME")] = "default"
    limit: Annotated[int | None, declare_option("RUN", "--limit", env="LIMIT")] = None


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], Options()),
        (["a", "b", "--name", "x"], Options(files=["a", "b"], name="x")),
        (["--limit", "3"], Options(limit=3)),
    ],
)
def test_the_fields_of_a_struct_are_the_options_of_a_command(args: list[str], expected: Options) -> None:
    taken = []

    @taking(Options)
    def command(context: typer.Context, options: Options) -> None:
        """Do it."""
        taken.append(options)

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    assert taken == [expected]
    assert "Do it." in CliRunner().invoke(app, ["--help"]).output
