"""The command ``trioperator crds``: the CustomResourceDefinitions of the kinds that classes declare."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from trioperator.cli.options import declare_option
from trioperator.logs import configure, get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["crds"]

_option: Final = functools.partial(declare_option, "CRDS")

Files: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="FILES", help="Python files with classes.", show_default=False)
]
Modules: TypeAlias = Annotated[
    list[str] | None,
    _option("-m", "--module", env="MODULES", metavar="NAME", help="Import a module with classes; repeatable."),
]


def crds(files: Files = None, modules: Modules = None) -> None:
    """Print the CustomResourceDefinitions of the kinds that classes in files and modules declare, as YAML."""
    from trioperator.cli.failures import report_failure

    if not files and not modules:
        raise typer.BadParameter("pass files or modules (-m) with classes.", param_hint="FILES")
    configure(quiet=True)
    try:
        definitions = _load_definitions(files or (), modules or ())
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are reported
        raise typer.Exit(report_failure(error, get_logger("trioperator.cli"))) from None
    typer.echo(dump_definitions(definitions), nl=False)


def _load_definitions(files: Sequence[str], modules: Sequence[str]) -> list[dict[str, Any]]:
    from trioperator.cli.loading import load_all
    from trioperator.crds.definitions import collect_definitions
    from trioperator.errors import ConfigError
    from trioperator.handling.registry import get_default_registry

    load_all(files, modules)
    definitions = collect_definitions(get_default_registry())
    if not definitions:
        raise ConfigError("There are no kinds: decorate a class with trioperator.crds.kind().")
    return definitions


def dump_definitions(definitions: Sequence[dict[str, Any]]) -> str:
    """Return the definitions as YAML documents, with sorted keys."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            """Write what occurs twice twice."""
            return True

    documents = yaml.dump_all(definitions, Dumper=Dumper, sort_keys=True, width=120, explicit_start=True)
    return str(documents)
