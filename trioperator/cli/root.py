"""The root command: ``--version``, and the commands that it has.

It imports nothing heavy, and neither do the modules of the commands, so that help and usage errors appear at once.
"""

from __future__ import annotations

import collections
import importlib
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from trioperator._version import __version__
from trioperator.cli.project_table import COMMANDS, find_defaults, read_table
from trioperator.errors import ConfigError

# The commands in the order of the help, with the modules that have functions of these names.
_MODULES: Final = {
    "new": "new",
    "run": "run",
    "check": "check",
    "explore": "trioperator.testing.exploring.command",  # which is above the others, as it tests operators
    "freeze": "peering",
    "resume": "peering",
    "cluster": "cluster",
    "rbac": "rbac",
    "manifests": "deployment",
    "bundle": "bundle",
    "top": "top",
    "why": "why",
    "pause": "pausing",
    "unpause": "pausing",
    "poke": "pausing",
    "crds": "crds",
    "release": "release",
    "uninstall": "release",
}


# Characters of the first sentence of a command's help, at most.
_LONG: Final = 1000
# Parameters that replace each other.
_ALTERNATIVES: Final = (("files", "modules"), ("clusterwide", "namespaces"), ("standalone", "peering"))


class _Commands(collections.UserDict[str, Any]):
    """The commands by name, each made when it is needed: making all takes a tenth of the time to start an operator."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if command is None:
            command = self.data[name] = _make_command(name)
        return command


def _make_command(name: str) -> Any:
    path = _MODULES[name]
    module = importlib.import_module(path if "." in path else f"trioperator.cli.{path}")
    found = getattr(module, name)
    if isinstance(found, typer.Typer):  # with commands below it
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    alone.command(cls=_Command)(found)
    return typer.main.get_command(alone)


class _Command(TyperCommand):
    """A command whose options may be in the project's pyproject.toml; options on the command line win."""

    def invoke(self, ctx: Any) -> Any:
        """Forget options of the project that exclude or add to what was given, and call the function."""
        for pair in _ALTERNATIVES:
            sources = {name: str(ctx.get_parameter_source(name)) for name in pair if ctx.params.get(name)}
            if len(set(sources.values())) > 1:
                ctx.params |= {name: None for name, source in sources.items() if source.endswith("DEFAULT_MAP")}
        return super().invoke(ctx)


def _find_defaults(context: typer.Context) -> None:
    """Take the options of the command from the project; ``check`` looks at the options of all. Raises ConfigError."""
    command = context.invoked_subcommand
    if command not in COMMANDS or not (table := read_table()):
        return
    assert isinstance(context.command, _Root)
    parameters = {name: context.command.commands[name].params for name in COMMANDS}
    looked_at = COMMANDS if command == "check" else (command,)
    context.default_map = {name: find_defaults(table, name, parameters) for name in looked_at}


class _Root(TyperGroup):
    """The root command, which knows its commands by name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Commands(dict.fromkeys(_MODULES))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands with the first sentences of their help, which are wrapped and not cut."""
        rows = [(name, command.get_short_help_str(limit=_LONG)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


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
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Run Kubernetes operators written in Python, on Trio."""
    try:
        _find_defaults(context)
    except ConfigError:
        from trioperator._logs import configure
        from trioperator.cli.failures import reporting_failures

        configure(quiet=True)
        with reporting_failures():
            raise
