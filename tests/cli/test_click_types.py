"""Tests for :mod:`trioperator.cli.click_types`: log formats as options of Click's commands."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

import trioperator.cli
from trioperator import LogFormat
from trioperator.cli import LogFormatParamType


@click.command()
@click.option("--log-format", type=LogFormatParamType(), default="full")
def command(log_format: LogFormat) -> None:
    click.echo(repr(log_format))


@pytest.mark.parametrize(
    ("args", "log_format"),
    [([], LogFormat.FULL), (["--log-format=plain"], LogFormat.PLAIN), (["--log-format=JSON"], LogFormat.JSON)],
)
def test_the_value_is_a_log_format(args: list[str], log_format: LogFormat) -> None:
    assert CliRunner().invoke(command, args).output == f"{log_format!r}\n"


def test_other_values_are_usage_errors() -> None:
    result = CliRunner().invoke(command, ["--log-format=xml"])
    assert result.exit_code == 2
    assert "'xml' is not one of" in result.output


def test_other_names_are_missing() -> None:
    assert not hasattr(trioperator.cli, "nothing")
