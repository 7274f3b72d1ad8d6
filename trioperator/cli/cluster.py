"""The command ``trioperator cluster``: a standalone API server that runs until a signal stops it."""

from __future__ import annotations

import contextlib
import enum
import functools
import os
import pathlib
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import trio
import typer

from trioperator._logs import LogFormat, configure, get_logger
from trioperator.cli.admin import adjustable_clock, cluster_options, make_admin
from trioperator.cli.assets import assets, write_assets
from trioperator.cli.options import option, split_names, taking

if TYPE_CHECKING:
    from trioperator.apiserver import Cluster
    from trioperator.cli.manifests import Manifest

_logger = get_logger(__name__)


class AuthorizationName(enum.StrEnum):
    """Names of the authorization modes on the command line."""

    RBAC = "rbac"
    ALWAYS_ALLOW = "always-allow"


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``trioperator cluster``."""

    host: Annotated[str, option("--host ADDRESS", "Listen on this address.")] = "127.0.0.1"
    port: Annotated[int, option("--port PORT", "Listen on this port; 0 picks a free one.", min=0, max=65535)] = 0
    tls: Annotated[bool, option("--tls/--no-tls", "Serve over TLS with its own CA.")] = True
    data: Annotated[str | None, option("--data FILE", "Keep the objects in this file across restarts.")] = None
    kubeconfig: Annotated[
        str | None,
        option("--kubeconfig FILE", "Write the kubeconfig to this file and keep it; to a temporary file by default."),
    ] = None
    manifests: Annotated[
        list[str], option("--apply FILE", "Apply the manifests in a file, a directory or stdin (-); repeatable.")
    ] = []
    authorization: Annotated[
        AuthorizationName, option("--authorization", "Authorization mode: RBAC, or allow everything.")
    ] = AuthorizationName.ALWAYS_ALLOW
    controllers: Annotated[
        str, option("--controllers NAMES", "Run these controllers, separated by commas, or all; none by default.")
    ] = ""
    print_assets: Annotated[
        str | None,
        option(
            "--print-assets DIR",
            "Serve nothing: write stand-ins for kube-apiserver, etcd and kubectl to this directory, and print it.",
        ),
    ] = None
    admin_token: Annotated[
        str | None,
        option(
            "--admin-token FILE",
            "Serve the admin endpoint to clients with the token in this file, which is created if it is missing.",
        ),
    ] = None


cluster = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
cluster.command("assets")(assets)


@cluster.callback(invoke_without_command=True)
@taking(ClusterOptions, "CLUSTER")
def serve_standalone(context: typer.Context, options: ClusterOptions) -> None:
    """Serve a standalone Kubernetes API until stopped.

    It is for kubectl and for operators in other processes.
    """
    if context.invoked_subcommand is None:
        raise typer.Exit(run_cluster(options, echo=typer.echo))


def run_cluster(options: ClusterOptions, *, echo: Callable[[str], None] = print) -> int:
    """Serve a cluster until SIGINT or SIGTERM, and return the exit code. Failures are logged."""
    from trioperator.cli.failures import SUCCESS, report_failure
    from trioperator.cli.manifests import load_manifests

    configure(log_format=LogFormat.PLAIN)
    try:
        if options.print_assets is not None:
            echo(str(write_assets(pathlib.Path(options.print_assets))))
            return SUCCESS
        manifests = load_manifests(options.manifests)
        serve_all = functools.partial(_serve_until_signal, options, manifests, echo=echo)
        trio.run(serve_all, clock=adjustable_clock(options.admin_token))
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are reported
        return report_failure(error, get_logger("trioperator.cli"))
    return SUCCESS


async def _serve_until_signal(
    options: ClusterOptions, manifests: Sequence[Manifest], *, echo: Callable[[str], None]
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(functools.partial(serve, options, manifests, echo=echo), name="cluster")
            number = await anext(signals)
            _logger.info("Signal %s is received. The cluster is stopping.", signal.Signals(number).name)
            nursery.cancel_scope.cancel(reason="signal received")


async def serve(options: ClusterOptions, manifests: Sequence[Manifest], *, echo: Callable[[str], None]) -> None:
    """Serve a cluster with the objects of the manifests until cancelled; *echo* its URL and how to use it.

    Raises ConfigError for options that cannot be met and for manifests that the API server rejects, DataFileError if
    the data file can no longer be written.
    """
    from trioperator.apiserver import serve_cluster, write_kubeconfig
    from trioperator.cli.manifests import apply_manifests

    async with _open(options) as served, trio.open_nursery() as server:
        admin = make_admin(served, options.admin_token, options.host)
        start = functools.partial(serve_cluster, host=options.host, port=options.port, tls=options.tls, anonymous=False)
        url: str = await server.start(functools.partial(start, handler=admin), served)
        with kubeconfig_path(options.kubeconfig) as path:
            write_kubeconfig(path, served.kubeconfig(url))
            await apply_manifests(served, manifests)
            if admin is not None:
                admin.keep_start()
            echo(_introduction(url, path, options))
            await trio.sleep_forever()


@contextlib.asynccontextmanager
async def _open(options: ClusterOptions) -> AsyncIterator[Cluster]:
    from trioperator.apiserver import Cluster, open_cluster

    kept = {"authorization": options.authorization.value, **cluster_options(options.admin_token)}
    async with contextlib.AsyncExitStack() as stack:
        if options.data is None:
            opened = Cluster(**kept)
        else:
            opened = await stack.enter_async_context(open_cluster(options.data, **kept))
        await opened.add_components()
        if names := split_names(options.controllers):
            await stack.enter_async_context(opened.open_controllers(*names))
        yield opened


@contextlib.contextmanager
def kubeconfig_path(kubeconfig: str | None) -> Iterator[str]:
    """Yield the path for the kubeconfig: the given one, or one in a directory that is removed afterwards."""
    if kubeconfig is not None:
        yield os.path.abspath(kubeconfig)
    else:
        with tempfile.TemporaryDirectory(prefix="trioperator-") as directory:
            yield os.path.join(directory, "kubeconfig")


def _introduction(url: str, path: str, options: ClusterOptions) -> str:
    import shlex

    kept = f"are kept in {options.data}" if options.data is not None else "are gone when it stops (--data keeps them)"
    if options.admin_token is not None:
        kept += f"; the admin endpoint is at {url}/trioperator, its token in {options.admin_token}"
    return (
        f"The API server is at {url}, its kubeconfig is {path}. To use it:\n\n"
        f"    export KUBECONFIG={shlex.quote(path)}\n    kubectl get namespaces\n\n"
        f"Its objects {kept}. Ctrl-C stops it."
    )
