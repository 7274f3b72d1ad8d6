"""The resource kinds that commands look up: in a cluster, or offline in an embedded API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from trioperator._kube.api_client import ApiClient
    from trioperator._model.resource import Resource
    from trioperator.cli.manifests import Manifest


async def discover_kinds(manifests: Iterable[Manifest] | None) -> Collection[Resource]:
    """Discover the resource kinds of the cluster, or of an embedded API server with the CRDs among these manifests.

    Raises ConfigError if one of them is rejected.
    """
    from trioperator._kube.api_client import open_client
    from trioperator._kube.connection import load_connection
    from trioperator._kube.connection_info import ConnectionInfo
    from trioperator.settings import OperatorSettings

    settings = OperatorSettings()
    settings.networking.error_backoffs = ()
    if manifests is None:
        async with open_client(load_connection, settings=settings) as client:
            return await _discover_with(client)
    from trioperator.apiserver import Cluster
    from trioperator.cli.manifests import apply_manifests

    cluster = Cluster()
    await apply_manifests(cluster, [each for each in manifests if each.is_definition])
    info = ConnectionInfo(server="http://embedded")
    async with open_client(lambda: info, settings=settings, transport=cluster.transport()) as client:
        return await _discover_with(client)


async def discover_all(manifests: Collection[Manifest] | None, declared: Collection[Manifest]) -> Collection[Resource]:
    """Discover kinds as :func:`discover_kinds` does, together with *declared* ones that the cluster does not serve yet.

    Raises the same errors.
    """
    if manifests is not None:
        return await discover_kinds([*manifests, *declared])
    served = await discover_kinds(None)
    known = {(resource.group, resource.plural) for resource in served}
    names = ((each.content["spec"]["group"], each.content["spec"]["names"]["plural"]) for each in declared)
    if not (missing := set(names) - known):
        return served
    return [*served, *(each for each in await discover_kinds(declared) if (each.group, each.plural) in missing)]


async def _discover_with(client: ApiClient) -> Collection[Resource]:
    from trioperator._kube.discovery import discover

    return (await discover(client)).resources
