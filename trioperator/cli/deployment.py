"""The command ``trioperator manifests``: the kustomize base of an operator."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from trioperator._logs import configure, get_logger
from trioperator.cli.options import declare_option
from trioperator.cli.rbac import RbacOptions, make_requirements, parse_pair, parse_rules
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trioperator._handling.declaring.registry import OperatorRegistry
    from trioperator._model.resource import Resource
    from trioperator._tooling.deployment.base import OperatorParts
    from trioperator._tooling.deployment.options import DeploymentOptions
    from trioperator._tooling.permissions import Permissions
    from trioperator.cli.manifests import Manifest

#: Declares an option of commands about deployments.
option: Final = functools.partial(declare_option, "DEPLOY")

Files: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILES", help="Python files with handlers, by their paths in the image.", show_default=False
    ),
]
Modules: TypeAlias = Annotated[
    list[str] | None,
    option("-m", "--module", env="MODULES", metavar="NAME", help="Import a module with handlers; repeatable."),
]
Output: TypeAlias = Annotated[
    str | None,
    option("-o", "--output", env="OUTPUT", metavar="DIR", help="Write files in this directory; else print YAML."),
]
Force: TypeAlias = Annotated[bool, option("--force", env="FORCE", help="Replace files that differ.")]
Name: TypeAlias = Annotated[str, option("--name", env="NAME", metavar="NAME", help="Name of the operator's objects.")]
PodNamespace: TypeAlias = Annotated[
    str | None,
    option(
        "--pod-namespace",
        env="POD_NAMESPACE",
        metavar="NAME",
        help="Namespace of the operator's pods; by default, it has the name of the operator.",
    ),
]
CreateNamespace: TypeAlias = Annotated[
    bool,
    option(
        "--create-namespace/--no-create-namespace", env="CREATE_NAMESPACE", help="Whether the namespace is included."
    ),
]
Image: TypeAlias = Annotated[
    str,
    option("--image", env="IMAGE", metavar="REF", help="Image whose entry point is trioperator run."),
]
Crds: TypeAlias = Annotated[
    list[str] | None,
    option("--crds", env="CRDS", metavar="FILE", help="Include the CRDs in a file, a directory or stdin; repeatable."),
]
OtherCrds: TypeAlias = Annotated[
    list[str] | None,
    option("--other-crds", env="OTHER_CRDS", metavar="FILE", help="CRDs of kinds by others; repeatable."),
]
Clusterwide: TypeAlias = Annotated[
    bool, option("-A", "--all-namespaces", env="ALL_NAMESPACES", help="For all namespaces, which is the default.")
]
Namespaces: TypeAlias = Annotated[
    list[str] | None,
    option("-n", "--namespace", env="NAMESPACES", metavar="PATTERN", help="Handle these namespaces; repeatable."),
]
PeeringName: TypeAlias = Annotated[
    str | None, option("-P", "--peering", env="PEERING", metavar="NAME", help="With this peering object; else none.")
]
Replicas: TypeAlias = Annotated[
    int, option("--replicas", env="REPLICAS", min=1, metavar="NUMBER", help="Number of pods.")
]
LeaderElect: TypeAlias = Annotated[bool, option("--leader-elect", env="LEADER_ELECT", help="With leader election.")]
Shards: TypeAlias = Annotated[
    int, option("--shards", env="SHARDS", min=1, metavar="NUMBER", help="Number of shards that the replicas share.")
]
Metrics: TypeAlias = Annotated[
    bool, option("--metrics", env="METRICS", help="With metrics, and a ServiceMonitor for the Prometheus Operator.")
]
Prometheus: TypeAlias = Annotated[
    str,
    option("--prometheus", env="PROMETHEUS", metavar="NAMESPACE", help="With --metrics: the namespace of Prometheus."),
]
ServiceMonitor: TypeAlias = Annotated[
    bool,
    option(
        "--service-monitor/--no-service-monitor",
        env="SERVICE_MONITOR",
        help="With --metrics: whether a ServiceMonitor is included, or annotations for others than that operator.",
    ),
]
Scanning: TypeAlias = Annotated[
    bool, option("--scanning/--no-scanning", env="SCANNING", help="As for rbac: settings.scanning.disabled.")
]
Events: TypeAlias = Annotated[
    bool, option("--events/--no-events", env="EVENTS", help="As for rbac: settings.posting.enabled.")
]
Managed: TypeAlias = Annotated[
    str | None,
    option("--managed", env="MANAGED", metavar="NAME", help="As for rbac: settings.admission.managed."),
]
Conversions: TypeAlias = Annotated[
    bool,
    option(
        "--managed-conversions",
        env="MANAGED_CONVERSIONS",
        help="As for rbac: settings.admission.managed_conversions.",
    ),
]
CaSecret: TypeAlias = Annotated[
    str | None,
    option("--ca-secret", env="CA_SECRET", metavar="NAMESPACE/NAME", help="As for rbac; then without cert-manager."),
]
Rules: TypeAlias = Annotated[
    list[str] | None,
    option("--rule", env="RULES", metavar="VERBS:KINDS", help="As for rbac: rights of handlers; repeatable."),
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRequest:
    """Options of commands about deployments: for the roles, for the deployment, and files with CRDs."""

    rbac: RbacOptions
    deployment: DeploymentOptions
    crds: tuple[str, ...] = ()
    other_crds: tuple[str, ...] = ()


def manifests(
    context: typer.Context,
    files: Files = None,
    modules: Modules = None,
    output: Output = None,
    force: Force = False,
    name: Name = "trioperator",
    pod_namespace: PodNamespace = None,
    create_namespace: CreateNamespace = True,
    image: Image = "operator",
    crds: Crds = None,
    other_crds: OtherCrds = None,
    clusterwide: Clusterwide = False,
    namespaces: Namespaces = None,
    peering: PeeringName = None,
    replicas: Replicas = 1,
    leader_elect: LeaderElect = False,
    shards: Shards = 1,
    metrics: Metrics = False,
    prometheus: Prometheus = "monitoring",
    service_monitor: ServiceMonitor = True,
    scanning: Scanning = True,
    events: Events = True,
    managed: Managed = None,
    conversions: Conversions = False,
    ca_secret: CaSecret = None,
    rules: Rules = None,
) -> None:
    """Print or write the manifests of a deployment.

    Together they are a base for kustomize.
    """
    from trioperator.cli.failures import report_failure

    if force and output is None:
        raise typer.BadParameter("it requires -o.", param_hint="'--force'")
    configure(quiet=True)
    try:
        _make_base(parse_request(context.params), None if output is None else pathlib.Path(output), force=force)
    except (typer.Exit, typer.BadParameter):
        raise
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are reported
        raise typer.Exit(report_failure(error, get_logger("trioperator.cli"))) from None


def parse_request(params: Mapping[str, Any]) -> DeploymentRequest:
    """Return the request for the parameters of a command. Raises BadParameter and ConfigError."""
    from trioperator._tooling.deployment.options import DeploymentOptions

    _check_usage(params)
    rbac = _make_rbac_options(params)
    deployment = DeploymentOptions(
        name=params["name"],
        namespace=params["pod_namespace"] or params["name"],
        image=params["image"],
        files=rbac.files,
        modules=rbac.modules,
        patterns=rbac.namespaces,
        peering=params["peering"],
        replicas=params["replicas"],
        leader_elect=params["leader_elect"],
        shards=params["shards"],
        prometheus=params["prometheus"] if params["metrics"] else None,
        service_monitor=params.get("service_monitor", True),
        create_namespace=params.get("create_namespace", False),
    )
    crds, other_crds = (tuple(params[key] or ()) for key in ("crds", "other_crds"))
    return DeploymentRequest(rbac=rbac, deployment=deployment, crds=crds, other_crds=other_crds)


def _check_usage(params: Mapping[str, Any]) -> None:
    if not params["files"] and not params["modules"]:
        raise typer.BadParameter("pass files or modules (-m) with handlers.", param_hint="FILES")
    if params["clusterwide"] and params["namespaces"]:
        raise typer.BadParameter("pass either -n or -A, not both.", param_hint="'-n' / '-A'")
    if params.get("ca_secret") is not None and params["managed"] is None and not params["conversions"]:
        hint = "'--ca-secret'"
        raise typer.BadParameter("it requires --managed or --managed-conversions.", param_hint=hint)


def _make_rbac_options(params: Mapping[str, Any]) -> RbacOptions:
    account = (params["pod_namespace"] or params["name"], params["name"])
    has_lease = params["leader_elect"] or params["shards"] > 1
    return RbacOptions(
        files=tuple(params["files"] or ()),
        modules=tuple(params["modules"] or ()),
        namespaces=tuple(params["namespaces"] or ()),
        standalone=params["peering"] is None,
        peering=params["peering"],
        lease=account if has_lease else None,
        shards=params["shards"],
        scanning=params["scanning"],
        events=params["events"],
        managed=params.get("managed"),
        conversions=params.get("conversions", False),
        ca_secret=parse_pair(params.get("ca_secret"), "--ca-secret"),
        name=params["name"],
        account=account,
        rules=parse_rules(params["rules"] or ()),
    )


def _make_base(request: DeploymentRequest, directory: pathlib.Path | None, *, force: bool) -> None:
    from trioperator._tooling.deployment.base import FILES, KUSTOMIZATION, make_base
    from trioperator._tooling.deployment.files import describe_written, find_leftovers, render, write_files

    base = make_base(request.deployment, load_parts(request))
    if directory is None:
        objects = [each for name, objects in base.items() if name != KUSTOMIZATION for each in objects]
        typer.echo(render(objects), nl=False)
        return
    written = write_files(directory, {name: render(objects) for name, objects in base.items()}, force=force)
    logger = get_logger("trioperator.cli")
    for name in find_leftovers(directory, base, FILES):
        logger.warning("%s is no longer part of the base: delete it.", directory / name)
    typer.echo(describe_written(directory, written, count=len(base)), err=True)


def load_parts(request: DeploymentRequest) -> OperatorParts:
    """Load the operator, and collect what its deployment is made of. What is unclear is logged. Raises ConfigError."""
    import trio

    from trioperator._handling.declaring.registry import get_default_registry
    from trioperator._tooling.permissions import list_permissions
    from trioperator.cli.kinds import discover_kinds
    from trioperator.cli.loading import load_all
    from trioperator.cli.manifests import find_declared, load_manifests

    load_all(request.rbac.files, request.rbac.modules)
    registry = get_default_registry()
    registry.check()
    own, others = (_select_definitions(load_manifests(paths)) for paths in (request.crds, request.other_crds))
    own += find_declared([*own, *others])
    resources = trio.run(discover_kinds, [*own, *others])
    requirements, problems = make_requirements(request.rbac, resources)
    permissions = list_permissions(tuple(registry), resources, requirements)
    if request.rbac.managed is not None:
        problems += _find_removals(registry, has_replicas=request.deployment.has_lease)
    for problem in (*problems, *permissions.problems):
        get_logger("trioperator.cli").warning("%s", problem)
    return _make_parts(request, registry, definitions=own, resources=resources, permissions=permissions)


def _find_removals(registry: OperatorRegistry, *, has_replicas: bool) -> list[str]:
    """Return which managed webhooks do not outlive the operator.

    Raises ConfigError if one replica that stops would remove the webhooks of all.
    """
    from trioperator._handling.reviews.webhook_configuration import describe_removal

    found = (describe_removal(each, has_replicas=has_replicas) for each in registry.admission_handlers())
    removals = [removal for removal in found if removal is not None]
    if removals and has_replicas:
        raise ConfigError("\n".join(removals))
    return removals


def _make_parts(
    request: DeploymentRequest,
    registry: OperatorRegistry,
    *,
    definitions: Collection[Manifest],
    resources: Collection[Resource],
    permissions: Permissions,
) -> OperatorParts:
    from trioperator._tooling.deployment.base import OperatorParts

    contents = [dict(manifest.content) for manifest in definitions]
    return OperatorParts(
        permissions=permissions,
        definitions=sorted(contents, key=lambda content: str(content["metadata"]["name"])),
        resources=resources,
        admission=registry.admission_handlers(),
        conversion=registry.conversion_handlers(),
        registers=request.rbac.managed is not None,
        converts=request.rbac.conversions,
        ca_secret=None if request.rbac.ca_secret is None else "/".join(request.rbac.ca_secret),
    )


def _select_definitions(manifests: Collection[Manifest]) -> list[Manifest]:
    for manifest in manifests:
        if manifest.content["kind"] != "CustomResourceDefinition":
            raise ConfigError(f"{manifest} is not a CustomResourceDefinition.")
    return list(manifests)
