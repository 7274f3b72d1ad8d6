"""The commands ``trioperator release`` and ``trioperator uninstall``: cleanup after an operator."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from trioperator._logs import get_logger
from trioperator.cli.acting import Act, run_with_client
from trioperator.cli.options import declare_option
from trioperator.cli.rbac import parse_pair

if TYPE_CHECKING:
    from trioperator._handling.handlers.handler import Handler
    from trioperator._tooling.releasing import Place, ReleaseSummary, Traces
    from trioperator._tooling.uninstalling import Installation
    from trioperator.client import Client

_option: Final = functools.partial(declare_option, "RELEASE")
_uninstall_option: Final = functools.partial(declare_option, "UNINSTALL")

Kind: TypeAlias = Annotated[str, typer.Argument(metavar="KIND", help="Kind, such as widgets.example.com.")]
Names: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="NAMES", help="Names of objects; by default, all.", show_default=False)
]
Clusterwide: TypeAlias = Annotated[
    bool, _option("-A", "--all-namespaces", env="ALL_NAMESPACES", help="The objects of all namespaces.")
]
Namespace: TypeAlias = Annotated[
    str | None,
    _option("-n", "--namespace", env="NAMESPACE", metavar="NAME", help="Namespace; by default, the context's."),
]
Prefixes: TypeAlias = Annotated[
    list[str] | None,
    _option(
        "--prefix",
        env="PREFIXES",
        metavar="DOMAIN",
        help="Domain of the operator's finalizers and annotations, in place of trioperator.dev, kopf.zalando.org and"
        " kopf.dev; repeatable.",
    ),
]
Finalizers: TypeAlias = Annotated[
    list[str] | None,
    _option(
        "--finalizer", env="FINALIZERS", metavar="NAME", help="A finalizer of the operator by its name; repeatable."
    ),
]
State: TypeAlias = Annotated[bool, _option("--state", env="STATE", help="Remove the state stored on objects, too.")]
DryRun: TypeAlias = Annotated[bool, _option("--dry-run", env="DRY_RUN", help="Print what would be removed only.")]

Files: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="FILES", help="Python files with handlers.", show_default=False)
]
Modules: TypeAlias = Annotated[
    list[str] | None,
    _uninstall_option("-m", "--module", env="MODULES", metavar="NAME", help="Import a module with handlers."),
]
Managed: TypeAlias = Annotated[
    str | None,
    _uninstall_option(
        "--managed", env="MANAGED", metavar="NAME", help="Webhook configurations: settings.admission.managed."
    ),
]
Lease: TypeAlias = Annotated[
    str | None,
    _uninstall_option("--lease", env="LEASE", metavar="NAMESPACE/NAME", help="Lease, or prefix of the shards' Leases."),
]
Stop: TypeAlias = Annotated[
    str | None,
    _uninstall_option(
        "--stop", env="STOP", metavar="NAMESPACE/NAME", help="Stop this Deployment of the operator first."
    ),
]
Namespaces: TypeAlias = Annotated[
    list[str] | None,
    _uninstall_option(
        "-n", "--namespace", env="NAMESPACES", metavar="NAME", help="Objects of this namespace only; repeatable."
    ),
]
Yes: TypeAlias = Annotated[bool, _uninstall_option("-y", "--yes", env="YES", help="Do not ask for confirmation.")]

_RUNNING: Final = "%d objects have a finalizer again, from an operator that still runs. Stop it first, and repeat this."


def release(
    kind: Kind,
    names: Names = None,
    clusterwide: Clusterwide = False,
    namespace: Namespace = None,
    prefixes: Prefixes = None,
    finalizers: Finalizers = None,
    state: State = False,
    dry_run: DryRun = False,
) -> None:
    """Remove the finalizers of an uninstalled operator from objects.

    This completes pending deletions. Stop the operator first: it adds its finalizers again.
    """
    if clusterwide and (namespace or names):
        other = "namespace" if namespace else "names"
        raise typer.BadParameter(f"pass either -A or {other}, not both.", param_hint="'-A'")
    from trioperator._tooling.releasing import Place

    place = Place(namespace, clusterwide, tuple(names or ()))

    def prepare() -> Act:
        return functools.partial(_release, kind, place, _make_traces(prefixes, finalizers, state), dry_run=dry_run)

    run_with_client(prepare)


async def _release(kind: str, place: Place, traces: Traces, client: Client, *, dry_run: bool) -> bool:
    from trioperator._tooling.releasing import release_objects

    summary = await release_objects(client, kind, traces, place, report=typer.echo, dry_run=dry_run)
    return _conclude(summary, dry_run=dry_run)


def _make_traces(prefixes: list[str] | None, finalizers: list[str] | None, state: bool) -> Traces:
    from trioperator._tooling.releasing import DEFAULT_PREFIXES, Traces

    domains = tuple(prefixes or (() if finalizers else DEFAULT_PREFIXES))
    return Traces(prefixes=domains, finalizers=frozenset(finalizers or ()), state=state)


def _conclude(summary: ReleaseSummary, *, dry_run: bool) -> bool:
    """Print how many objects were released; return whether all is done."""
    verb = "Would release" if dry_run else "Released"
    failed = f", {summary.failed} failed" if summary.failed else ""
    typer.echo(f"{verb} {summary.released} of {summary.seen} objects{failed}.")
    if summary.again:
        get_logger("trioperator.cli").error(_RUNNING, summary.again)
    return not (summary.failed or summary.again)


def uninstall(
    files: Files = None,
    modules: Modules = None,
    managed: Managed = None,
    lease: Lease = None,
    stop: Stop = None,
    namespaces: Namespaces = None,
    prefixes: Prefixes = None,
    finalizers: Finalizers = None,
    state: State = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Remove everything that an operator has left in a cluster.

    Webhook configurations, conversions that no longer respond, finalizers of all kinds with handlers, Leases.
    Stop the operator first, or pass --stop. Objects, their children and CRDs stay.
    """
    if not files and not modules:
        raise typer.BadParameter("pass files or modules (-m) with handlers.", param_hint="FILES")
    pair, deployment = parse_pair(lease, "--lease"), parse_pair(stop, "--stop")

    def prepare() -> Act:
        from trioperator._tooling.uninstalling import Installation

        traces = _make_traces(prefixes, finalizers, state)
        handlers = _load(files or (), modules or ())
        installation = Installation(
            handlers=handlers,
            deployment=deployment,
            managed=managed,
            lease=pair,
            namespaces=tuple(namespaces or ()),
            traces=traces,
        )
        return functools.partial(_uninstall, installation, dry_run=dry_run, ask=not (yes or dry_run))

    run_with_client(prepare)


