"""The command ``trioperator crds``: the CustomResourceDefinitions of the kinds that classes declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trioperator._logs import configure
from trioperator.cli.acting import echo
from trioperator.cli.options import option, taking

if TYPE_CHECKING:
    from collections.abc import Sequence


class CrdsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``trioperator crds``."""

    files: Annotated[
        list[str], typer.Argument(metavar="FILES", help="Python files with classes.", show_default=False)
    ] = []
    modules: Annotated[
        list[str], option("-m --module NAME", "Import a module with classes; repeatable.", env="MODULES")
    ] = []
    check: Annotated[
        str | None, option("--check OLD", "Print breaking changes since these definitions: a file, a directory or '-'.")
    ] = None
    migrate: Annotated[
        bool, option("--migrate", "Instead, migrate all objects of these kinds in the cluster to the storage version.")
    ] = False
    names: Annotated[
        list[str], option("--crd NAME", "With --migrate: a CRD by its name in the cluster; repeatable.", env="NAMES")
    ] = []
    rate: Annotated[float, option("--rate NUMBER", "With --migrate: objects per second.", min=0.1)] = 100.0


@taking(CrdsOptions, "CRDS")
def crds(context: typer.Context, options: CrdsOptions) -> None:
    """Print the definitions of the kinds that classes declare.

    They are CustomResourceDefinitions in YAML, for the classes in files and modules. With --migrate, rewrite the
    objects of these kinds in the cluster, so that old versions can be removed.
    """
    from trioperator.cli.failures import reporting_failures

    has_sources = bool(options.files or options.modules)
    if options.names and not options.migrate:
        raise typer.BadParameter("it requires --migrate.", param_hint="'--crd'")
    if options.migrate and options.check is not None:
        raise typer.BadParameter("pass either --check or --migrate, not both.", param_hint="'--migrate'")
    if not has_sources and not options.names:
        raise typer.BadParameter("pass files or modules (-m) with classes.", param_hint="FILES")
    configure(quiet=True)
    with reporting_failures():
        definitions = _load_definitions(options.files, options.modules) if has_sources else []
        if options.migrate:
            names = [*(str(each["metadata"]["name"]) for each in definitions), *options.names]
            raise typer.Exit(0 if _migrate(names, options.rate) else 1)
        changes = [] if options.check is None else _find_changes(options.check, definitions)
    if options.check is None:
        typer.echo(dump_definitions(definitions), nl=False)
    for change in changes:
        echo(change)
    if changes:
        raise typer.Exit(1)


def _load_definitions(files: Sequence[str], modules: Sequence[str]) -> list[dict[str, Any]]:
    from trioperator._handling.declaring.registry import get_default_registry
    from trioperator.cli.loading import load_all
    from trioperator.crds.definitions import collect_definitions
    from trioperator.errors import ConfigError

    load_all(files, modules)
    definitions = collect_definitions(get_default_registry())
    if not definitions:
        raise ConfigError("No class declares a kind: decorate one with trioperator.crds.kind().")
    return definitions


def _migrate(names: Sequence[str], rate: float) -> bool:
    """Migrate the objects of CRDs, one CRD after another; return whether all are in their storage versions."""
    import trio

    from trioperator._supervisor.storage_migration import migrate_stored
    from trioperator.client import open_client

    async def run() -> bool:
        async with open_client() as client:
            return all([await migrate_stored(client, name, rate=rate, report=echo) for name in names])

    return trio.run(run)


def _find_changes(path: str, definitions: Sequence[dict[str, Any]]) -> list[str]:
    """Return the breaking changes since the definitions in files; other manifests in these are ignored."""
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
