"""The command ``trioperator bundle``: an operator for the Operator Lifecycle Manager."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trioperator._logs import configure, get_logger
from trioperator.cli.deployment import DeploymentCommand, ManifestsOptions, parse_request
from trioperator.cli.options import option, split_names, taking
from trioperator.errors import ApiError, ConfigError

if TYPE_CHECKING:
    from trioperator._model.jsontypes import JsonObject
    from trioperator._tooling.deployment.bundle import BundleOptions
    from trioperator.cli.deployment import DeploymentRequest


class BundleArguments(DeploymentCommand, frozen=True, kw_only=True):
    """Options of ``trioperator bundle``."""

    version: Annotated[str, option("--version VERSION", "Version of the operator, such as 1.2.3.")]
    output: Annotated[str, option("-o --output DIR", "Write the bundle into this directory.")] = "bundle"
    examples: Annotated[list[str], option("--examples FILE", "Examples of custom objects; repeatable.")] = []
    channels: Annotated[
        str, option("--channels NAMES", "Channels, separated by commas; the first one is the default.")
    ] = "alpha"
    replaces: Annotated[str | None, option("--replaces VERSION", "Version that this one replaces in upgrades.")] = None
    display_name: Annotated[str, option("--display-name TEXT", "Display name of the operator.")] = ""
    description: Annotated[str, option("--description TEXT", "What the operator does, in Markdown.")] = ""
    provider: Annotated[str, option("--provider TEXT", "Who publishes the operator.")] = ""
    min_kube_version: Annotated[str, option("--min-kube-version VERSION", "Oldest version of Kubernetes.")] = "1.25.0"


@taking(BundleArguments, "DEPLOY")
def bundle(context: typer.Context, options: BundleArguments) -> None:
    """Write a bundle for the Operator Lifecycle Manager.

    OLM installs operators from bundles.
    """
    from trioperator.cli.failures import reporting_failures

    configure(quiet=True)
    with reporting_failures():
        _write(_make_request(options), options)


def _make_request(options: BundleArguments) -> DeploymentRequest:
    """Return the request of the manifests, without namespaces and webhooks, which OLM chooses and manages."""
    shared = {name: getattr(options, name) for name in DeploymentCommand.__struct_fields__}
    return parse_request(ManifestsOptions(**shared, prometheus="", create_namespace=False))


def _write(request: DeploymentRequest, arguments: BundleArguments) -> None:
    import trio

    from trioperator._tooling.deployment.bundle import make_annotations, make_bundle, make_dockerfile
    from trioperator._tooling.deployment.files import describe_written, render, write_files
    from trioperator.cli.deployment import load_parts
    from trioperator.cli.manifests import load_manifests

    options = _make_options(arguments)
    # OLM grants the rights of this namespace in those that the operator is installed for.
    rbac = dataclasses.replace(request.rbac, namespaces=(request.deployment.namespace,))
    parts = load_parts(dataclasses.replace(request, rbac=rbac))
    given = [dict(manifest.content) for manifest in load_manifests(tuple(arguments.examples))]
    examples = trio.run(_complete_examples, given, parts.definitions)
    made = make_bundle(request.deployment, options, parts, examples=examples)
    annotations = make_annotations(request.deployment, options)
    files = {name: render([content]) for name, content in made.items()}
    files["metadata/annotations.yaml"] = render([{"annotations": annotations}])
    files["bundle.Dockerfile"] = make_dockerfile(annotations)
    directory = pathlib.Path(arguments.output)
    written = write_files(directory, files, force=arguments.force)
    for handler in parts.admission:
        if handler.namespace_selector or handler.match_conditions:
            text = "%s has a namespace selector or match conditions, which OLM does not know: all objects are reviewed."
            get_logger("trioperator.cli").warning(text, handler)
    typer.echo(describe_written(directory, written, count=len(files)), err=True)


def _make_options(arguments: BundleArguments) -> BundleOptions:
    from trioperator._tooling.deployment.bundle import BundleOptions

    return BundleOptions(
        version=arguments.version,
        channels=split_names(arguments.channels),
        display_name=arguments.display_name,
        description=arguments.description,
        provider=arguments.provider,
        replaces=arguments.replaces,
        min_kube_version=arguments.min_kube_version,
    )


async def _complete_examples(given: Sequence[JsonObject], definitions: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the examples, with one added for each served version of a CRD that has none.

    Raises ConfigError if the CRDs reject a given example; an added one that they reject is logged.
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
