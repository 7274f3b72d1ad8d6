"""The command ``trioperator crds``: the CustomResourceDefinitions of the kinds that classes declare."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from trioperator._logs import configure, get_logger
from trioperator.cli.options import declare_option

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


Check: TypeAlias = Annotated[
    str | None,
    _option(
        "--check",
        env="CHECK",
        metavar="OLD",
        help="Print what breaks stored objects or clients since these definitions: a file, a directory or '-'.",
    ),
]


def crds(files: Files = None, modules: Modules = None, check: Check = None) -> None:
    """Print the definitions of the kinds that classes declare.

    They are CustomResourceDefinitions in YAML, for the classes in files and modules.
    """
    from trioperator.cli.failures import FAILURE, report_failure

    if not files and not modules:
        raise typer.BadParameter("pass files or modules (-m) with classes.", param_hint="FILES")
    configure(quiet=True)
    try:
        definitions = _load_definitions(files or (), modules or ())
        changes = [] if check is None else _find_changes(check, definitions)
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are reported
        raise typer.Exit(report_failure(error, get_logger("trioperator.cli"))) from None
    if check is None:
        typer.echo(dump_definitions(definitions), nl=False)
    for change in changes:
        typer.echo(change)
    if changes:
        raise typer.Exit(FAILURE)


def _load_definitions(files: Sequence[str], modules: Sequence[str]) -> list[dict[str, Any]]:
    from trioperator._handling.declaring.registry import get_default_registry
    from trioperator.cli.loading import load_all
    from trioperator.crds.definitions import collect_definitions
    from trioperator.errors import ConfigError

    load_all(files, modules)
    definitions = collect_definitions(get_default_registry())
    if not definitions:
        raise ConfigError("There are no kinds: decorate a class with trioperator.crds.kind().")
    return definitions


def _find_changes(path: str, definitions: Sequence[dict[str, Any]]) -> list[str]:
    """Return what breaks since the definitions in files; other manifests in them do not matter."""
    from trioperator.cli.manifests import load_manifests
    from trioperator.crds.comparison import compare_definitions
    from trioperator.errors import ConfigError

    contents = [manifest.content for manifest in load_manifests([path])]
    old = [content for content in contents if content["kind"] == "CustomResourceDefinition"]
    if not old:
        raise ConfigError(f"There are no CustomResourceDefinitions in {path}.")
    try:
        return compare_definitions(old, definitions)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"The definitions in {path} are not valid: {type(error).__name__}: {error}.") from error


def dump_definitions(definitions: Sequence[dict[str, Any]]) -> str:
    """Return the definitions as YAML documents, as ``trioperator manifests`` writes them: sorted by their names."""
    from trioperator._tooling.deployment.files import render

    return render(sorted(definitions, key=lambda each: str(each["metadata"]["name"])))
