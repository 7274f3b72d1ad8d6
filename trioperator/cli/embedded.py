"""An operator with an embedded API server: no cluster, nothing to install, objects from manifests."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import trio

from trioperator._kube.connection import load_connection
from trioperator._logs import get_logger
from trioperator._supervisor.plan import Flag
from trioperator.apiserver import Cluster, serve_cluster, write_kubeconfig
from trioperator.cli.cluster import kubeconfig_path
from trioperator.cli.manifests import Manifest, apply_manifests, find_declared

_logger = get_logger(__name__)


class EmbeddedServer(msgspec.Struct, frozen=True, kw_only=True):
    """An API server in this process, on a port of the loopback interface (0: any free one), with its first objects.

    The file *kubeconfig* is kept; by default, a temporary one is used.
    """

    manifests: Sequence[Manifest] = ()
    port: int = 0
    kubeconfig: str | None = None
    controllers: Sequence[str] = ()


async def run_embedded(
    operate: Callable[..., Awaitable[None]],
    server: EmbeddedServer,
    *,
    load: Callable[[], object] | None = None,
    reloads: bool = False,
    ready_flag: Flag | None = None,
) -> None:
    """Run an operator on an embedded API server until the operator ends.

    *operate* is :func:`trioperator.operator` or a similar function. *load* loads the handlers,
    with ``$KUBECONFIG`` set, as client libraries may be configured where they are imported; it must not send requests.

    CRDs and namespaces are applied before the operator starts, and all other objects when it is ready, so that it sees
    them created; then *ready_flag* is set. Kinds that classes declare are defined, too, unless the manifests do that.
    If *operate* *reloads* the handlers, it gets a function *define_kinds* that defines the kinds of the loaded classes.

    Raises what these functions raise, and ConfigError for manifests that the API server rejects and for controllers
    that do not exist.
    """
    cluster = Cluster(log_limit=0)  # nothing here reads its requests
    ready = trio.Event()
    early = [manifest for manifest in server.manifests if manifest.is_definition]
    late = [manifest for manifest in server.manifests if not manifest.is_definition]
    async with _open_controllers(cluster, server.controllers), trio.open_nursery() as serving:
        url = str(await serving.start(_serve, cluster, server.port))
        with _kubeconfig(cluster, url, server.kubeconfig) as path:
            _logger.info("The embedded API server is at %s. To use it: kubectl --kubeconfig=%s", url, path)
            define_kinds = functools.partial(_define_kinds, cluster, early, {})
            options: dict[str, Any] = {"define_kinds": define_kinds} if reloads else {}
            if load is not None:
                load()
            await apply_manifests(cluster, early)
            await define_kinds()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_apply_when, ready, cluster, late, ready_flag, name="manifests")
                connection = load_connection([path])  # which its handlers can pass on to other clients
                await operate(transport=cluster.transport(), connection=connection, ready_flag=ready, **options)
                nursery.cancel_scope.cancel(reason="operator ended")
        serving.cancel_scope.cancel(reason="operator ended")


@contextlib.asynccontextmanager
async def _open_controllers(cluster: Cluster, controllers: Sequence[str]) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        if controllers:
            await stack.enter_async_context(cluster.open_controllers(*controllers))
        yield


async def _serve(cluster: Cluster, port: int, *, task_status: trio.TaskStatus[str]) -> None:
    """Serve the cluster. Requests must carry the kubeconfig's token, which kubectl sends only over TLS."""
    await serve_cluster(cluster, port=port, tls=True, anonymous=False, task_status=task_status)


@contextlib.contextmanager
def _kubeconfig(cluster: Cluster, url: str, kubeconfig: str | None) -> Iterator[str]:
    """Write a kubeconfig for all clients in this process, and yield its path.

    Handlers that use a Kubernetes client reach the embedded cluster by that, and never the user's.
    """
    before = os.environ.get("KUBECONFIG")
    with kubeconfig_path(kubeconfig) as path:
        write_kubeconfig(path, cluster.kubeconfig(url))
        os.environ["KUBECONFIG"] = path
        try:
            yield path
        finally:
            del os.environ["KUBECONFIG"]
            if before is not None:
                os.environ["KUBECONFIG"] = before


async def _define_kinds(cluster: Cluster, given: Sequence[Manifest], defined: dict[str, Mapping[str, Any]]) -> None:
    """Apply the CRDs of the kinds that classes declare, unless manifests do that, if they have changed."""
    changed = [each for each in find_declared(given) if defined.get(each.content["metadata"]["name"]) != each.content]
    await apply_manifests(cluster, changed)
    defined.update({each.content["metadata"]["name"]: each.content for each in changed})


async def _apply_when(ready: trio.Event, cluster: Cluster, manifests: Sequence[Manifest], flag: Flag | None) -> None:
    await ready.wait()
    await apply_manifests(cluster, manifests)
    if flag is not None:
        flag.set()
