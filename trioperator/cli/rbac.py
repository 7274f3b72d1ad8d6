"""The command ``trioperator rbac``: the roles that an operator needs."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from trioperator._logs import configure, get_logger
from trioperator.cli.options import declare_option

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from trioperator._model.resource import Resource
    from trioperator._model.rights import Rule
    from trioperator._tooling.permissions import Requirements

# Settings that need rights, and the options that say so.
_OPTIONS: Final = {
    ("leadership", "enabled"): "--leader-elect",
    ("leadership", "shards"): "--shards",
    ("admission", "managed"): "--managed",
    ("admission", "managed_conversions"): "--managed-conversions",
    ("crds", "migrate"): "--migrate",
}
# The peering object of operators that name none.
_DEFAULT_PEERING: Final = "default"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RbacOptions:
    """Options of ``trioperator rbac``; ``lease`` and ``account`` are a namespace and a name.

    ``manifests`` are for an embedded API server in place of the cluster, if not None.
    """

    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
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
    manifests: tuple[str, ...] | None = None
    rules: tuple[Rule, ...] = ()


_option: Final = functools.partial(declare_option, "RBAC")

Files: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="FILES", help="Python files with handlers.", show_default=False)
]
Modules: TypeAlias = Annotated[
    list[str] | None,
    _option("-m", "--module", env="MODULES", metavar="NAME", help="Import a module with handlers; repeatable."),
]
Clusterwide: TypeAlias = Annotated[
    bool, _option("-A", "--all-namespaces", env="ALL_NAMESPACES", help="For all namespaces, which is the default.")
]
Namespaces: TypeAlias = Annotated[
    list[str] | None,
    _option(
        "-n",
        "--namespace",
        env="NAMESPACES",
        metavar="PATTERN",
        help="For these namespaces, as for run: exact names need no rights in others; repeatable.",
    ),
]
Standalone: TypeAlias = Annotated[bool, _option("--standalone", env="STANDALONE", help="Without peering.")]
PeeringName: TypeAlias = Annotated[
    str | None, _option("-P", "--peering", env="PEERING", metavar="NAME", help="With this peering object.")
]
LeaderElect: TypeAlias = Annotated[bool, _option("--leader-elect", env="LEADER_ELECT", help="With leader election.")]
LeaseName: TypeAlias = Annotated[
    str, _option("--lease", env="LEASE", metavar="[NAMESPACE/]NAME", help="With --leader-elect or --shards: the Lease.")
]
Shards: TypeAlias = Annotated[
    int, _option("--shards", env="SHARDS", min=1, metavar="NUMBER", help="Number of shards that the replicas share.")
]
Scanning: TypeAlias = Annotated[
    bool,
    _option(
        "--scanning/--no-scanning", env="SCANNING", help="Without CRDs and namespaces: settings.scanning.disabled."
    ),
]
Events: TypeAlias = Annotated[
    bool, _option("--events/--no-events", env="EVENTS", help="Without Kubernetes Events: settings.posting.enabled.")
]
Managed: TypeAlias = Annotated[
    str | None,
    _option(
        "--managed", env="MANAGED", metavar="NAME", help="With webhook configurations: settings.admission.managed."
    ),
]
Conversions: TypeAlias = Annotated[
    bool,
    _option(
        "--managed-conversions",
        env="MANAGED_CONVERSIONS",
        help="With conversions of CRDs: settings.admission.managed_conversions.",
    ),
]
CaSecret: TypeAlias = Annotated[
    str | None,
    _option("--ca-secret", env="CA_SECRET", metavar="NAMESPACE/NAME", help="With a Secret for the CA of webhooks."),
]
Migrate: TypeAlias = Annotated[
    bool, _option("--migrate", env="MIGRATE", help="With migrations of stored objects: settings.crds.migrate.")
]
Name: TypeAlias = Annotated[str, _option("--name", env="NAME", metavar="NAME", help="Name of the roles.")]
ServiceAccount: TypeAlias = Annotated[
    str | None,
    _option(
        "--service-account",
        env="SERVICE_ACCOUNT",
        metavar="NAMESPACE/NAME",
        help="Print bindings to this service account, too.",
    ),
]
Rules: TypeAlias = Annotated[
    list[str] | None,
    _option(
        "--rule",
        env="RULES",
        metavar="VERBS:KINDS",
        help="Add rights for requests of handlers, such as get,list:pods,deployments.apps; repeatable.",
    ),
]
Embedded: TypeAlias = Annotated[
    bool, _option("--embedded", env="EMBEDDED", help="Look kinds up in an API server in this process, not a cluster.")
]
Manifests: TypeAlias = Annotated[
    list[str] | None,
    _option("--apply", env="APPLY", metavar="FILE", help="With --embedded: apply these CRDs; repeatable."),
]


def rbac(
    files: Files = None,
    modules: Modules = None,
    clusterwide: Clusterwide = False,
    namespaces: Namespaces = None,
    standalone: Standalone = False,
    peering: PeeringName = None,
    leader_elect: LeaderElect = False,
    lease: LeaseName = "trioperator",
    shards: Shards = 1,
    scanning: Scanning = True,
    events: Events = True,
    managed: Managed = None,
    conversions: Conversions = False,
    ca_secret: CaSecret = None,
    migrate: Migrate = False,
    name: Name = "trioperator",
    service_account: ServiceAccount = None,
    rules: Rules = None,
    embedded: Embedded = False,
    manifests: Manifests = None,
) -> None:
    """Print the roles that an operator needs, as YAML.

    They are for the handlers in files and modules.
    """
    if not files and not modules:
        raise typer.BadParameter("pass files or modules (-m) with handlers.", param_hint="FILES")
    if clusterwide and namespaces:
        raise typer.BadParameter("pass either -n or -A, not both.", param_hint="'-n' / '-A'")
    if manifests and not embedded:
        raise typer.BadParameter("it requires --embedded.", param_hint="'--apply'")
    account = parse_pair(service_account, "--service-account")
    options = RbacOptions(
        files=tuple(files or ()),
        modules=tuple(modules or ()),
        namespaces=tuple(namespaces or ()),
        standalone=standalone,
        peering=peering,
        lease=_parse_lease(lease, account) if leader_elect or shards > 1 else None,
        shards=shards,
        scanning=scanning,
        events=events,
        managed=managed,
        conversions=conversions,
        ca_secret=parse_pair(ca_secret, "--ca-secret"),
        migrate=migrate,
        name=name,
        account=account,
        manifests=tuple(manifests or ()) if embedded else None,
        rules=parse_rules(rules or ()),
    )
    _print_roles(options)


def parse_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
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
    import yaml

    from trioperator._handling.declaring.registry import get_default_registry
    from trioperator._tooling.permissions import list_permissions, make_roles
    from trioperator.cli.failures import report_failure
    from trioperator.cli.kinds import discover_all
    from trioperator.cli.loading import load_all
    from trioperator.cli.manifests import find_declared, load_manifests

    logger = get_logger("trioperator.cli")
    configure(quiet=True)
    try:
        load_all(options.files, options.modules)
        registry = get_default_registry()
        registry.check()
        manifests = None if options.manifests is None else list(load_manifests(options.manifests))
        resources = trio.run(discover_all, manifests, find_declared(manifests or ()))
        requirements, problems = make_requirements(options, resources, registry.declared_kinds())
        problems += find_missing_options(options)
        permissions = list_permissions(tuple(registry), resources, requirements)
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are reported
        raise typer.Exit(report_failure(error, logger)) from None
    for problem in (*problems, *permissions.problems):
        logger.warning("%s", problem)
    roles = make_roles(permissions, name=options.name, account=options.account)
    for problem in (*problems, *permissions.problems):
        typer.echo(f"# {problem}")  # who reads the roles has not seen the log
    typer.echo(yaml.safe_dump_all(roles, sort_keys=False, default_flow_style=None, width=120), nl=False)


def make_requirements(
    options: RbacOptions, resources: Collection[Resource], declared: Collection[tuple[str, str]] = ()
) -> tuple[Requirements, list[str]]:
    """Return what the permissions depend on, and what is unclear, in sentences.

    *declared* are the groups and the plurals of the kinds that classes declare.
    """
    from trioperator._runtime.watching.scope import Scope
    from trioperator._tooling.permissions import Requirements

    scope = Scope(clusterwide=not options.namespaces, namespaces=options.namespaces)
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
    """Return in sentences which settings the operator's sources assign, without the options for their rights."""
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
