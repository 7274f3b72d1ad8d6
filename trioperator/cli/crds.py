"""The command ``trioperator crds``: the CustomResourceDefinitions of the kinds that classes declare."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from trioperator._logs import configure, get_logger
from trioperator.cli.options import declare_option

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        help="Print breaking changes since these definitions: a file, a directory or '-'.",
    ),
]


Migrate: TypeAlias = Annotated[
    bool, _option("--migrate", env="MIGRATE", help="Store all objects in the cluster in the storage version instead.")
]
Names: TypeAlias = Annotated[
    list[str] | None,
    _option("--crd", env="NAMES", metavar="NAME", help="With --migrate: a CRD by its name in the cluster; repeatable."),
]
Rate: TypeAlias = Annotated[
    float, _option("--rate", env="RATE", min=0.1, metavar="NUMBER", help="With --migrate: objects per second.")
]


def crds(
    files: Files = None,
    modules: Modules = None,
    check: Check = None,
    migrate: Migrate = False,
    names: Names = None,
    rate: Rate = 100.0,
) -> None:
    """Print the definitions of the kinds that classes declare.

    They are CustomResourceDefinitions in YAML, for the classes in files and modules. With --migrate, rewrite the
    objects of these kinds in the cluster, so that old versions can be removed.
    """
    from trioperator.cli.failures import FAILURE, report_failure

    if names and not migrate:
        raise typer.BadParameter("it requires --migrate.", param_hint="'--crd'")
    if migrate and check is not None:
        raise typer.BadParameter("pass either --check or --migrate, not both.", param_hint="'--migrate'")
    if not files and not modules and not names:
        raise typer.BadParameter("pass files or modules (-m) with classes.", param_hint="FILES")
    configure(quiet=True)
    try:
        if migrate:
            declared = _load_definitions(files or (), modules or ()) if files or modules else []
            every = [*(str(each["metadata"]["name"]) for each in declared), *(names or ())]
            if not _migrate(every, rate):
                raise typer.Exit(FAILURE)
            return
        definitions = _load_definitions(files or (), modules or ())
        changes = [] if check is None else _find_changes(check, definitions)
    except typer.Exit:
        raise
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


def _migrate(names: Sequence[str], rate: float) -> bool:
    """Migrate the objects of CRDs, one after the other; return whether all are in their storage versions."""
    import trio

    from trioperator._supervisor.storage_migration import migrate_stored
    from trioperator.client import open_client

    async def run() -> bool:
        async with open_client() as client:
            return all([await migrate_stored(client, name, rate=rate, report=typer.echo) for name in names])

    return trio.run(run)


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
