"""The commands ``trioperator release`` and ``trioperator uninstall``: cleanup after an operator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
import typer

from trioperator._logs import get_logger
from trioperator.cli.acting import Act, echo, run_with_client
from trioperator.cli.options import SourceOptions, option, taking
from trioperator.cli.rbac import parse_pair

if TYPE_CHECKING:
    from trioperator._tooling.releasing import Place, ReleaseSummary, Traces
    from trioperator._tooling.uninstalling import Installation
    from trioperator.client import Client


Prefixes: TypeAlias = Annotated[
    list[str],
    option(
        "--prefix DOMAIN",
        "Domain of the operator's finalizers and annotations, in place of trioperator.dev, kopf.zalando.org and"
        " kopf.dev; repeatable.",
        env="PREFIXES",
    ),
]
Finalizers: TypeAlias = Annotated[
    list[str], option("--finalizer NAME", "Name of a finalizer of the operator; repeatable.", env="FINALIZERS")
]
State: TypeAlias = Annotated[bool, option("--state", "Remove the state stored on objects, too.")]
DryRun: TypeAlias = Annotated[bool, option("--dry-run", "Only print what would be removed.")]


class ReleaseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``trioperator release``."""

    kind: Annotated[str, typer.Argument(metavar="KIND", help="Kind, such as widgets.example.com.")]
    names: Annotated[
        list[str], typer.Argument(metavar="NAMES", help="Names of objects; by default, all.", show_default=False)
    ] = []
    clusterwide: Annotated[bool, option("-A --all-namespaces", "Objects of all namespaces.")] = False
    namespace: Annotated[str | None, option("-n --namespace NAME", "Namespace; by default, the context's.")] = None
    prefixes: Prefixes = []
    finalizers: Finalizers = []
    state: State = False
    dry_run: DryRun = False


class UninstallOptions(SourceOptions, frozen=True, kw_only=True):
    """Options of ``trioperator uninstall``."""

    managed: Annotated[
        str | None, option("--managed NAME", "Name of the webhook configurations: settings.admission.managed.")
    ] = None
    lease: Annotated[str | None, option("--lease NAMESPACE/NAME", "Lease, or prefix of the shards' Leases.")] = None
    stop: Annotated[str | None, option("--stop NAMESPACE/NAME", "Stop this Deployment of the operator first.")] = None
    namespaces: Annotated[
        list[str], option("-n --namespace NAME", "Objects of this namespace only; repeatable.", env="NAMESPACES")
    ] = []
    prefixes: Prefixes = []
    finalizers: Finalizers = []
    state: State = False
    dry_run: DryRun = False
    yes: Annotated[bool, option("-y --yes", "Do not ask for confirmation.")] = False


_RUNNING: Final = "%d objects have a finalizer again, from an operator that still runs. Stop it first, and repeat this."


@taking(ReleaseOptions, "RELEASE")
def release(context: typer.Context, options: ReleaseOptions) -> None:
    """Remove the finalizers of an uninstalled operator from objects.

    This completes pending deletions. Stop the operator first: otherwise it adds its finalizers again.
    """
    if options.clusterwide and (options.namespace or options.names):
        other = "namespace" if options.namespace else "names"
        raise typer.BadParameter(f"pass either -A or {other}, not both.", param_hint="'-A'")
    from trioperator._tooling.releasing import Place

    place = Place(options.namespace, options.clusterwide, tuple(options.names))

    def prepare() -> Act:
        return functools.partial(_release, options.kind, place, _make_traces(options), dry_run=options.dry_run)

    run_with_client(prepare)


async def _release(kind: str, place: Place, traces: Traces, client: Client, *, dry_run: bool) -> bool:
    from trioperator._tooling.releasing import Releaser

    summary = await Releaser(client, traces, echo, dry_run).release(kind, place)
    return _conclude(summary, dry_run=dry_run)


def _make_traces(options: ReleaseOptions | UninstallOptions) -> Traces:
    from trioperator._tooling.releasing import DEFAULT_PREFIXES, Traces

    domains = tuple(options.prefixes or (() if options.finalizers else DEFAULT_PREFIXES))
    return Traces(prefixes=domains, finalizers=frozenset(options.finalizers), state=options.state)


def _conclude(summary: ReleaseSummary, *, dry_run: bool) -> bool:
    """Print how many objects were released; return whether all is done."""
    verb = "Would release" if dry_run else "Released"
    failed = f", {summary.failed} failed" if summary.failed else ""
    typer.echo(f"{verb} {summary.released} of {summary.seen} objects{failed}.")
    if summary.again:
        get_logger("trioperator.cli").error(_RUNNING, summary.again)
    return not (summary.failed or summary.again)


@taking(UninstallOptions, "UNINSTALL")
def uninstall(context: typer.Context, options: UninstallOptions) -> None:
    """Remove everything that an operator has left in a cluster.

    This removes webhook configurations, conversions that no longer respond, finalizers from the objects of all kinds
    with handlers, and Leases. Stop the operator first, or pass --stop. Objects, their children and CRDs stay.
    """
    options.check_sources()
    pair, deployment = parse_pair(options.lease, "--lease"), parse_pair(options.stop, "--stop")

    def prepare() -> Act:
        from trioperator._handling.declaring.registry import get_default_registry
        from trioperator._tooling.uninstalling import Installation
        from trioperator.cli.loading import load_all

        load_all(options.files, options.modules)
        installation = Installation(
            handlers=tuple(get_default_registry()),
            deployment=deployment,
            managed=options.managed,
            lease=pair,
            namespaces=tuple(options.namespaces),
            traces=_make_traces(options),
        )
        ask = not (options.yes or options.dry_run)
        return functools.partial(_uninstall, installation, dry_run=options.dry_run, ask=ask)

    run_with_client(prepare)


async def _uninstall(installation: Installation, client: Client, *, dry_run: bool, ask: bool) -> bool:
    from trioperator._tooling.uninstalling import Run, needs_managed, plan_steps
    from trioperator.cli.kinds import discover_kinds

    logger = get_logger("trioperator.cli")
    steps = await plan_steps(client, installation, await discover_kinds(None))
    for number, step in enumerate(steps, start=1):
        typer.echo(f"{number}. {step.title}")
    if needs_managed(installation):
        logger.warning("Webhook configurations stay: pass --managed with their name, settings.admission.managed.")
    if not steps:
        typer.echo("There is nothing to remove.")
    elif ask and not _confirm():
        return False
    done = []
    for number, step in enumerate(steps, start=1):
        typer.echo(f"\n{number}. {step.title}:")
        done.append(await step.run(Run(echo, dry_run)))
    if not all(done):
        logger.error("Not everything is removed, see above. Repeat this when the causes are fixed.")
    return all(done)


def _confirm() -> bool:
    """Ask whether to go on; without an answer, return False. This blocks the event loop, in which nothing else runs."""
    try:
        return typer.confirm("Continue?")
    except typer.Abort:
        typer.echo("Pass --yes to go on without being asked.", err=True)
        return False
