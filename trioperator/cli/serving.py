"""What ``trioperator cluster`` does: an API server that stands alone, until it is told to stop."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shlex
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import trio

from trioperator.apiserver import Cluster, open_cluster, serve_cluster, write_kubeconfig
from trioperator.cli.failures import SUCCESS, report_failure
from trioperator.cli.manifests import Manifest, apply_manifests, load_manifests
from trioperator.logs import LogFormat, configure, get_logger

__all__ = ["ClusterOptions", "run_cluster", "serve"]

_logger = get_logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Hold the options of ``trioperator cluster``."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: bool = True
    data: str | None = None
    kubeconfig: str | None = None
    manifests: tuple[str, ...] = ()
    authorization: str = "always-allow"
    controllers: tuple[str, ...] = ()


def run_cluster(options: ClusterOptions, *, tell: Callable[[str], None] = print) -> int:
    """Serve a cluster until a signal comes, and give the exit code. Failures are in the logs."""
    configure(log_format=LogFormat.PLAIN)
    try:
        manifests = load_manifests(options.manifests)
        trio.run(functools.partial(_serve_until_signal, options, manifests, tell))
    except (Exception, BaseExceptionGroup, KeyboardInterrupt) as error:  # noqa: BLE001 -- all of them are told
        return report_failure(error, get_logger("trioperator.cli"))
    return SUCCESS


async def _serve_until_signal(
    options: ClusterOptions, manifests: Sequence[Manifest], tell: Callable[[str], None]
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(functools.partial(serve, options, manifests, tell=tell), name="cluster")
            number = await anext(signals)
            _logger.info("Signal %s is received: the cluster stops.", signal.Signals(number).name)
            nursery.cancel_scope.cancel(reason="a signal has come")


async def serve(options: ClusterOptions, manifests: Sequence[Manifest], *, tell: Callable[[str], None]) -> None:
    """Serve a cluster with the objects of the manifests until cancelled; *tell* where it is, and how to use it.

    Raises ConfigError for what cannot be had or is refused, DataFileError if the data file cannot be written any more.
    """
    async with _open(options) as cluster, trio.open_nursery() as server:
        start = functools.partial(serve_cluster, host=options.host, port=options.port, tls=options.tls, anonymous=False)
        url: str = await server.start(start, cluster)
        with _place_of(options.kubeconfig) as path:
            write_kubeconfig(path, cluster.kubeconfig(url))
            await apply_manifests(cluster, manifests)
            tell(_introduction(url, path, options))
            await trio.sleep_forever()


@contextlib.asynccontextmanager
async def _open(options: ClusterOptions) -> AsyncIterator[Cluster]:
    async with contextlib.AsyncExitStack() as stack:
        if options.data is None:
            cluster = Cluster(log_limit=0, authorization=options.authorization)
        else:
            opened = open_cluster(options.data, log_limit=0, authorization=options.authorization)
            cluster = await stack.enter_async_context(opened)
        if options.controllers:
            await stack.enter_async_context(cluster.open_controllers(*options.controllers))
        yield cluster


@contextlib.contextmanager
def _place_of(kubeconfig: str | None) -> Iterator[str]:
    """Give the path for the kubeconfig: the one that is wanted, or one that goes when the server does."""
    if kubeconfig is not None:
        yield os.path.abspath(kubeconfig)
    else:
        with tempfile.TemporaryDirectory(prefix="trioperator-") as folder:
            yield os.path.join(folder, "kubeconfig")


def _introduction(url: str, path: str, options: ClusterOptions) -> str:
    kept = f"are kept in {options.data}" if options.data is not None else "are gone when it stops (--data keeps them)"
    return (
        f"The API server is at {url}, its kubeconfig is {path}. To use it:\n\n"
        f"    export KUBECONFIG={shlex.quote(path)}\n    kubectl get namespaces\n\n"
        f"Its objects {kept}. Ctrl-C stops it."
    )
