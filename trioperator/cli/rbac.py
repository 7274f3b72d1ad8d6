"""The command ``trioperator rbac``: the roles that an operator needs."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from trioperator._logs import configure, get_logger
from trioperator.cli.acting import to_printable
from trioperator.cli.options import SourceOptions, check_lease, check_scope, option, taking

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from trioperator._model.resource import Resource
    from trioperator._model.rights import Rule
    from trioperator._tooling.permissions import Requirements

# Settings that need rights, and the options that grant these.
_OPTIONS: Final = {
    ("leadership", "enabled"): "--leader-elect",
    ("leadership", "shards"): "--shards",
    ("admission", "managed"): "--managed",
    ("admission", "managed_conversions"): "--managed-conversions",
    ("crds", "migrate"): "--migrate",
}
# Options that are passed on unchanged.
_SHARED: Final = (
    *("files", "modules", "namespaces", "peering", "shards", "scanning", "events", "managed", "conversions"),
    *("migrate", "name"),
)
# The peering object of operators without --peering.
_DEFAULT_PEERING: Final = "default"


Clusterwide: TypeAlias = Annotated[bool, option("-A --all-namespaces", "For all namespaces, which is the default.")]
Namespaces: TypeAlias = Annotated[
    list[str],
    option(
        "-n --namespace PATTERN",
        "For these namespaces, as for run: exact names need no rights in others; repeatable.",
        env="NAMESPACES",
    ),
]
Managed: TypeAlias = Annotated[
    str | None, option("--managed NAME", "Name of the webhook configurations: settings.admission.managed.")
]
Conversions: TypeAlias = Annotated[
    bool, option("--managed-conversions", "Write conversions into CRDs: settings.admission.managed_conversions.")
]
CaSecret: TypeAlias = Annotated[
    str | None, option("--ca-secret NAMESPACE/NAME", "Secret for the CA of webhooks, without cert-manager.")
]
Migrate: TypeAlias = Annotated[bool, option("--migrate", "Migrate stored objects: settings.crds.migrate.")]


class RightsOptions(SourceOptions, frozen=True, kw_only=True):
    """Options of commands that grant an operator its rights."""

    leader_elect: Annotated[bool, option("--leader-elect", "With leader election, as for run.")] = False
    shards: Annotated[
        int, option("--shards NUMBER", "Number of shards that the replicas share, as for run.", min=1)
    ] = 1
    scanning: Annotated[
        bool, option("--scanning/--no-scanning", "Watch CRDs and namespaces: not settings.scanning.disabled.")
    ] = True
    events: Annotated[bool, option("--events/--no-events", "Post Kubernetes Events: settings.posting.enabled.")] = True
    rules: Annotated[
        list[str],
        option(
            "--rule VERBS:KINDS",
            "Add rights for requests of handlers, such as get,list:pods,deployments.apps; repeatable.",
            env="RULES",
        ),
    ] = []


class RbacCommand(RightsOptions, frozen=True, kw_only=True):
    """Options of ``trioperator rbac``."""

    clusterwide: Clusterwide = False
    namespaces: Namespaces = []
    standalone: Annotated[bool, option("--standalone", "Without peering.")] = False
    peering: Annotated[str | None, option("-P --peering NAME", "Peering object, as for run.")] = None
    lease: Annotated[str, option("--lease [NAMESPACE/]NAME", "Lease, as for run.")] = "trioperator"
    managed: Managed = None
    conversions: Conversions = False
    ca_secret: CaSecret = None
    migrate: Migrate = False
    name: Annotated[str, option("--name NAME", "Name of the roles.")] = "trioperator"
    service_account: Annotated[
        str | None, option("--service-account NAMESPACE/NAME", "Print bindings to this service account, too.")
    ] = None
    embedded: Annotated[
        bool, option("--embedded", "Look up kinds in an API server in this process instead of a cluster.")
    ] = False
    manifests: Annotated[list[str], option("--apply FILE", "With --embedded: apply these CRDs; repeatable.")] = []


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RbacOptions:
    """Inputs of the roles; ``lease`` and ``account`` are pairs of a namespace and a name.

    ``manifests`` are for an embedded API server in place of the cluster; None: kinds are looked up in the cluster.
    """

    files: Sequence[str] = ()
    modules: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    standalone: bool = False
    peering: str | None = None
    lease: tuple[str, str] | None = None
    shards: int = 1
    scanning: bool = True
    events: bool = True
    managed: str | None = None
    conversions: bool = False
    ca_secret: tuple[str, str] | None = None
    migrate: bool = False
    name: str = "trioperator"
    account: tuple[str, str] | None = None
    manifests: Sequence[str] | None = None
    rules: tuple[Rule, ...] = ()


@taking(RbacCommand, "RBAC")
def rbac(context: typer.Context, options: RbacCommand) -> None:
    """Print the roles that an operator needs, as YAML.

    It needs them for the handlers in files and modules, and for the options that it runs with.
    """
    options.check_sources()
    check_scope(clusterwide=options.clusterwide, namespaces=options.namespaces)
    if options.manifests and not options.embedded:
        raise typer.BadParameter("it requires --embedded.", param_hint="'--apply'")
    if options.name in ("", ".", "..") or not set(options.name).isdisjoint("/%"):
        raise typer.BadParameter("the API server takes no such name: it would not fit in a URL.", param_hint="'--name'")
    account = parse_pair(options.service_account, "--service-account")
    has_lease = options.leader_elect or options.shards > 1
    check_lease(context, has_lease=has_lease)
    parsed = make_rbac_options(
        options,
        standalone=options.standalone,
        lease=_parse_lease(options.lease, account) if has_lease else None,
        account=account,
        manifests=options.manifests if options.embedded else None,
    )
    _print_roles(parsed)


def make_rbac_options(options: RightsOptions, **own: Any) -> RbacOptions:
    """Return what the roles depend on, from options that all commands about them have. Raises BadParameter."""
    shared = {name: getattr(options, name) for name in _SHARED}
    ca_secret = parse_pair(getattr(options, "ca_secret", None), "--ca-secret")
    return RbacOptions(**shared, ca_secret=ca_secret, rules=_parse_rules(options.rules), **own)


def _parse_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """Parse the values of ``--rule``. Raises BadParameter."""
    from trioperator._model.rights import parse_rule

    try:
        return tuple(rule for text in texts for rule in parse_rule(text))
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint="'--rule'") from None


def parse_pair(text: str | None, option: str) -> tuple[str, str] | None:
    """Parse a namespace and a name, the value of an option. Raises BadParameter."""
    if text is None:
        return None
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise typer.BadParameter("pass NAMESPACE/NAME.", param_hint=f"'{option}'")
    return namespace, name


def _parse_lease(text: str, account: tuple[str, str] | None) -> tuple[str, str]:
    namespace, _, name = text.rpartition("/")
    namespace = namespace or (account[0] if account else "")
    if not namespace:
        raise typer.BadParameter(
            "pass NAMESPACE/NAME, or the operator's --service-account: a Lease is in the namespace of the pod.",
            param_hint="'--lease'",
        )
    return namespace, name


def _print_roles(options: RbacOptions) -> None:
    import trio

    from trioperator._handling.declaring.registry import get_default_registry
    from trioperator._tooling.deployment.files import render_compact
    from trioperator._tooling.permissions import list_permissions, make_roles
    from trioperator.cli.failures import reporting_failures
    from trioperator.cli.kinds import discover_all
    from trioperator.cli.loading import load_all
    from trioperator.cli.manifests import find_declared, load_manifests

    logger = get_logger("trioperator.cli")
    configure(quiet=True)
    with reporting_failures():
        load_all(options.files, options.modules)
        registry = get_default_registry()
        registry.check()
        manifests = None if options.manifests is None else list(load_manifests(options.manifests))
        resources = trio.run(discover_all, manifests, find_declared(manifests or ()))
        requirements, problems = make_requirements(options, resources, registry.declared_kinds())
        problems += find_missing_options(options)
        permissions = list_permissions(tuple(registry), resources, requirements)
    for problem in (*problems, *permissions.problems):
        logger.warning("%s", problem)
    roles = make_roles(permissions, name=options.name, account=options.account)
    for problem in (*problems, *permissions.problems):
        typer.echo(f"# {to_printable(problem)}")  # readers of the roles have not seen the log
    typer.echo(render_compact(roles), nl=False)


def make_requirements(
    options: RbacOptions, resources: Collection[Resource], declared: Collection[tuple[str, str]] = ()
) -> tuple[Requirements, list[str]]:
    """Return what the permissions depend on, and the problems, each as a sentence.

    *declared* are the groups and the plurals of the kinds that classes declare.
    """
    from trioperator._runtime.watching.scope import Scope
    from trioperator._tooling.permissions import Requirements

    scope = Scope(clusterwide=not options.namespaces, namespaces=tuple(options.namespaces))
    kind = None if options.standalone else _find_peering(resources, clusterwide=scope.clusterwide)
    problems = []
    if kind is None and options.peering is not None and not options.standalone:
        problems.append("The cluster has no kind of peering objects: the rules have nothing for peering.")
    requirements = Requirements(
        scope=scope,
        scanning=options.scanning,
        events=options.events,
        peering=None if kind is None else (kind, options.peering or _DEFAULT_PEERING),
        lease=options.lease,
        shards=options.shards,
        managed=options.managed,
        conversions=options.conversions,
        ca_secret=options.ca_secret,
        migrated=tuple(sorted(declared)) if options.migrate else (),
        rules=options.rules,
    )
    return requirements, problems


def find_missing_options(options: RbacOptions) -> list[str]:
    """Return a sentence for each setting that the sources assign, but whose option, which grants rights, is missing."""
    from trioperator._tooling.checking import find_assignments
    from trioperator.cli.project import parse_sources

    given = {
        "--leader-elect": options.lease is not None,
        "--shards": options.shards > 1,
        "--managed": options.managed is not None,
        "--managed-conversions": options.conversions,
        "--migrate": options.migrate,
    }
    return [
        f"{os.path.relpath(source.path)}:{line} assigns settings.{section}.{name}: pass {option}, or the role lacks the"
        " rights for it."
        for source in parse_sources(options.files, options.modules)
        for (section, name), option in _OPTIONS.items()
        if not given[option]
        for line in find_assignments(source, section, name)
    ]


def _find_peering(resources: Collection[Resource], *, clusterwide: bool) -> Resource | None:
    """Return the kind of peering objects that an operator uses in the cluster, if any."""
    from trioperator._coordination.peering import GROUPS

    plural = "clusterkopfpeerings" if clusterwide else "kopfpeerings"
    found = {resource.group: resource for resource in resources if resource.plural == plural}
    return next((found[group] for group in GROUPS if group in found), None)
