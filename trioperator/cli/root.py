"""The root command: ``--version``, and the commands that it has.

It imports nothing heavy, and neither do the modules of the commands, so that help and usage errors appear at once.
"""

from __future__ import annotations

import collections
import importlib
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from trioperator._version import __version__

__all__ = ["app"]

# The commands in the order of the help, with the modules that have functions of these names.
_MODULES: Final = {
    "new": "new",
    "run": "run",
    "check": "check",
    "freeze": "peering",
    "resume": "peering",
    "cluster": "cluster",
    "rbac": "rbac",
    "manifests": "deployment",
    "bundle": "bundle",
    "top": "top",
    "crds": "crds",
}


class _Commands(collections.UserDict[str, Any]):
    """The commands by name, each made when it is needed: all of them take a tenth of the time to start an operator."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if command is None:
            command = self.data[name] = _make_command(name)
        return command


def _make_command(name: str) -> Any:
    module = importlib.import_module(f"trioperator.cli.{_MODULES[name]}")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command()(getattr(module, name))
    return typer.main.get_command(alone)


class _Root(TyperGroup):
    """The root command, which knows its commands by name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Commands(dict.fromkeys(_MODULES))


app = typer.Typer(
    cls=_Root,
    help="Run Kubernetes operators written in Python, on Trio.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"trioperator, version {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Run Kubernetes operators written in Python, on Trio."""
