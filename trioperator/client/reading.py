"""Reading by the client: objects, lists, watches, conditions and logs."""

# Classes that declare kinds match the overloads for objects, too: the first overload that matches counts.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, MutableMapping
from typing import Any, TypeAlias, TypeVar, Unpack, overload

from trioperator._kube.api_client import Params
from trioperator._kube.objects import RawObject
from trioperator._model.body import Body
from trioperator._model.conditions import Condition, describe_condition, is_met
from trioperator._model.jsontypes import JsonObject
from trioperator.client.kinds import parse_kind
from trioperator.client.locating import Locator, Target, choose_namespace
from trioperator.client.logs import LogLines
from trioperator.client.paging import Labels, Listing, ObjectPages, make_selectors
from trioperator.client.typed import (
    Foreign,
    GetOptions,
    IterateOptions,
    Kind,
    Lightkube,
    ListOptions,
    Status,
    TypedCondition,
    WaitOptions,
    WatchOptions,
    decode_all,
    find_model,
    make_decoder,
)
from trioperator.client.waiting import wait_until
from trioperator.client.watching import ObjectWatch
from trioperator.errors import ExpiredError, NotFoundError

T = TypeVar("T")

_Watching: TypeAlias = contextlib.AbstractAsyncContextManager[ObjectWatch[T]]


