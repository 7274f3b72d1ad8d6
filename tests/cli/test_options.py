"""Tests for :mod:`trioperator.cli.options`."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from trioperator.cli.options import check_scope, option, split_names, taking


@pytest.mark.parametrize(
    ("names", "expected"),
    [("", ()), ("a", ("a",)), ("a,b", ("a", "b")), (" a , b ,", ("a", "b")), (",,", ()), ("a b", ("a b",))],
)
def test_lists_are_separated_by_commas(names: str, expected: tuple[str, ...]) -> None:
    assert split_names(names) == expected


@pytest.mark.parametrize(
    ("clusterwide", "namespaces", "text"),
    [(True, ["a"], "either -n or -A"), (False, ["a", ""], "is empty"), (False, [" "], "is empty")],
)
def test_namespaces_that_cannot_be_meant_are_refused(clusterwide: bool, namespaces: list[str], text: str) -> None:
    with pytest.raises(typer.BadParameter, match=text):
        check_scope(clusterwide=clusterwide, namespaces=namespaces)


def test_what_is_not_a_number_is_in_no_range() -> None:
    class Rated(msgspec.Struct, frozen=True, kw_only=True):
        rate: Annotated[float, option("--rate", "Rate.", min=0.1)] = 1.0

    app = typer.Typer()

    @app.command()
    @taking(Rated)
    def command(context: typer.Context, options: Rated) -> None:
        typer.echo(f"{options.rate}")

    result = CliRunner().invoke(app, ["--rate", "nan"])
    assert result.exit_code == 2
    assert "'--rate': it is not a number." in result.output
    assert CliRunner().invoke(app, ["--rate", "inf"]).output == "inf\n"


class Two(msgspec.Struct, frozen=True, kw_only=True):
    one: Annotated[str, option("--one-of-two", "One.")] = "default"
    two: Annotated[str, option("--two -t", "Two.", env=("TWO", "SECOND"))] = "default"


def run(env: dict[str, str], *args: str) -> str:
    app = typer.Typer()

    @app.command()
    @taking(Two, "RUN")
    def command(context: typer.Context, options: Two) -> None:
        typer.echo(f"{options.one} {options.two}")

    result = CliRunner().invoke(app, args, env=env)
    assert result.exit_code == 0, result.output
    return result.output.strip()


@pytest.mark.parametrize(
    ("env", "args", "expected"),
    [
        ({}, [], "default default"),
        ({}, ["--one-of-two", "1", "-t", "2"], "1 2"),
        ({"TRIOPERATOR_RUN_ONE_OF_TWO": "1", "TRIOPERATOR_RUN_TWO": "2"}, [], "1 2"),
        ({"TRIOPERATOR_RUN_SECOND": "2"}, [], "default 2"),
        ({"TRIOPERATOR_RUN_TWO": "2", "TRIOPERATOR_RUN_SECOND": "3"}, [], "default 2"),
        ({"TRIOPERATOR_RUN_ONE_OF_TWO": "1"}, ["--one-of-two", "5"], "5 default"),
        ({"TRIOPERATOR_ONE_OF_TWO": "1", "RUN_ONE_OF_TWO": "1"}, [], "default default"),
    ],
)
def test_an_option_has_the_environment_variables_of_its_command(
    env: dict[str, str], args: list[str], expected: str
) -> None:
    assert run(env, *args) == expected


class Options(msgspec.Struct, frozen=True, kw_only=True):
    files: Annotated[list[str], typer.Argument()] = []
    name: Annotated[str, option("--name", "Name.")] = "default"
    limit: Annotated[int | None, option("--limit", "Limit.")] = None


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


def test_commands_that_share_an_option_have_variables_of_their_own() -> None:
    found = []

    @taking(Two, "ONE")
    def first(context: typer.Context, options: Two) -> None:
        found.append(options.one)

    @taking(Two, "OTHER")
    def second(context: typer.Context, options: Two) -> None:
        found.append(options.one)

    app = typer.Typer()
    app.command()(first)
    app.command()(second)
    for name in ("first", "second"):
        CliRunner().invoke(app, [name], env={"TRIOPERATOR_OTHER_ONE_OF_TWO": "given"})
    assert found == ["default", "given"]
