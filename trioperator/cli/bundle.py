"""The command ``trioperator bundle``: an operator for the Operator Lifecycle Manager."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from trioperator._logs import configure, get_logger
from trioperator.cli import deployment
from trioperator.cli.deployment import option, parse_request
from trioperator.cli.options import split_names
from trioperator.errors import ApiError, ConfigError

if TYPE_CHECKING:
    from trioperator._model.jsontypes import JsonObject
    from trioperator._tooling.deployment.bundle import BundleOptions
    from trioperator.cli.deployment import DeploymentRequest

Version: TypeAlias = Annotated[
    str, option("--version", env="VERSION", metavar="VERSION", help="Version of the operator, such as 1.2.3.")
]
Output: TypeAlias = Annotated[
    str, option("-o", "--output", env="OUTPUT", metavar="DIR", help="Write the bundle in this directory.")
]
Channels: TypeAlias = Annotated[
    str, option("--channels", env="CHANNELS", metavar="NAMES", help="Channels, separated by commas; first: default.")
]
Replaces: TypeAlias = Annotated[
    str | None, option("--replaces", env="REPLACES", metavar="VERSION", help="Version that is upgraded to this one.")
]
DisplayName: TypeAlias = Annotated[
    str, option("--display-name", env="DISPLAY_NAME", metavar="TEXT", help="Name of the operator for people.")
]
Description: TypeAlias = Annotated[
    str, option("--description", env="DESCRIPTION", metavar="TEXT", help="What the operator does, in Markdown.")
]
Provider: TypeAlias = Annotated[
    str, option("--provider", env="PROVIDER", metavar="TEXT", help="Who publishes the operator.")
]
MinKubeVersion: TypeAlias = Annotated[
    str, option("--min-kube-version", env="MIN_KUBE_VERSION", metavar="VERSION", help="The oldest Kubernetes.")
]
Examples: TypeAlias = Annotated[
    list[str] | None,
    option("--examples", env="EXAMPLES", metavar="FILE", help="Examples of custom objects; repeatable."),
]

# Options of manifests that a bundle has not: OLM decides about namespaces, and manages the webhooks.
_OTHERS: Final[Mapping[str, Any]] = {
    "clusterwide": False,
    "namespaces": None,
    "managed": None,
    "prometheus": "",
}


def bundle(
    context: typer.Context,
    version: Version,
    files: deployment.Files = None,
    modules: deployment.Modules = None,
    output: Output = "bundle",
    force: deployment.Force = False,
    name: deployment.Name = "trioperator",
    image: deployment.Image = "operator",
    crds: deployment.Crds = None,
    other_crds: deployment.OtherCrds = None,
    examples: Examples = None,
    channels: Channels = "alpha",
    replaces: Replaces = None,
    display_name: DisplayName = "",
    description: Description = "",
    provider: Provider = "",
    min_kube_version: MinKubeVersion = "1.25.0",
    peering: deployment.PeeringName = None,
    replicas: deployment.Replicas = 1,
    leader_elect: deployment.LeaderElect = False,
    shards: deployment.Shards = 1,
    metrics: deployment.Metrics = False,
    scanning: deployment.Scanning = True,
    events: deployment.Events = True,
    rules: deployment.Rules = None,
) -> None:
    """Write a bundle for the Operator Lifecycle Manager.

    It is what OLM installs an operator from.
    """
    from trioperator.cli.failures import report_failure

    configure(quiet=True)
    try:
        _write(parse_request({**_OTHERS, "pod_namespace": None, **context.params}), context.params)
    except (typer.Exit, typer.BadParameter):
        raise
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are reported
        raise typer.Exit(report_failure(error, get_logger("trioperator.cli"))) from None


def _write(request: DeploymentRequest, params: Mapping[str, Any]) -> None:
    import trio

    from trioperator._tooling.deployment.bundle import make_annotations, make_bundle, make_dockerfile
    from trioperator._tooling.deployment.files import describe_written, render, write_files
    from trioperator.cli.deployment import load_parts
    from trioperator.cli.manifests import load_manifests

    options = _make_options(params)
    # OLM grants the rights of this namespace in those that the operator is installed for.
    rbac = dataclasses.replace(request.rbac, namespaces=(request.deployment.namespace,))
    parts = load_parts(dataclasses.replace(request, rbac=rbac))
    given = [dict(manifest.content) for manifest in load_manifests(tuple(params["examples"] or ()))]
    examples = trio.run(_complete_examples, given, parts.definitions)
    made = make_bundle(request.deployment, options, parts, examples=examples)
    annotations = make_annotations(request.deployment, options)
    files = {name: render([content]) for name, content in made.items()}
    files["metadata/annotations.yaml"] = render([{"annotations": annotations}])
    files["bundle.Dockerfile"] = make_dockerfile(annotations)
    directory = pathlib.Path(params["output"])
    written = write_files(directory, files, force=params["force"])
    for handler in parts.admission:
        if handler.namespace_selector or handler.match_conditions:
            text = "%s has a namespace selector or match conditions, which OLM does not know: all objects are reviewed."
            get_logger("trioperator.cli").warning(text, handler)
    typer.echo(describe_written(directory, written, count=len(files)), err=True)


def _make_options(params: Mapping[str, Any]) -> BundleOptions:
    from trioperator._tooling.deployment.bundle import BundleOptions

    return BundleOptions(
        version=params["version"],
        channels=split_names(params["channels"]),
        display_name=params["display_name"],
        description=params["description"],
        provider=params["provider"],
        replaces=params["replaces"],
        min_kube_version=params["min_kube_version"],
    )


async def _complete_examples(given: Sequence[JsonObject], definitions: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the examples, with one for each served version of a CRD that has none. Those must be valid.

    Raises ConfigError for a given example that the CRDs reject; of those that are made, it is logged.
    """
    from trioperator._tooling.deployment.examples import make_example
    from trioperator.apiserver import Cluster

    cluster, complete = Cluster(), list(given)
    for definition in definitions:
        await cluster.apply(definition)
        for version in definition["spec"]["versions"]:
            example = make_example(definition, version)
            kind = (example["apiVersion"], example["kind"])
            if version.get("served") and kind not in {(each["apiVersion"], each["kind"]) for each in complete}:
                complete.append(example)
    for example in complete:
        if problem := await _find_problem(cluster, example):
            text = f"The example {example['metadata'].get('name')} of {example['kind']} is invalid: {problem}"
            if example in given:
                raise ConfigError(text)
            get_logger("trioperator.cli").warning("%s Pass one with --examples.", text)
    return complete


async def _find_problem(cluster: Any, example: JsonObject) -> str | None:
    try:
        await cluster.apply(example)
    except (ApiError, ConfigError) as error:
        return str(error)
    return None