class Reader(Locator):
    """The reading half of :class:`trioperator.Client`."""

    @overload
    async def get(self, target: Foreign, /, *name: str, **options: Unpack[GetOptions[str | None]]) -> JsonObject: ...
    @overload
    async def get(self, kind: type[Kind], name: str, /, **options: Unpack[GetOptions[Status]]) -> Kind: ...
    @overload
    async def get(self, obj: Kind, /, **options: Unpack[GetOptions[Status]]) -> Kind: ...
    @overload
    async def get(self, *target: object, **options: Unpack[GetOptions[str | None]]) -> JsonObject: ...
    async def get(self, *target: object, namespace: str | None = None, subresource: str | None = None) -> Any:
        """Return one object, or its subresource such as ``"scale"``.

        ::

            deployment = await client.get("apps/v1", "Deployment", "web")
            node = await client.get("nodes", "node-1")

        *target* is a kind and a name, or an object that has both. With a class of :func:`trioperator.crds.kind`, or an
        object of it, an object of that class is returned. *namespace* defaults to the object's, else to the handled
        object's, else to the connection's.

        Raises NotFoundError if there is no such object or kind, ConfigError if the name of the kind is ambiguous,
        DecodeError if the object does not fit the class, and other errors of the API server.
        """
        found = await self._locate(target, namespace)
        with self._forgetting(found.resource):
            obj = await found.kube.get(found.get_path(subresource))
        return make_decoder(find_model(target, subresource=subresource))(obj)

    async def refresh(self, obj: MutableMapping[str, Any] | Body) -> JsonObject:
        """Read an object again, update *obj* to its newest state, and return that.

        ::

            await client.refresh(body)

        *obj* is a dict, or the ``body`` of a handler; then ``spec``, ``status`` and so on show the new state, too.
        Raises NotFoundError if the object is gone, even if another one has its name.
        """
        found: JsonObject = await self.get(obj)
        name, uid = found["metadata"]["name"], (obj.get("metadata") or {}).get("uid")
        if uid not in (None, found["metadata"].get("uid")):
            raise NotFoundError(f'"{name}" was replaced by another object', status=404, reason="NotFound")
        if isinstance(obj, Body):
            obj._replace_raw(found)
        else:
            obj.clear()
            obj.update(found)
        return found

    @overload
    async def list(self, kind: type[Lightkube], /, **options: Unpack[ListOptions]) -> list[JsonObject]: ...
    @overload
    async def list(self, kind: type[Kind], /, **options: Unpack[ListOptions]) -> list[Kind]: ...
    @overload
    async def list(self, *kind: object, **options: Unpack[ListOptions]) -> list[JsonObject]: ...
    async def list(
        self,
        *kind: object,
        namespace: str | None = None,
        all_namespaces: bool = False,
        labels: Labels | None = None,
        fields: Labels | None = None,
    ) -> Any:
        """Return all objects of a kind in a namespace that match the selectors *labels* and *fields*.

        ::

            pods = await client.list("pods", labels={"app": "web"})

        A selector is a dict of values that must be equal, or a string such as ``"app=web,tier!=cache"``. *namespace*
        has the same default as for :meth:`get`. The list is requested in pages of ``settings.watching.page_size``
        objects; if the server forgets it meanwhile (HTTP 410), it is requested again as a whole. For many objects, use
        :meth:`iterate`.

        Raises NotFoundError if the kind is not served, TypeError for *namespace* together with *all_namespaces*,
        ValueError for values that no label can have, and, for a class that declares a kind, DecodeError with all
        objects that do not fit it.
        """
        listed = self.iterate(*kind, namespace=namespace, all_namespaces=all_namespaces, labels=labels, fields=fields)
        pages = listed.as_dicts()
        try:
            found = [obj async for obj in pages]
        except ExpiredError:
            found = [obj async for obj in pages.restart(limit=0)]
        return decode_all(find_model(kind), found)

    @overload
    def iterate(self, kind: type[Lightkube], /, **options: Unpack[IterateOptions]) -> ObjectPages[JsonObject]: ...
    @overload
    def iterate(self, kind: type[Kind], /, **options: Unpack[IterateOptions]) -> ObjectPages[Kind]: ...
    @overload
    def iterate(self, *kind: object, **options: Unpack[IterateOptions]) -> ObjectPages[JsonObject]: ...
    def iterate(
        self,
        *kind: object,
        namespace: str | None = None,
        all_namespaces: bool = False,
        labels: Labels | None = None,
        fields: Labels | None = None,
        page_size: int | None = None,
    ) -> Any:
        """Return an asynchronous iterator over objects, which are requested page by page.

        ::

            async for pod in client.iterate("pods", all_namespaces=True):
                ...

        The arguments are the same as for :meth:`list`; *page_size* is the number of objects in a page, by default
        ``settings.watching.page_size``.

        Raises ExpiredError if the iteration takes so long that the server forgets the list: five minutes, by default.
        Raises DecodeError for each object that does not fit its class: ``anext()`` continues with the next one.
        """
        parsed, params = parse_kind(kind), make_selectors(labels, fields)

        async def locate() -> Listing:
            kube, resource = await self._find(parsed)
            return self._listing(kube, resource, choose_namespace(kube, resource, namespace, everywhere=all_namespaces))

        return ObjectPages(locate, params, decode=make_decoder(find_model(kind)), limit=page_size)

    @overload
    def watch(self, kind: type[Lightkube], /, **options: Unpack[WatchOptions]) -> _Watching[JsonObject]: ...
    @overload
    def watch(self, kind: type[Kind], /, **options: Unpack[WatchOptions]) -> _Watching[Kind]: ...
    @overload
    def watch(self, *kind: object, **options: Unpack[WatchOptions]) -> _Watching[JsonObject]: ...
    @contextlib.asynccontextmanager
    async def watch(
        self,
        *kind: object,
        name: str | None = None,
        namespace: str | None = None,
        all_namespaces: bool = False,
        labels: Labels | None = None,
        fields: Labels | None = None,
    ) -> AsyncIterator[ObjectWatch[Any]]:
        """Watch objects of a kind: those that exist now, and all changes from then on.

        ::

            async with client.watch("pods", labels={"app": "web"}) as events:
                async for event in events:
                    print(event.type, event.object["metadata"]["name"])

        The types of events are ``ADDED`` (also for objects that exist now), ``MODIFIED`` and ``DELETED``. The watch
        continues after disconnects and expired resource versions; intermediate states may be missed, the newest ones
        are not. Selectors and namespaces are the same as for :meth:`list`; *name* is for a single object.

        After a failure, the iteration goes on with ``settings.networking.error_backoffs``; when these are used up by
        failures in a row, it raises the last error. Errors that retries cannot mend, such as ForbiddenError, are raised
        at once. Raises DecodeError for an object that does not fit its class: ``anext()`` continues with the next
        event.
        """
        parsed, params = parse_kind(kind), make_selectors(labels, fields, name=name)
        kube, resource = await self._find(parsed)
        where = choose_namespace(kube, resource, namespace, everywhere=all_namespaces)
        watch = ObjectWatch(self._listing(kube, resource, where), params, decode=make_decoder(find_model(kind)))
        try:
            yield watch
        finally:
            await watch.aclose()

    @overload
    async def wait_for(
        self, target: Foreign, /, *name: str, condition: Condition, **options: Unpack[WaitOptions]
    ) -> JsonObject: ...
    @overload
    async def wait_for(
        self, kind: type[Kind], name: str, /, *, condition: TypedCondition[Kind], **options: Unpack[WaitOptions]
    ) -> Kind: ...
    @overload
    async def wait_for(
        self, obj: Kind, /, *, condition: TypedCondition[Kind], **options: Unpack[WaitOptions]
    ) -> Kind: ...
    @overload
    async def wait_for(self, *target: object, condition: Condition, **options: Unpack[WaitOptions]) -> JsonObject: ...
    async def wait_for(
        self, *target: object, condition: Any, namespace: str | None = None, timeout: float | None = None
    ) -> Any:
        """Wait until an object exists and meets a condition, and return it.

        ::

            await client.wait_for("deployments", "web", condition="Available", timeout=60)
            await client.wait_for(pod, condition=lambda pod: pod["status"].get("phase") == "Succeeded")

        *condition* is the type of a condition in the status, such as ``"Ready"`` or ``"Ready=False"``, or a function of
        the object. A condition whose ``observedGeneration`` is older than the object's generation does not count.
        *timeout* is in seconds; None: no limit.

        Raises TimeoutError after *timeout*, what the function raises, and the errors of :meth:`watch`. Raises
        DecodeError for an object that does not fit its class; with the name of a condition, only once that is met.
        """
        read = make_decoder(find_model(target))

        def check(found: RawObject | None) -> Any:
            if found is None:
                return None
            body = found.decode()
            if callable(condition):
                obj = read(body)
                return obj if condition(obj) else None
            return read(body) if is_met(condition, body) else None

        what = f"does not meet {describe_condition(condition)}"
        return await self._wait(await self._locate(target, namespace), check, what=what, timeout=timeout)

    async def wait_deleted(self, *target: object, namespace: str | None = None, timeout: float | None = None) -> None:
        """Wait until an object is gone, or replaced by another one of the same name.

        ::

            await client.delete("pods", "web-0")
            await client.wait_deleted("pods", "web-0", timeout=60)

        If you pass an object with its uid, it may have been replaced already. If you pass a name, this waits for the
        first object of that name that is seen. *timeout* and errors are the same as for :meth:`wait_for`.
        """
        located = await self._locate(target, namespace)
        uid = located.uid

        def check(found: RawObject | None) -> bool | None:
            nonlocal uid
            if found is None or found.uid != (uid or found.uid):
                return True
            uid = found.uid
            return None

        await self._wait(located, check, what="is not deleted", timeout=timeout)

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

        - *pod*: the name of a pod, or the pod itself
        - *container*: the name of the container; needed if there are several
        - *previous*: return the log of the container that ran before a restart
        - *tail_lines*, *since_seconds*: the last lines only, and those that are not older; default: all
        - *timestamps*: begin each line with its time

        Raises NotFoundError if there is no such pod, ApiError (400) if the container has not started yet.
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
        """Follow what a container logs, line by line, until it ends.

        ::

            async with client.follow_logs("web-0") as lines:
                async for line in lines:
                    print(line)

        The arguments are the same as for :meth:`logs`. Raises ConnectionLostError if the connection breaks.
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
