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

    name: Annotated[
        str, option("-P", "--peering", env="PEERING_NAME", metavar="NAME", help="Name of the peering object.")
    ] = "default"
    identity: Annotated[
        str | None,
        option("-i", "--id", env="PEERING_ID", metavar="ID", help="Name of the record: user and host by default."),
    ] = None
    clusterwide: Annotated[
        bool, option("-A", "--all-namespaces", env="PEERING_ALL_NAMESPACES", help="For cluster-wide operators.")
    ] = False
    namespaces: Annotated[
        list[str],
        option(
            "-n",
            "--namespace",
            env="PEERING_NAMESPACES",
            metavar="NAME",
            help="For operators of this namespace; repeatable.",
        ),
    ] = []
    verbose: Annotated[bool, option("-v", "--verbose", env="PEERING_VERBOSE", help="Log debug messages.")] = False
    debug: Annotated[
        bool, option("-d", "--debug", env="PEERING_DEBUG", help="Log debug messages, also of libraries.")
    ] = False
    quiet: Annotated[bool, option("-q", "--quiet", env="PEERING_QUIET", help="Log only warnings and errors.")] = False
    format: Annotated[
        LogFormatName,
        option("--log-format", env="PEERING_LOG_FORMAT", case_sensitive=False, help="Format of the logs."),
    ] = LogFormatName.FULL
    prefix: Annotated[
        bool | None, option("--log-prefix/--no-log-prefix", env="PEERING_LOG_PREFIX", help="Ignored.")
    ] = None
    refkey: Annotated[str | None, option("--log-refkey", env="PEERING_LOG_REFKEY", metavar="KEY", help="Ignored.")] = (
        None
    )


class FreezeOptions(ResumeOptions, frozen=True, kw_only=True):
    """Options of ``trioperator freeze``."""

    lifetime: Annotated[
        int, option("-t", "--lifetime", env="FREEZE_LIFETIME", min=1, metavar="SECONDS", help="Duration of the pause.")
    ]
    priority: Annotated[
        int, option("-p", "--priority", env="FREEZE_PRIORITY", metavar="NUMBER", help="Operators below it pause.")
    ] = 100
    dev: Annotated[bool, option("--dev", env="FREEZE_DEV", help="Use the priority 666.")] = False
    message: Annotated[
        str | None, option("-m", "--message", env="FREEZE_MESSAGE", metavar="TEXT", help="Ignored, as by Kopf.")
    ] = None


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
