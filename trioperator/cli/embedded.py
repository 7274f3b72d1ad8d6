"""An operator together with an API server of its own: no cluster, nothing to install, objects from manifests."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import trio

from trioperator.apiserver import Cluster, serve_cluster
from trioperator.errors import ApiError, ConfigError
from trioperator.kube.connection import ConnectionInfo
from trioperator.logs import get_logger

__all__ = ["Manifest", "load_manifests", "run_embedded"]

_logger = get_logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Be an object to be applied, and say where it comes from."""

    path: str
    content: Mapping[str, Any]

    @property
    def is_definition(self) -> bool:
        """Tell whether it has to be there before other objects can be."""
        return self.content["kind"] in {"CustomResourceDefinition", "Namespace"}

    def __str__(self) -> str:
        metadata = self.content["metadata"]
        return f"{self.content['kind']} {metadata.get('name') or metadata.get('generateName')} of {self.path}"


def load_manifests(paths: Sequence[str]) -> Sequence[Manifest]:
    """Read files of YAML with any number of objects each. Raises ConfigError for what cannot be read."""
    return [manifest for path in paths for manifest in _load_file(path)]


def _load_file(path: str) -> Iterator[Manifest]:
    import yaml

    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        documents = list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except OSError as error:
        raise ConfigError(f"The manifests of {path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ConfigError(f"The manifests of {path} cannot be read: they are not in UTF-8.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"The manifests of {path} are not YAML: {' '.join(str(error).split())}") from None
    for document in documents:
        yield from _iterate_objects(path, document)


def _iterate_objects(path: str, document: Any) -> Iterator[Manifest]:
    if document is None:
        return
    if not isinstance(document, Mapping):
        raise ConfigError(f"The manifests of {path} have a {type(document).__name__} in the place of an object.")
    if document.get("kind") == "List":
        for item in document.get("items") or ():
            yield from _iterate_objects(path, item)
        return
    for key, kind in (("apiVersion", str), ("kind", str), ("metadata", Mapping)):
        if not isinstance(document.get(key), kind):
            raise ConfigError(f"The manifests of {path} have an object whose {key} is {document.get(key)!r}.")
    yield Manifest(path=path, content=document)


async def run_embedded(
    operate: Callable[..., Awaitable[None]], manifests: Sequence[Manifest], *, port: int = 0
) -> None:
    """Run an operator on an API server that listens on *port* of the loopback interface (0: any) until it ends.

    *operate* is :func:`trioperator.operator` or alike. Definitions of resource kinds and namespaces are there before
    the operator is; all other objects are applied when it is ready, so that it sees them come. Raises what the operator
    raises, and ConfigError for manifests that the API server refuses.
    """
    cluster = Cluster()
    ready = trio.Event()
    early = [manifest for manifest in manifests if manifest.is_definition]
    late = [manifest for manifest in manifests if not manifest.is_definition]
    async with trio.open_nursery() as server:
        url = str(await server.start(_serve, cluster, port))
        with _kubeconfig(cluster, url) as path:
            _logger.info("The embedded API server is at %s; elsewhere, kubectl --kubeconfig=%s talks to it.", url, path)
            await _apply(cluster, early)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_apply_when, ready, cluster, late, name="manifests")
                await operate(
                    transport=cluster.transport(), connection=ConnectionInfo(server="http://embedded"), ready_flag=ready
                )
                nursery.cancel_scope.cancel(reason="the operator has ended")
        server.cancel_scope.cancel(reason="the operator has ended")


async def _serve(cluster: Cluster, port: int, *, task_status: trio.TaskStatus[str]) -> None:
    await serve_cluster(cluster, port=port, task_status=task_status)


@contextlib.contextmanager
def _kubeconfig(cluster: Cluster, url: str) -> Iterator[str]:
    """Write a kubeconfig, and have all clients in this process use it.

    So handlers that talk to "the cluster" by a client of their own reach the embedded one, and never the user's.
    """
    before = os.environ.get("KUBECONFIG")
    with tempfile.TemporaryDirectory(prefix="trioperator-") as folder:
        path = os.path.join(folder, "kubeconfig")
        pathlib.Path(path).write_bytes(msgspec.json.encode(cluster.kubeconfig(url)))
        os.chmod(path, 0o600)
        os.environ["KUBECONFIG"] = path
        try:
            yield path
        finally:
            del os.environ["KUBECONFIG"]
            if before is not None:
                os.environ["KUBECONFIG"] = before


async def _apply_when(ready: trio.Event, cluster: Cluster, manifests: Sequence[Manifest]) -> None:
    await ready.wait()
    await _apply(cluster, manifests)


async def _apply(cluster: Cluster, manifests: Sequence[Manifest]) -> None:
    for manifest in manifests:
        try:
            await cluster.apply(manifest.content)
        except ApiError as error:
            raise ConfigError(f"The API server refuses {manifest}: {error.message}") from error
        except ConfigError as error:
            raise ConfigError(f"The API server refuses {manifest}: {error}") from error
        _logger.info("Applied: %s.", manifest)
