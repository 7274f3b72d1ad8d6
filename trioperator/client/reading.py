"""What the client reads: objects, lists, watches, conditions and logs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from trioperator.client.adoption import find_handled
from trioperator.client.kinds import KindName, TargetName, parse_kind, parse_target
from trioperator.client.logs import LogLines
from trioperator.client.paging import Labels, Listing, ObjectPages, make_selectors
from trioperator.client.resources import ResourceFinder
from trioperator.client.waiting import wait_until
from trioperator.client.watching import ObjectWatch
from trioperator.errors import ExpiredError, NotFoundError
from trioperator.kube.client import Client as KubeClient
from trioperator.kube.client import Params
from trioperator.kube.objects import RawObject
from trioperator.model.body import Body
from trioperator.model.conditions import Condition, describe_condition, is_met
from trioperator.model.jsontypes import JsonObject
from trioperator.model.resource import Resource

if TYPE_CHECKING:
    import httpx

__all__ = ["Connect", "Reader", "Target", "choose_namespace"]

T = TypeVar("T")

#: Returns the connected client of one API server; it logs in first, if need be.
Connect: TypeAlias = Callable[[], Awaitable[KubeClient]]

_POD: Final = Resource("", "v1", "pods", kind="Pod", singular="pod")


class Target(NamedTuple):
    """One object as requests name it."""

    kube: KubeClient
    resource: Resource
    namespace: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.resource} {self.namespace}/{self.name}" if self.namespace else f"{self.resource} {self.name}"

    def get_path(self, subresource: str | None = None) -> str:
        """Return the URL path of the object, or of its subresource."""
        return self.resource.get_path(self.namespace, self.name, subresource)


class Reader:
    """The reading half of :class:`trioperator.Client`."""

    def __init__(self, connect: Connect, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._connect = connect
        self._transport = transport
        self._finder = ResourceFinder()

    async def get(self, *target: object, namespace: str | None = None, subresource: str | None = None) -> JsonObject:
        """Return one object, or its subresource such as ``"scale"``.

        ::

            deployment = await client.get("apps/v1", "Deployment", "web")
            node = await client.get("nodes", "node-1")

        *target* is a kind and a name, or an object that has both. *namespace* defaults to that of the object, else to
        that of the handled object, else to that of the connection.

        Raises NotFoundError if there is no such object or kind, ConfigError if the name of the kind is ambiguous, and
        other errors of the API server.
        """
        found = await self._locate(target, namespace)
        with self._forgetting(found.resource):
            return await found.kube.get(found.get_path(subresource))

    async def refresh(self, obj: MutableMapping[str, Any] | Body) -> JsonObject:
        """Read an object again, show its newest state in *obj*, and return that.

        ::

            await client.refresh(body)

        *obj* is a dict, or the ``body`` of a handler, whose ``spec``, ``status`` and so on show the new state, too.
        Raises NotFoundError if it is gone, or another one has its name.
        """
        found = await self.get(obj)
        name, uid = found["metadata"]["name"], (obj.get("metadata") or {}).get("uid")
        if uid not in (None, found["metadata"].get("uid")):
            raise NotFoundError(f'"{name}" was replaced by another object', status=404, reason="NotFound")
        if isinstance(obj, Body):
            obj._replace_raw(found)
        else:
            obj.clear()
            obj.update(found)
        return found

    async def list(
        self,
        *kind: object,
        namespace: str | None = None,
        all_namespaces: bool = False,
        labels: Labels | None = None,
        fields: Labels | None = None,
    ) -> list[JsonObject]:
        """Return all objects of a kind in a namespace, those that match the selectors *labels* and *fields*.

        ::

            pods = await client.list("pods", labels={"app": "web"})

        The list is requested in pages of ``settings.watching.page_size`` objects, and begun anew, without pages, if the
        server forgets it meanwhile. *namespace* is as for :meth:`get`. Use :meth:`iterate` for many objects.
        """
        pages = self.iterate(*kind, namespace=namespace, all_namespaces=all_namespaces, labels=labels, fields=fields)
        try:
            return [obj async for obj in pages]
        except ExpiredError:
            return [obj async for obj in pages.restart(limit=0)]

    def iterate(
        self,
        *kind: object,
        namespace: str | None = None,
        all_namespaces: bool = False,
        labels: Labels | None = None,
        fields: Labels | None = None,
        page_size: int | None = None,
    ) -> ObjectPages:
        """Return an asynchronous iterator over objects, which are requested page by page. The rest is as for list().

        ::

            async for pod in client.iterate("pods", all_namespaces=True):
                ...

        Raises ExpiredError if the iteration takes so long that the server forgets the list: five minutes, by default.
        """
        parsed, params = parse_kind(kind), make_selectors(labels, fields)

        async def locate() -> Listing:
            kube, resource = await self._find(parsed)
            return self._listing(kube, resource, choose_namespace(kube, resource, namespace, everywhere=all_namespaces))

        return ObjectPages(locate, params, limit=page_size)

    @contextlib.asynccontextmanager
    async def watch(
        self,
        *kind: object,
        name: str | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
        labels: Labels | None = None,
        fields: Labels | None = None,
    ) -> AsyncIterator[ObjectWatch]:
        """Watch objects of a kind: each that exists now, and all changes from then on.

        ::

            async with client.watch("pods", labels={"app": "web"}) as events:
                async for event in events:
                    print(event.type, event.object["metadata"]["name"])

        The events are ``ADDED``, ``MODIFIED`` and ``DELETED``. The watch goes on after breaks and expired resource
        versions; states in between may be missed, the newest ones are not. It ends with an error after as many failures
        in a row as ``settings.networking.error_backoffs`` has delays. Selectors and namespaces are as for list().
        """
        parsed, params = parse_kind(kind), make_selectors(labels, fields)
        if name is not None:
            chosen = f"metadata.name={name}"
            params["fieldSelector"] = ",".join(filter(None, (params.get("fieldSelector"), chosen)))
        kube, resource = await self._find(parsed)
        where = choose_namespace(kube, resource, namespace, everywhere=all_namespaces)
        watch = ObjectWatch(self._listing(kube, resource, where), params)
        try:
            yield watch
        finally:
            await watch.aclose()

    async def wait_for(
        self,
        *target: object,
        condition: Condition,
        namespace: str | None = None,
        timeout: float | None = None,
    ) -> JsonObject:
        """Wait until an object exists and meets a condition, and return it.

        ::

            await client.wait_for("deployments", "web", condition="Available", timeout=60)
            await client.wait_for(pod, condition=lambda pod: pod["status"].get("phase") == "Succeeded")

        *condition* is the type of a condition in the status, such as ``"Ready"`` or ``"Ready=False"``, which must not
        be older than the object's generation; or a function of the object. *timeout* is in seconds; None: no limit.

        Raises TimeoutError after that, what the function raises, and errors of watches.
        """

        def check(found: RawObject | None) -> JsonObject | None:
            body = None if found is None else found.decode()
            return body if body is not None and is_met(condition, body) else None

        what = f"does not meet {describe_condition(condition)}"
        return await self._wait(await self._locate(target, namespace), check, what=what, timeout=timeout)

    async def wait_deleted(self, *target: object, namespace: str | None = None, timeout: float | None = None) -> None:
        """Wait until an object is gone, or replaced by another one of the same name. The rest is as for wait_for().

        ::

            await client.delete("pods", "web-0")
            await client.wait_deleted("pods", "web-0", timeout=60)
        """
        uids: set[str] = set()

        def check(found: RawObject | None) -> bool | None:
            if found is not None:
                uids.add(found.key)
            return True if found is None or len(uids) > 1 else None

        await self._wait(await self._locate(target, namespace), check, what="is not deleted", timeout=timeout)

    async def logs(
        self,
        pod: object,
        *,
        namespace: str | None = None,
        container: str | None = None,
        previous: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
        timestamps: bool = False,
    ) -> str:
        """Return what a container of a pod has logged so far.

        *pod* is the name of a pod, or the pod itself; *container* is needed if there are several. *previous* is for the
        container that ran before a restart. Raises ApiError (400) if the container has not started yet.
        """
        found = await self._locate_pod(pod, namespace)
        params: Params = {
            "container": container,
            "previous": previous or None,
            "tailLines": tail_lines,
            "sinceSeconds": since_seconds,
            "timestamps": timestamps or None,
        }
        data = await found.kube.request("GET", found.get_path("log"), params=params, accept="*/*")
        return data.decode(errors="replace")

    @contextlib.asynccontextmanager
    async def follow_logs(
        self,
        pod: object,
        *,
        namespace: str | None = None,
        container: str | None = None,
        tail_lines: int | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[LogLines]:
        """Follow what a container logs, line by line, until it ends. The rest is as for logs().

        ::

            async with client.follow_logs("web-0") as lines:
                async for line in lines:
                    print(line)

        A connection that breaks is an error (ConnectionLostError).
        """
        found = await self._locate_pod(pod, namespace)
        params: Params = {
            "follow": True,
            "container": container,
            "tailLines": tail_lines,
            "timestamps": timestamps or None,
        }
        response = await found.kube.open_stream(found.get_path("log"), params=params)
        try:
            yield LogLines(response)
        finally:
            await response.aclose()

    async def _wait(
        self, target: Target, check: Callable[[RawObject | None], T | None], *, what: str, timeout: float | None
    ) -> T:
        listing = self._listing(target.kube, target.resource, target.namespace)
        result = await wait_until(listing, target.name, check, timeout=timeout)
        if result is None:
            raise TimeoutError(f"{target} {what} after {timeout:g} seconds.")
        return result

    def _listing(self, kube: KubeClient, resource: Resource, namespace: str | None) -> Listing:
        """Return where to list a resource; it is looked up again next time if that is not served any more."""
        return Listing(kube, resource.get_path(namespace), functools.partial(self._finder.forget, resource))

    async def _find(self, kind: KindName) -> tuple[KubeClient, Resource]:
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
        return Target(kube, resource, where, name.name)

    @contextlib.contextmanager
    def _forgetting(self, resource: Resource) -> Iterator[None]:
        """Look the resource up again next time if the server does not serve it any more."""
        try:
            yield
        except NotFoundError as error:
            if not error.details.get("name"):
                self._finder.forget(resource)
            raise


def choose_namespace(
    kube: KubeClient, resource: Resource, namespace: str | None, *, everywhere: bool = False
) -> str | None:
    """Return the namespace of requests for a resource; None for what has no namespace, or for all of them."""
    if everywhere and namespace:
        raise TypeError("Pass either namespace= or all_namespaces=True, not both.")
    if everywhere or resource.namespaced is False:
        return None
    handled = find_handled() or {}
    return namespace or (handled.get("metadata") or {}).get("namespace") or kube.default_namespace
