"""The root command: ``--version``, and the commands that it has.

It imports nothing heavy, and neither do the modules of the commands, so that help and usage errors appear at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from trioperator._version import __version__
from trioperator.cli.bundle import bundle
from trioperator.cli.check import check
from trioperator.cli.cluster import cluster
from trioperator.cli.crds import crds
from trioperator.cli.deployment import manifests
from trioperator.cli.new import new
from trioperator.cli.peering import freeze, resume
from trioperator.cli.rbac import rbac
from trioperator.cli.run import run
from trioperator.cli.top import top

__all__ = ["app"]

app = typer.Typer(
    help="Run Kubernetes operators written in Python, on Trio.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)
app.command()(new)
app.command()(run)
app.command()(check)
app.command()(freeze)
app.command()(resume)
app.command()(cluster)
app.command()(rbac)
app.command()(manifests)
app.command()(bundle)
app.command()(top)
app.command()(crds)


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
