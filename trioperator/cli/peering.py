"""The commands ``trioperator freeze`` and ``trioperator resume``: pause operators by their peering object."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
import typer

from trioperator._logs import LogFormat, configure
from trioperator.cli.options import check_scope, option, taking
from trioperator.cli.run_options import LogFormatName

if TYPE_CHECKING:
    from trioperator._kube.api_client import ApiClient
    from trioperator._model.resource import Resource

_DEV_PRIORITY: Final = 666

_Action: TypeAlias = "Callable[[ApiClient, Resource, str | None], Awaitable[None]]"


class ResumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``trioperator resume``, which ``trioperator freeze`` has, too."""

    name: Annotated[str, option("-P --peering NAME", "Name of the peering object.", env="PEERING_NAME")] = "default"
    identity: Annotated[
        str | None, option("-i --id ID", "Name of the record: user and host by default.", env="PEERING_ID")
    ] = None
    clusterwide: Annotated[
        bool, option("-A --all-namespaces", "For cluster-wide operators.", env="PEERING_ALL_NAMESPACES")
    ] = False
    namespaces: Annotated[
        list[str],
        option("-n --namespace NAME", "For operators of this namespace; repeatable.", env="PEERING_NAMESPACES"),
    ] = []
    verbose: Annotated[bool, option("-v --verbose", "Log debug messages.", env="PEERING_VERBOSE")] = False
    debug: Annotated[bool, option("-d --debug", "Log debug messages, also of libraries.", env="PEERING_DEBUG")] = False
    quiet: Annotated[bool, option("-q --quiet", "Log only warnings and errors.", env="PEERING_QUIET")] = False
    format: Annotated[
        LogFormatName, option("--log-format", "Format of the logs.", env="PEERING_LOG_FORMAT", case_sensitive=False)
    ] = LogFormatName.FULL
    prefix: Annotated[bool | None, option("--log-prefix/--no-log-prefix", "Ignored.", env="PEERING_LOG_PREFIX")] = None
    refkey: Annotated[str | None, option("--log-refkey KEY", "Ignored.", env="PEERING_LOG_REFKEY")] = None


class FreezeOptions(ResumeOptions, frozen=True, kw_only=True):
    """Options of ``trioperator freeze``."""

    lifetime: Annotated[int, option("-t --lifetime SECONDS", "Duration of the pause.", env="FREEZE_LIFETIME", min=1)]
    priority: Annotated[int, option("-p --priority NUMBER", "Operators below it pause.", env="FREEZE_PRIORITY")] = 100
    dev: Annotated[bool, option("--dev", "Use the priority 666.", env="FREEZE_DEV")] = False
    message: Annotated[str | None, option("-m --message TEXT", "Ignored, as by Kopf.", env="FREEZE_MESSAGE")] = None


@taking(FreezeOptions)
def freeze(context: typer.Context, options: FreezeOptions) -> None:
    """Pause operators of a lower priority for a while.

    These are the operators with the same peering object.
    """

    async def act(client: ApiClient, resource: Resource, namespace: str | None) -> None:
        from trioperator._concurrency.clock import wall_now
        from trioperator._coordination.peering import PeeringObject
        from trioperator._coordination.peers import Peer

        priority = _DEV_PRIORITY if options.dev else options.priority
        peer = Peer(_identify(options.identity), priority, options.lifetime, wall_now())
        await PeeringObject(resource, namespace, options.name).write_record(client, peer)

    _run(act, options)


@taking(ResumeOptions)
def resume(context: typer.Context, options: ResumeOptions) -> None:
    """Resume operators that freeze has paused."""

    async def act(client: ApiClient, resource: Resource, namespace: str | None) -> None:
        from trioperator._coordination.peering import PeeringObject

        await PeeringObject(resource, namespace, options.name).remove_records(client, [_identify(options.identity)])

    _run(act, options)


def _identify(identity: str | None) -> str:
    from trioperator._coordination.identity import make_identity

    return identity or make_identity(manual=True)


def _run(act: _Action, options: ResumeOptions) -> None:
    """Run *act* for the cluster, or for each of the namespaces. Failures are logged, and decide the exit code."""
    import trio

    from trioperator.cli.failures import reporting_failures

    log_format = LogFormat[options.format.name]
    configure(verbose=options.verbose, debug=options.debug, quiet=options.quiet, log_format=log_format)
    check_scope(clusterwide=options.clusterwide, namespaces=options.namespaces)
    with reporting_failures():
        trio.run(functools.partial(_act, act, options.namespaces or [None]))


async def _act(act: _Action, namespaces: list[Any]) -> None:
    from trioperator._coordination.peering import find_peering_resource
    from trioperator._kube.api_client import open_client
    from trioperator._kube.connection import load_connection
    from trioperator.errors import ConfigError
    from trioperator.settings import OperatorSettings

    settings = OperatorSettings()
    settings.networking.error_backoffs = ()
    async with open_client(load_connection, settings=settings) as client:
        clusterwide = namespaces == [None]
        resource = await find_peering_resource(client, clusterwide=clusterwide)
        if resource is None:
            kind = "ClusterKopfPeering" if clusterwide else "KopfPeering"
            raise ConfigError(f"The cluster has no kind {kind}: create its CRD first.")
        for namespace in namespaces:
            await act(client, resource, namespace)
