"""The client of handlers and scripts: :class:`Reader` reads, and :class:`Client` also writes."""

# Classes that declare kinds match the overloads for objects, too: the first overload that matches counts.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, Unpack, overload

from trioperator._kube.api_client import MERGE_PATCH, Params
from trioperator._kube.retry import JSON_PATCH
from trioperator._model.jsontypes import JsonObject
from trioperator.client.adoption import HANDLED, adopt
from trioperator.client.connection import Connection
from trioperator.client.deleting import Deletion, is_replaced, replaced_error
from trioperator.client.kinds import explain_nameless, parse_kind, to_dict
from trioperator.client.locating import Target, choose_namespace
from trioperator.client.reading import Reader
from trioperator.client.typed import (
    ApplyOptions,
    CreateAnyOptions,
    CreateOptions,
    Foreign,
    Kind,
    PatchOptions,
    ReplaceOptions,
    Status,
    find_model,
    make_decoder,
)
from trioperator.client.writing import (
    APPLY_PATCH,
    STRATEGIC_PATCH,
    ChildApply,
    Patch,
    is_conditional,
    make_params,
    retry_conflicts,
)
from trioperator.errors import ConflictError, NotFoundError

#: Policy for the children of a deleted object.
Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]


class Client(Reader):
    """A client of one API server: objects are dicts, and kinds have the names that decorators and kubectl accept.

    Classes declared by :func:`trioperator.crds.kind` name their kinds, too: then objects are instances of the class.

    ::

        @trioperator.on.create("webapps")
        async def create(spec, name, client):
            await client.apply({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name},
                "spec": make_deployment(spec),
            })
            await client.wait_for("deployments", name, condition="Available", timeout=60)

    Handlers get one as their argument ``client``; :func:`trioperator.open_client` opens one elsewhere. Sync functions
    get a :class:`SyncClient` with the same methods. Any number of tasks may use a client at the same time.

    Requests are retried after lost connections, HTTP 429 and 5xx, with ``settings.networking.error_backoffs``, or after
    the delay that the server asks for (``Retry-After``) if that is longer. Requests that are not idempotent, such as
    ``create()``, are retried only if the server cannot have processed them. A write that conflicts with another one is
    attempted up to five times, unless it is bound to a resource version or a uid.

    Raises the errors of :mod:`trioperator.errors`: ApiError for error responses (NotFoundError, ConflictError,
    ForbiddenError, InvalidError…), ConnectionLostError if there is no response after all retries, and PausedError,
    before anything is sent, if the operator must not write.

    See docs/client.md.
    """

    @overload
    async def create(self, obj: Foreign, *parent: object, **options: Unpack[CreateAnyOptions]) -> JsonObject: ...
    @overload
    async def create(self, obj: Kind, **options: Unpack[CreateOptions]) -> Kind: ...
    @overload
    async def create(self, obj: object, *parent: object, **options: Unpack[CreateAnyOptions]) -> JsonObject: ...
    async def create(
        self,
        obj: object,
        *parent: object,
        owner: object = HANDLED,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Create an object, and return it as it was created.

        ::

            pod = await client.create({"apiVersion": "v1", "kind": "Pod", "spec": {...}})
            token = await client.create(request, "serviceaccounts", "default", subresource="token")

        The object becomes a child of *owner*: by default, of the object that is being handled; None for no owner. It
        gets an owner reference, the owner's namespace and a name after the owner unless it has its own, and the owner's
        labels that ``settings.persistence.owner_labels`` names. For a *subresource*, *parent* is the kind and the name
        of the object that has it. With *dry_run*, nothing is stored.

        Raises ConflictError if there is an object of that name, ValueError if the owner is in another namespace, which
        Kubernetes does not allow, or the object has no ``apiVersion`` and ``kind``.
        """
        body = to_dict(obj)
        if parent or subresource:
            target = await self._locate(parent, namespace)
            path = target.get_path(subresource)
        else:
            target = await self._prepare(body, namespace, owner=owner)
            path = target.resource.get_path(target.namespace)
        params = make_params(target, dry_run=dry_run)
        created = await self._send(target, lambda: target.kube.post(path, body, params=params))
        return make_decoder(None if parent else find_model((obj,), subresource=subresource))(created)

    @overload
    async def replace(self, obj: Foreign, **options: Unpack[ReplaceOptions[str | None]]) -> JsonObject: ...
    @overload
    async def replace(self, obj: Kind, **options: Unpack[ReplaceOptions[Status]]) -> Kind: ...
    @overload
    async def replace(self, obj: object, **options: Unpack[ReplaceOptions[str | None]]) -> JsonObject: ...
    async def replace(
        self, obj: object, *, namespace: str | None = None, subresource: str | None = None, dry_run: bool = False
    ) -> Any:
        """Replace an object, or its *subresource* such as ``"status"``, and return the new one.

        ::

            config = await client.get("configmaps", "settings")
            config["data"]["level"] = "debug"
            await client.replace(config)

        With the ``metadata.resourceVersion`` that was read, it never overwrites changes of others: if the object has
        changed meanwhile, ConflictError is raised, and the write is not retried. Custom resources require it.

        Raises NotFoundError if there is no such object, ValueError without ``metadata.name``.
        """
        body = to_dict(obj)
        target = await self._prepare(body, namespace, owner=None)
        if not target.name:
            raise ValueError(f"Only objects with a name can be replaced: set metadata.name{explain_nameless(obj)}.")
        path, params = target.get_path(subresource), make_params(target, dry_run=dry_run)
        conditional = is_conditional(body)
        new = await self._send(target, lambda: target.kube.put(path, body, params=params), conditional=conditional)
        return make_decoder(find_model((obj,), subresource=subresource))(new)

    @overload
    async def patch(
        self, target: Foreign, /, *name: str, **options: Unpack[PatchOptions[str | None]]
    ) -> JsonObject: ...
    @overload
    async def patch(self, kind: type[Kind], name: str, /, **options: Unpack[PatchOptions[Status]]) -> Kind: ...
    @overload
    async def patch(self, obj: Kind, /, **options: Unpack[PatchOptions[Status]]) -> Kind: ...
    @overload
    async def patch(self, *target: object, **options: Unpack[PatchOptions[str | None]]) -> JsonObject: ...
    async def patch(
        self,
        *target: object,
        merge: Mapping[str, Any] | None = None,
        json: Sequence[Mapping[str, Any]] | None = None,
        strategic: Mapping[str, Any] | None = None,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Patch an object, or its *subresource* such as ``"status"``, and return the new one.

        ::

            await client.patch("pods", "web-0", merge={"metadata": {"labels": {"seen": "yes"}}})
            await client.patch(pod, json=[{"op": "remove", "path": "/metadata/labels/seen"}])

        Pass exactly one of *merge* (a JSON merge patch, RFC 7386: None removes a field), *json* (a JSON patch, RFC
        6902) and *strategic* (a strategic merge patch, which Kubernetes supports for built-in kinds only). A patch with
        a ``metadata.resourceVersion`` applies to that version only: otherwise ConflictError is raised, and the write is
        not retried.

        If you pass an object with its uid, only that object is patched: NotFoundError is raised if another one has its
        name by now. Raises InvalidError if the patch or its result is invalid, TypeError without exactly one patch.
        """
        found = await self._locate(target, namespace)
        patches = {MERGE_PATCH: merge, JSON_PATCH: json, STRATEGIC_PATCH: strategic}
        given = [(content_type, patch) for content_type, patch in patches.items() if patch is not None]
        if len(given) != 1:
            raise TypeError("patch() takes exactly one of merge=, json= and strategic=.")
        ((content_type, patch),) = given
        params = make_params(found, dry_run=dry_run)
        conditional = isinstance(patch, Mapping) and is_conditional(patch)
        write = Patch(found, content_type, patch, params, subresource)
        new = await self._send(found, write.send, conditional=conditional)
        return make_decoder(find_model(target, subresource=subresource))(new)

    @overload
    async def apply(self, obj: Foreign, **options: Unpack[ApplyOptions[str | None]]) -> JsonObject: ...
    @overload
    async def apply(self, obj: Kind, **options: Unpack[ApplyOptions[Status]]) -> Kind: ...
    @overload
    async def apply(self, obj: object, **options: Unpack[ApplyOptions[str | None]]) -> JsonObject: ...
    async def apply(
        self,
        obj: object,
        *,
        owner: object = HANDLED,
        adopt: bool = False,
        force: bool = False,
        field_manager: str | None = None,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Apply an object server-side: create it, or change the fields that differ. Return the new one.

        ::

            await client.apply({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "settings"},
                "data": {"level": "debug"},
            })

        Fields that the same field manager applied before, and that are no longer in *obj*, are removed. *field_manager*
        defaults to ``settings.persistence.field_manager``. If another manager has set a field to another value,
        ConflictError is raised, and the write is not retried; *force* takes the field over. *owner* is the same as for
        :meth:`create`.

        With an owner, the object is first read. If it exists and has another owner or none, ForeignChildError is
        raised: otherwise, users who may create owners could change objects of others by using their names. *adopt*
        takes such an object over, without reading it.

        Raises ValueError without ``metadata.name``, and as :meth:`create`.
        """
        body = to_dict(obj)
        metadata = body.get("metadata") or {}
        if not metadata.get("name"):
            raise ValueError(f"Only objects with a name can be applied: set metadata.name{explain_nameless(obj)}.")
        metadata.pop("managedFields", None)  # as read: the server accepts none
        target = await self._prepare(body, namespace, owner=None if subresource else owner)
        params = {**make_params(target, field_manager=field_manager, dry_run=dry_run), "force": force}
        write: Patch | ChildApply = Patch(target, APPLY_PATCH, body, params, subresource)
        if target.owner is not None and not adopt:
            write = ChildApply(target, target.owner, body, params)
        new = await self._send(target, write.send, conditional=is_conditional(body))
        return make_decoder(find_model((obj,), subresource=subresource))(new)

    async def delete(
        self,
        *target: object,
        propagation: Propagation | None = None,
        grace_period: int | None = None,
        uid: str | None = None,
        missing_ok: bool = False,
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete an object. It remains until its finalizers are removed: :meth:`wait_deleted` waits for that.

        ::

            await client.delete("jobs", "backup", propagation="Background")

        *propagation* determines what happens to its children: they are deleted afterwards ("Background", the default of
        most kinds) or before ("Foreground"), or stay ("Orphan"). *grace_period* is in seconds.

        If you pass an object with its uid, only that object is deleted, and no other one of its name. Raises
        NotFoundError if it is gone, unless *missing_ok*. With *uid*, ConflictError is raised if the object has another
        uid. If the response to a deletion by name is lost, and somebody may have created another object of that name
        since, the deletion is not repeated, and ConnectionLostError or ServerError is raised.
        """
        found = await self._locate(target, namespace)
        options = {"propagationPolicy": propagation, "gracePeriodSeconds": grace_period}
        body: JsonObject = {key: value for key, value in options.items() if value is not None}
        params = {"dryRun": "All" if dry_run else None}
        deletion = Deletion(found, body, params, uid=uid or found.uid)
        try:
            await self._send(found, deletion.send, conditional=uid is not None)
        except NotFoundError as error:
            if error.repeated:  # the response to a successful attempt was lost
                return
            if uid is not None and isinstance(error.__cause__, ConflictError):
                raise error.__cause__ from None
            if not missing_ok:
                raise

    async def scale(self, *target: object, replicas: int, namespace: str | None = None) -> JsonObject:
        """Set the number of replicas of an object with a scale subresource, and return its ``Scale``.

        ::

            await client.scale("deployments", "web", replicas=3)

        Raises NotFoundError if there is no such object, or its kind has no scale.
        """
        found = await self._locate(target, namespace)
        patch = Patch(found, MERGE_PATCH, {"spec": {"replicas": replicas}}, make_params(found), "scale")
        return await self._send(found, patch.send)

    async def evict(
        self, pod: object, *, namespace: str | None = None, grace_period: int | None = None, dry_run: bool = False
    ) -> None:
        """Evict a pod: delete it if disruption budgets allow that.

        *pod* is the name of a pod, or the pod itself; *grace_period* is in seconds. Raises NotFoundError if it is gone.
        While budgets do not allow the eviction, it is retried as after any HTTP 429; then TooManyRequestsError is
        raised.
        """
        found = await self._locate_pod(pod, namespace)
        preconditions = None if found.uid is None else {"uid": found.uid}
        options = {"gracePeriodSeconds": grace_period, "preconditions": preconditions}
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": found.name, "namespace": found.namespace},
            "deleteOptions": {key: value for key, value in options.items() if value is not None},
        }
        params = {"dryRun": "All" if dry_run else None}

        async def send() -> JsonObject:
            try:
                return await found.kube.post(found.get_path("eviction"), eviction, params=params)
            except ConflictError as error:
                if found.uid is None or not await is_replaced(found, found.uid):
                    raise
                raise replaced_error(found) from error

        await self._send(found, send)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str | None = None,
    ) -> bytes:
        """Send any other request, and return the body of its response; content types default to JSON.

        ::

            version = json.loads(await client.request("GET", "/version"))

        Retries and errors are the same as for the other methods.
        """
        kube = await self._connect()
        return await kube.request(method, path, params=params, body=body, content_type=content_type, accept=accept)

    async def connection(self) -> Connection:
        """Return the connection of the client, by which other client libraries are logged in.

        ::

            connection = await client.connection()
            async with connection.for_httpx() as http:
                response = await http.get("/version")
        """
        return Connection(await self._connect(), self._transport)

    async def _prepare(self, body: JsonObject, namespace: str | None, *, owner: object) -> Target:
        """Complete an object that is to be written, and return where to write it."""
        api_version, kind = body.get("apiVersion"), body.get("kind")
        if not (api_version and kind):
            raise ValueError("The object has no apiVersion or no kind: set both.")
        kube, resource = await self._find(parse_kind((api_version, kind)))
        metadata = body.setdefault("metadata", {})
        if namespace and resource.namespaced is not False:
            metadata["namespace"] = namespace  # before an owner is looked for: it has no children elsewhere
        owner_uid = adopt(body, owner, resource=resource, labels=kube.settings.persistence.owner_labels)
        where = choose_namespace(kube, resource, namespace or metadata.get("namespace"))
        if where is not None:
            metadata["namespace"] = where
        return Target(kube, resource, where, metadata.get("name") or "", owner=owner_uid)

    async def _send(
        self, target: Target, send: Callable[[], Awaitable[JsonObject]], *, conditional: bool = False
    ) -> JsonObject:
        with self._forgetting(target.resource):
            return await (send() if conditional else retry_conflicts(send))
