"""The command ``trioperator manifests``: the kustomize base of an operator."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trioperator._logs import configure, get_logger
from trioperator.cli.options import check_scope, option, taking
from trioperator.cli.rbac import (
    CaSecret,
    Clusterwide,
    Conversions,
    Managed,
    Migrate,
    Namespaces,
    RbacOptions,
    RightsOptions,
    find_missing_options,
    make_rbac_options,
    make_requirements,
)
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

    from trioperator._handling.declaring.registry import OperatorRegistry
    from trioperator._model.resource import Resource
    from trioperator._tooling.deployment.base import OperatorParts
    from trioperator._tooling.deployment.options import DeploymentOptions
    from trioperator._tooling.permissions import Permissions
    from trioperator.cli.manifests import Manifest

# Options that are passed on unchanged.
_SHARED: Final = (
    *("name", "image", "peering", "replicas", "leader_elect", "shards", "service_monitor", "alerts", "runbooks"),
    "create_namespace",
)


class DeploymentCommand(RightsOptions, frozen=True, kw_only=True):
    """Options that commands about deployments have in common."""

    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES", help="Python files with handlers, by their paths in the image.", show_default=False
        ),
    ] = []
    force: Annotated[bool, option("--force", "Replace files that differ.")] = False
    name: Annotated[str, option("--name NAME", "Name of the operator's objects.")] = "trioperator"
    image: Annotated[str, option("--image REF", "Image whose entry point is trioperator run.")] = "operator"
    crds: Annotated[
        list[str], option("--crds FILE", "Include the CRDs in a file, a directory or stdin; repeatable.")
    ] = []
    other_crds: Annotated[list[str], option("--other-crds FILE", "CRDs that others install; repeatable.")] = []
    peering: Annotated[str | None, option("-P --peering NAME", "Name of the peering object; by default, none.")] = None
    replicas: Annotated[int, option("--replicas NUMBER", "Number of pods.", min=1)] = 1
    metrics: Annotated[
        bool, option("--metrics", "Serve metrics, with a ServiceMonitor for the Prometheus Operator.")
    ] = False


class ManifestsOptions(DeploymentCommand, frozen=True, kw_only=True):
    """Options of ``trioperator manifests``."""

    output: Annotated[
        str | None, option("-o --output DIR", "Write files into this directory; by default, print YAML.")
    ] = None
    pod_namespace: Annotated[
        str | None,
        option("--pod-namespace NAME", "Namespace of the operator's pods; by default, it has the operator's name."),
    ] = None
    create_namespace: Annotated[
        bool, option("--create-namespace/--no-create-namespace", "Whether the namespace is included.")
    ] = True
    clusterwide: Clusterwide = False
    namespaces: Namespaces = []
    managed: Managed = None
    conversions: Conversions = False
    migrate: Migrate = False
    ca_secret: CaSecret = None
    prometheus: Annotated[str, option("--prometheus NAMESPACE", "With --metrics: the namespace of Prometheus.")] = (
        "monitoring"
    )
    service_monitor: Annotated[
        bool,
        option(
            "--service-monitor/--no-service-monitor",
            "With --metrics: whether a ServiceMonitor is included, or annotations for a Prometheus without it.",
        ),
    ] = True
    alerts: Annotated[
        bool,
        option(
            "--alerts",
            "With --metrics: include alerts for the Prometheus Operator; with --no-service-monitor, a rules file.",
        ),
    ] = False
    runbooks: Annotated[
        str | None, option("--runbooks URL", "With --alerts: the page with the runbooks, for links.")
    ] = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRequest:
    """Options of commands about deployments: for the roles, for the deployment, and files with CRDs."""

    rbac: RbacOptions
    deployment: DeploymentOptions
    crds: tuple[str, ...] = ()
    other_crds: tuple[str, ...] = ()


@taking(ManifestsOptions, "DEPLOY")
def manifests(context: typer.Context, options: ManifestsOptions) -> None:
    """Print or write the manifests of a deployment.

    Together they are a base for kustomize.
    """
    from trioperator.cli.failures import reporting_failures

    if options.force and options.output is None:
        raise typer.BadParameter("it requires -o.", param_hint="'--force'")
    configure(quiet=True)
    with reporting_failures():
        directory = None if options.output is None else pathlib.Path(options.output)
        _make_base(parse_request(options), directory, force=options.force)


def parse_request(options: ManifestsOptions) -> DeploymentRequest:
    """Return the request for the options of a command. Raises BadParameter and ConfigError."""
    from trioperator._tooling.deployment.options import DeploymentOptions

    _check_usage(options)
    account = (options.pod_namespace or options.name, options.name)
    has_lease = options.leader_elect or options.shards > 1
    is_standalone = options.peering is None
    rbac = make_rbac_options(options, standalone=is_standalone, lease=account if has_lease else None, account=account)
    deployment = DeploymentOptions(
        **{name: getattr(options, name) for name in _SHARED},
        namespace=account[0],
        files=tuple(options.files),
        modules=tuple(options.modules),
        patterns=tuple(options.namespaces),
        prometheus=options.prometheus if options.metrics else None,
    )
    return DeploymentRequest(
        rbac=rbac, deployment=deployment, crds=tuple(options.crds), other_crds=tuple(options.other_crds)
    )


def _check_usage(options: ManifestsOptions) -> None:
    options.check_sources()
    check_scope(clusterwide=options.clusterwide, namespaces=options.namespaces)
    if options.alerts and not options.service_monitor and options.output is None:
        raise typer.BadParameter("without a ServiceMonitor, it requires -o.", param_hint="'--alerts'")
    if options.ca_secret is not None and options.managed is None and not options.conversions:
        hint = "'--ca-secret'"
        raise typer.BadParameter("it requires --managed or --managed-conversions.", param_hint=hint)


def _make_base(request: DeploymentRequest, directory: pathlib.Path | None, *, force: bool) -> None:
    from trioperator._tooling.deployment.alerts import make_rules
    from trioperator._tooling.deployment.base import FILES, KUSTOMIZATION, RULES, make_base
    from trioperator._tooling.deployment.files import describe_written, find_leftovers, render, write_files

    base = make_base(request.deployment, load_parts(request))
    if directory is None:
        objects = [each for name, objects in base.items() if name != KUSTOMIZATION for each in objects]
        typer.echo(render(objects), nl=False)
        return
    if request.deployment.alerts and not request.deployment.service_monitor:
        base[RULES] = [make_rules(request.deployment)]
    written = write_files(directory, {name: render(objects) for name, objects in base.items()}, force=force)
    logger = get_logger("trioperator.cli")
    for name in find_leftovers(directory, base, (*FILES, RULES)):
        logger.warning("%s is no longer part of the base: delete it.", directory / name)
    typer.echo(describe_written(directory, written, count=len(base)), err=True)


def load_parts(request: DeploymentRequest) -> OperatorParts:
    """Load the operator, and collect the parts of its deployment. Problems are logged. Raises ConfigError."""
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
    requirements, problems = make_requirements(request.rbac, resources, registry.declared_kinds())
    problems += find_missing_options(request.rbac)
    permissions = list_permissions(tuple(registry), resources, requirements)
    problems += _find_removals(registry, request)
    for problem in (*problems, *permissions.problems):
        get_logger("trioperator.cli").warning("%s", problem)
    return _make_parts(request, registry, definitions=own, resources=resources, permissions=permissions)


def _find_removals(registry: OperatorRegistry, request: DeploymentRequest) -> list[str]:
    """Return which managed webhooks are removed when the operator stops, by its options and the settings it assigns.

    Raises ConfigError if a replica that stops would remove the webhooks of all replicas.
    """
    from trioperator._handling.reviews.webhook_configuration import describe_removal
    from trioperator.cli.project import ELECTS, MANAGES, assigns, parse_sources

    sources = list(parse_sources(request.rbac.files, request.rbac.modules))
    if request.rbac.managed is None and not assigns(sources, *MANAGES):
        return []
    has_replicas = request.deployment.has_lease or assigns(sources, *ELECTS)
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
