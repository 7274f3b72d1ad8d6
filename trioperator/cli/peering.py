"""The commands ``trioperator freeze`` and ``trioperator resume``: pause operators by their peering object."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
import typer

from trioperator._logs import LogFormat, configure, get_logger
from trioperator.cli.options import declare_option, taking
from trioperator.cli.run_options import LogFormatName

if TYPE_CHECKING:
    from trioperator._kube.api_client import ApiClient
    from trioperator._model.resource import Resource

_DEV_PRIORITY: Final = 666

Name: TypeAlias = Annotated[
    str, declare_option("PEERING", "-P", "--peering", env="NAME", metavar="NAME", help="Name of the peering object.")
]
Identity: TypeAlias = Annotated[
    str | None,
    declare_option(
        "PEERING", "-i", "--id", env="ID", metavar="ID", help="Name of the record: user and host by default."
    ),
]
Clusterwide: TypeAlias = Annotated[
    bool, declare_option("PEERING", "-A", "--all-namespaces", env="ALL_NAMESPACES", help="Cluster-wide operators.")
]
Namespaces: TypeAlias = Annotated[
    list[str] | None,
    declare_option(
        "PEERING", "-n", "--namespace", env="NAMESPACES", metavar="NAME", help="Operators of a namespace; repeatable."
    ),
]
Lifetime: TypeAlias = Annotated[
    int,
    declare_option("FREEZE", "-t", "--lifetime", env="LIFETIME", min=1, metavar="SECONDS", help="How long to pause."),
]
Priority: TypeAlias = Annotated[
    int, declare_option("FREEZE", "-p", "--priority", env="PRIORITY", metavar="NUMBER", help="Pause operators below.")
]
Dev: TypeAlias = Annotated[bool, declare_option("FREEZE", "--dev", env="DEV", help="Use the priority 666.")]
Message: TypeAlias = Annotated[
    str | None,
    declare_option("FREEZE", "-m", "--message", env="MESSAGE", metavar="TEXT", help="Ignored, as by Kopf."),
]
Verbose: TypeAlias = Annotated[bool, declare_option("PEERING", "-v", "--verbose", env="VERBOSE", help="Log more.")]
Debug: TypeAlias = Annotated[bool, declare_option("PEERING", "-d", "--debug", env="DEBUG", help="Log everything.")]
Quiet: TypeAlias = Annotated[bool, declare_option("PEERING", "-q", "--quiet", env="QUIET", help="Log only failures.")]
Format: TypeAlias = Annotated[
    LogFormatName,
    declare_option("PEERING", "--log-format", env="LOG_FORMAT", case_sensitive=False, help="Format of the logs."),
]
Prefix: TypeAlias = Annotated[
    bool | None, declare_option("PEERING", "--log-prefix/--no-log-prefix", env="LOG_PREFIX", help="Ignored.")
]
RefKey: TypeAlias = Annotated[
    str | None, declare_option("PEERING", "--log-refkey", env="LOG_REFKEY", metavar="KEY", help="Ignored.")
]

_Action: TypeAlias = "Callable[[ApiClient, Resource, str | None], Awaitable[None]]"


class ResumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``trioperator resume``, which ``trioperator freeze`` has, too."""

    name: Name = "default"
    identity: Identity = None
    clusterwide: Clusterwide = False
    namespaces: Namespaces = None
    verbose: Verbose = False
    debug: Debug = False
    quiet: Quiet = False
    format: Format = LogFormatName.FULL
    prefix: Prefix = None
    refkey: RefKey = None


class FreezeOptions(ResumeOptions, frozen=True, kw_only=True):
    """Options of ``trioperator freeze``."""

    lifetime: Lifetime
    priority: Priority = 100
    dev: Dev = False
    message: Message = None


@taking(FreezeOptions)
def freeze(context: typer.Context, options: FreezeOptions) -> None:
    """Pause operators of a lower priority for a while.

    They have the same peering object.
    """

    async def act(client: ApiClient, resource: Resource, namespace: str | None) -> None:
        from trioperator._concurrency.clock import wall_now
        from trioperator._coordination.peering import write_record
        from trioperator._coordination.peers import Peer

        priority = _DEV_PRIORITY if options.dev else options.priority
        peer = Peer(_identify(options.identity), priority, options.lifetime, wall_now())
        await write_record(client, resource, namespace, options.name, peer)

    _run(act, options)


@taking(ResumeOptions)
def resume(context: typer.Context, options: ResumeOptions) -> None:
    """Resume operators that freeze has paused."""

    async def act(client: ApiClient, resource: Resource, namespace: str | None) -> None:
        from trioperator._coordination.peering import remove_record

        await remove_record(client, resource, namespace, options.name, [_identify(options.identity)])

    _run(act, options)


def _identify(identity: str | None) -> str:
    from trioperator._coordination.identity import make_identity

    return identity or make_identity(manual=True)


def _run(act: _Action, options: ResumeOptions) -> None:
    """Do something in the cluster, or in each of the namespaces. Failures are logged, and lead to an exit code."""
    import trio

    from trioperator.cli.failures import report_failure

    log_format = LogFormat[options.format.name]
    configure(verbose=options.verbose, debug=options.debug, quiet=options.quiet, log_format=log_format)
    if options.clusterwide and options.namespaces:
        raise typer.BadParameter("pass either -n or -A, not both.", param_hint="'-n' / '-A'")
    try:
        trio.run(functools.partial(_act, act, options.namespaces or [None]))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are reported
        raise typer.Exit(report_failure(error, get_logger("trioperator.cli"))) from None


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