async def _uninstall(installation: Installation, client: Client, *, dry_run: bool, ask: bool) -> bool:
    from trioperator._tooling.uninstalling import needs_managed, plan_steps
    from trioperator.cli.kinds import discover_kinds

    logger = get_logger("trioperator.cli")
    steps = await plan_steps(client, installation, await discover_kinds(None))
    for number, step in enumerate(steps, start=1):
        typer.echo(f"{number}. {step.title}")
    if needs_managed(installation):
        logger.warning("Webhook configurations stay: pass --managed with their name, settings.admission.managed.")
    if ask and steps and not _confirm():
        return False
    done = []
    for number, step in enumerate(steps, start=1):
        typer.echo(f"\n{number}. {step.title}:")
        done.append(await step.run(typer.echo, dry_run))
    if not all(done):
        logger.error("Not everything is removed, see above. Repeat this when the causes are mended.")
    return all(done)


def _confirm() -> bool:
    """Ask whether to go on. It blocks the event loop, in which nothing else runs; without an answer, it is no."""
    try:
        return typer.confirm("Continue?")
    except typer.Abort:
        typer.echo("Pass --yes to go on without being asked.", err=True)
        return False


def _load(files: Sequence[str], modules: Sequence[str]) -> tuple[Handler, ...]:
    from trioperator._handling.declaring.registry import get_default_registry
    from trioperator.cli.loading import load_all

    load_all(files, modules)
    return tuple(get_default_registry())
