"""Destinations of the client's requests: connections, paths and namespaces of kinds and objects that users name."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from trioperator._kube.api_client import ApiClient
from trioperator._model.resource import Resource
from trioperator.client.adoption import find_handled
from trioperator.client.kinds import KindName, TargetName, parse_target
from trioperator.client.paging import Listing
from trioperator.errors import NotFoundError

if TYPE_CHECKING:
    import httpx


import trio

from trioperator._kube.discovery import discover
from trioperator._model.resource import Selector, suggest_kind
from trioperator.errors import ConfigError


class ResourceFinder:
    """Cache of resources by the names that were looked up. An entry is kept until its kind is no longer served."""

    def __init__(self) -> None:
        self._found: dict[Selector, Resource] = {}
        self._lock = trio.Lock()

    async def find(self, kube: ApiClient, kind: Resource | Selector) -> Resource:
        """Return the resource of a kind. The first lookup discovers its API group; without a group, all of them.

        Raises NotFoundError if the cluster does not serve it, ConfigError if several kinds have that name, and as
        requests do.
        """
        if isinstance(kind, Resource):
            return kind
        if kind in self._found:
            return self._found[kind]
        async with self._lock:
            if kind not in self._found:
                groups = None if kind.group is None else frozenset({kind.group})
                discovery = await discover(kube, groups)
                self._found[kind] = _select(kind, discovery.resources)
            return self._found[kind]

    def forget(self, resource: Resource) -> None:
        """Look the resource up again next time, as it is no longer served."""
        for kind in [kind for kind, found in self._found.items() if found == resource]:
            del self._found[kind]


def _select(kind: Selector, resources: frozenset[Resource]) -> Resource:
    found = [resource for resource in resources if kind.matches(resource)]
    if len(found) > 1:
        found = [resource for resource in found if not resource.group] or found
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise ConfigError(f"The kind {kind} is ambiguous: it may be any of {names}. Add the group.")
    if not found:
        named = suggest_kind(kind, resources)
        raise NotFoundError(f"the server does not serve the kind {named}", status=404, reason="NotFound")
    return found[0]


#: Returns the connected client of one API server; it logs in first, if need be.
Connect: TypeAlias = Callable[[], Awaitable[ApiClient]]

_POD: Final = Resource("", "v1", "pods", kind="Pod", singular="pod")


class Target(NamedTuple):
    """One object as requests name it. *uid* is set if an object with a uid was passed, *owner* is its owner's uid."""

    kube: ApiClient
    resource: Resource
    namespace: str | None
    name: str
    uid: str | None = None
    owner: str | None = None

    def __str__(self) -> str:
        return f"{self.resource} {self.namespace}/{self.name}" if self.namespace else f"{self.resource} {self.name}"

    def get_path(self, subresource: str | None = None) -> str:
        """Return the URL path of the object, or of its subresource."""
        return self.resource.get_path(self.namespace, self.name, subresource)


class Locator:
    """Base class of clients: connects to the API server, and looks up kinds and objects."""

    def __init__(self, connect: Connect, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._connect = connect
        self._transport = transport
        self._finder = ResourceFinder()

    def _listing(self, kube: ApiClient, resource: Resource, namespace: str | None) -> Listing:
        """Return where to list a resource, which is looked up again next time if it is no longer served there."""
        return Listing(kube, resource.get_path(namespace), functools.partial(self._finder.forget, resource))

    async def _find(self, kind: KindName) -> tuple[ApiClient, Resource]:
        kube = await self._connect()
        return kube, await self._finder.find(kube, kind)

    async def _locate(self, target: tuple[object, ...], namespace: str | None) -> Target:
        return await self._locate_named(parse_target(target), namespace)

    async def _locate_pod(self, pod: object, namespace: str | None) -> Target:
        name = TargetName(_POD, pod, None) if isinstance(pod, str) else parse_target((pod,))._replace(kind=_POD)
        return await self._locate_named(name, namespace)

    async def _locate_named(self, name: TargetName, namespace: str | None) -> Target:
        kube, resource = await self._find(name.kind)
        where = choose_namespace(kube, resource, namespace or name.namespace)
        return Target(kube, resource, where, name.name, name.uid)

    @contextlib.contextmanager
    def _forgetting(self, resource: Resource) -> Iterator[None]:
        """Look the resource up again next time if the server no longer serves it."""
        try:
            yield
        except NotFoundError as error:
            if not error.details.get("name"):
                self._finder.forget(resource)
            raise


def choose_namespace(
    kube: ApiClient, resource: Resource, namespace: str | None, *, everywhere: bool = False
) -> str | None:
    """Return the namespace of requests for a resource; None if it is cluster-scoped, or for all namespaces.

    Raises TypeError for a namespace together with *everywhere*.
    """
    if everywhere and namespace:
        raise TypeError("Pass either namespace= or all_namespaces=True, not both.")
    if everywhere or resource.namespaced is False:
        return None
    handled = find_handled() or {}
    return namespace or (handled.get("metadata") or {}).get("namespace") or kube.credentials.default_namespace
