"""The embedded cluster: the public interface of the API server, with direct access to its objects for tests."""

from __future__ import annotations

import base64
import contextlib
import datetime
import functools
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from trioperator._model.conditions import Condition
from trioperator.errors import ConfigError

from .api import Api
from .bodies import patching
from .bodies.decoding import WriteOptions
from .bodies.delete_options import DeleteOptions
from .bootstrap import API_SERVICE, create_component_statuses, create_namespaces
from .gate import Gate
from .manifests import Manifest, find_kind, load_objects, metadata_of, to_plain
from .model.kinds import Kind
from .model.messages import RequestLog
from .model.user import ADMIN, User
from .reading.waiting import ObjectWait
from .serving.certificates import CertificateAuthority
from .serving.kubeconfig import make_kubeconfig
from .store.state import State
from .store.storage import Snapshot, Stored
from .webhooks.client import WebhookClient
from .writing.writer import Written

if TYPE_CHECKING:
    import httpx

    from .controllers import Pace
    from .store.data_file import DataFile

BODY_LIMIT = 3 * 1024 * 1024  # bytes, as the real server has it

Object = dict[str, Any]
Objects = list[Object]


class Cluster:
    """A Kubernetes API in this process. A new one has only the default namespaces.

    ::

        cluster = trioperator.apiserver.Cluster()
        await cluster.apply(pathlib.Path("crd.yaml"))
        async with cluster.client() as http:
            response = await http.get("/api/v1/namespaces")

    - ``clock``: function that returns the wall time (aware, UTC) for timestamps; default: the machine's
    - ``seed``: number that makes uids and generated names reproducible
    - ``history``, ``history_age``: number of changes, and their age in seconds, that limit how far back watches can
      start, for each resource; older resource versions get HTTP 410
    - ``log_limit``: number of requests that :attr:`requests` keeps
    - ``data``: open data file with the objects to start with: see :func:`open_cluster`
    - ``tokens``: dict from bearer tokens to users
    - ``authorization``: ``"always-allow"`` or ``"rbac"``
    - ``services``: dict from the Services of webhooks to URLs: ``{"default/hooks": "https://127.0.0.1:9443"}``
    - ``webhooks``: dict from host names to httpx transports, which replace the network, and work in virtual time; the
      host name of a Service is ``name.namespace.svc``
    - ``managed_fields``: with False, the field managers of an object are tracked only from its first server-side apply
      on, which makes all other writes a fifth to a quarter cheaper
    - ``shard_selectors``: with False, shard selectors are ignored, as API servers do without the feature gate
      ``ShardedListAndWatch``

    The methods act with admin permissions, and are not logged in :attr:`requests`. They accept the names of kinds that
    kubectl accepts: ``"pods"``, ``"po"``, ``"Pod"``, ``"deployments.apps"``. Unless stated otherwise, the namespace is
    by default the manifest's, else "default". They return copies, and raise the errors of :mod:`trioperator.errors`;
    ConfigError for kinds that are not served.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime.datetime] | None = None,
        seed: int | None = None,
        history: int = 5_000,
        history_age: float = 300,
        log_limit: int = 100_000,
        data: DataFile | None = None,
        tokens: Mapping[str, User] | None = None,
        authorization: str = "always-allow",
        services: Mapping[str, str] | None = None,
        webhooks: Mapping[str, httpx.AsyncBaseTransport] | None = None,
        managed_fields: bool = True,
        shard_selectors: bool = True,
    ) -> None:
        self._state = State(clock=clock, seed=seed, history=history, history_age=history_age, data=data)
        self.requests = RequestLog(log_limit)
        self._gate = Gate(self._state, users=tokens or {}, authorization=authorization)
        self.ca_certificates: dict[str, str] = {}  # by server URL: PEM in base64, or ""
        webhook_client = WebhookClient(services=services, transports=webhooks)
        self.webhooks = webhook_client.transports  # by hosts
        self.api = Api(
            self._state, self.requests, body_limit=BODY_LIMIT, gate=self._gate, webhook_client=webhook_client
        )
        self.api.writer.field_manager.is_from_creation = managed_fields
        self.api.reader.knows_shards = shard_selectors
        self._gate.follow(self.api.followups.add, certificate=self._certificate)
        if data is not None:
            self._restore(data, seed)
        create_namespaces(self._state)
        self._gate.prepare()
        self.api.followups.run()

    def _restore(self, data: DataFile, seed: int | None) -> None:
        """Load the objects of the data file, and run the follow-ups of its last changes."""
        store = self._state.store
        store.restore(data.objects, data.revision)
        if seed is not None:
            self._state.random.seed(f"{seed}, from {data.revision} on")  # uids are not reused
        store.on_change.append(data.observe)
        self.api.followups.run()

    def _certificate(self) -> bytes | None:
        """Return the CA certificate of the cluster's server, if it is served over TLS."""
        return next((base64.b64decode(text) for text in self.ca_certificates.values() if text), None)

    async def add_components(self) -> None:
        """Create what standalone clusters have: the Service of the API, and a status of each component."""
        create_component_statuses(self._state)
        if await self.find("services", "kubernetes", "default") is None:
            await self.create(API_SERVICE)

    @cached_property
    def ca(self) -> CertificateAuthority:
        """The CA of the cluster. It survives restarts if there is a data file."""
        made = self._state.persisted(
            "authority", lambda: "".join(part.decode("ascii") for part in CertificateAuthority().pem)
        )
        return CertificateAuthority((made.encode("ascii"), made.encode("ascii")))

    # -- clients --------------------------------------------------------------------------------------------------

    def transport(self, *, user: User = ADMIN) -> httpx.AsyncBaseTransport:
        """Return an in-memory transport for httpx clients: it streams watches, and works in virtual time.

        Requests without credentials come from *user*, by default an admin.
        """
        from .serving.memory import MemoryTransport

        return MemoryTransport(self.api, user)

    def client(self, *, user: User = ADMIN) -> httpx.AsyncClient:
        """Return an httpx client with an in-memory :meth:`transport`."""
        import httpx

        return httpx.AsyncClient(transport=self.transport(user=user), base_url="http://cluster", timeout=None)

    def kubeconfig(self, url: str, *, user: User = ADMIN, certificate: bool = False) -> Object:
        """Return a kubeconfig for the cluster at the URL, with its CA if it is served over TLS.

        It authenticates as *user*, by default an admin, with a token, or with a client certificate (which needs TLS).
        Keep it secret.
        """
        credentials = {"token": self._gate.tokens.issue_for(user)}
        if certificate:
            pair = (base64.b64encode(part).decode("ascii") for part in self.ca.issue(user))
            credentials = dict(zip(("client-certificate-data", "client-key-data"), pair, strict=True))
        return make_kubeconfig(url, credentials, authority=self.ca_certificates.get(url))

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The newest resource version."""
        return self._state.store.revision

    def compact(self, revision: int | None = None) -> None:
        """Compact the history up to a revision (by default all of it): watches and pages from before get HTTP 410."""
        self._state.store.compact(revision)

    def snapshot(self) -> Snapshot:
        """Return all objects as they are now, for :meth:`restore`. This is cheap, as the objects are not copied."""
        return self._state.store.snapshot()

    async def restore(self, snapshot: Snapshot) -> None:
        """Restore all objects to the state in a snapshot of this cluster; newer objects are removed.

        Objects that change by this get new resource versions. Watches of their kinds end with HTTP 410, so that clients
        list again.
        """
        self._state.store.rewind(snapshot)
        self.api.followups.run()
        await self._state.saved()

    async def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """Return the object. Raises NotFoundError if it does not exist."""
        found = self._kind(kind)
        stored = self._state.require(found, self._namespace(found, namespace), name)
        return _copy((await self.api.converter.show(found, stored)).raw)

    async def find(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Return the object, or None if it does not exist."""
        found = self._kind(kind)
        key = found.key(self._namespace(found, namespace), name)
        stored = self._state.table(found).objects.get(key)
        return None if stored is None else _copy((await self.api.converter.show(found, stored)).raw)

    async def list(self, kind: str, namespace: str | None = None, *, labels: str = "", fields: str = "") -> Objects:
        """Return the objects in the namespace (by default in all namespaces) that match the selectors."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        page = await self.api.reader.list(self._kind(kind), namespace or "", query)
        return [_copy(stored.raw) for stored in page.items]

    def objects(self, only: Collection[str] | None = None, *, without: Collection[str] = ()) -> Objects:
        """Return all objects of all kinds, as they are stored, in the order of their kinds and names.

        *only* and *without* are kinds as in manifests, such as ``"Deployment"``. To ask for fewer is faster.
        """
        tables = [table.objects for _, table in sorted(self._state.store.tables.items())]
        found = (objects[key] for objects in tables for key in sorted(objects))
        return [
            _copy(stored.raw)
            for stored in found
            if (only is None or stored.obj["kind"] in only) and stored.obj["kind"] not in without
        ]

    async def wait_for(
        self,
        kind: str,
        name: str,
        condition: Condition | None = None,
        namespace: str | None = None,
        *,
        timeout: float | None = 60,
    ) -> Object:
        """Wait until the object exists and meets the condition, and return it.

        The condition is the same as for ``Client.wait_for()``: a type in ``status.conditions``, such as ``"Ready"``, or
        a function of the object. It is not met if the function raises AssertionError or LookupError. *timeout* is in
        seconds; None: no limit. Raises TimeoutError after that.
        """
        return await self._wait(kind, name, namespace).until(condition, timeout=timeout)

    async def wait_deleted(
        self, kind: str, name: str, namespace: str | None = None, *, timeout: float | None = 60
    ) -> None:
        """Wait until the object is gone, or replaced by another one of the same name.

        Raises TimeoutError after *timeout* seconds; None: no limit.
        """
        await self._wait(kind, name, namespace).until_deleted(timeout=timeout)

    def _wait(self, name_of_kind: str, name: str, namespace: str | None) -> ObjectWait:
        kind = self._kind(name_of_kind)

        async def show(stored: Stored) -> Object:
            return _copy((await self.api.converter.show(kind, stored)).raw)

        key = kind.key(self._namespace(kind, namespace), name)
        return ObjectWait(self._state.store, self._state.table(kind), key, show=show)

    def write_log(self, pod: str, text: str, namespace: str | None = None, *, container: str = "") -> None:
        """Append lines to the log of a container of a Pod; *container* is needed if there are several.

        No containers are run: their logs are what is written here, and are deleted with the Pod. Clients that follow
        the log get the lines at once, and its end when the Pod has succeeded or failed, or is deleted. Raises
        NotFoundError if there is no such Pod, ApiError (400) for a container that it does not have.
        """
        kind = self._kind("pods")
        stored = self._state.require(kind, self._namespace(kind, namespace), pod)
        self.api.subresources.pod_logs.write(stored, container, text)

    # -- garbage collection and controllers -----------------------------------------------------------------------

    @property
    def is_prompt(self) -> bool:
        """Whether garbage is collected, and namespaces are terminated, before the response to a write.

        True by default. Set it to False to see the states in between; then call :meth:`tidy`, or run the controller
        ``"garbage-collector"``, which does it soon after each change.
        """
        return self.api.followups.is_prompt

    @is_prompt.setter
    def is_prompt(self, value: bool) -> None:
        self.api.followups.is_prompt = value

    def tidy(self) -> None:
        """Collect garbage and terminate namespaces now, unless :attr:`is_prompt` has done it."""
        self.api.followups.run_deferred()

    @contextlib.asynccontextmanager
    async def open_controllers(self, *names: str, pace: Pace | None = None) -> AsyncIterator[None]:
        """Run the named controllers (by default ``"all"``) in the block.

        *pace* has the times that their work takes, on Trio's clock. Raises ConfigError for unknown names.
        """
        from .controllers import Client, Pace, select_controllers, serve_controllers

        kinds = select_controllers(names or ("all",))
        api = self.api
        client = Client(self._state, writer=api.writer, deleter=api.deleter, tidy=api.followups.run_deferred)
        serve = functools.partial(serve_controllers, client, kinds, pace=pace or Pace())
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, name="controllers")
            yield
            nursery.cancel_scope.cancel(reason="the block of open_controllers() has ended")

    # -- writing --------------------------------------------------------------------------------------------------

    async def create(self, manifest: Mapping[str, Any], namespace: str | None = None) -> Object:
        """Create the object. Raises ConflictError if it exists."""
        kind = find_kind(self._state.catalog, manifest)
        place = self._namespace(kind, namespace or metadata_of(manifest).get("namespace"))
        return await self._saved(await self.api.writer.create(kind, place, to_plain(manifest), WriteOptions()))

    async def apply(self, manifest: Manifest, namespace: str | None = None) -> Objects:
        """Create the objects, or merge them into existing ones, and return them.

        A manifest is an object, an iterable of objects, YAML text with any number of documents, or the path of a file.
        Raises ConfigError for a manifest that cannot be read, or has a kind that is not served.
        """
        results = []
        for obj in load_objects(manifest):
            kind = find_kind(self._state.catalog, obj)
            meta = metadata_of(obj)
            name = str(meta.get("name") or "")
            place = self._namespace(kind, namespace or meta.get("namespace"))
            if kind.key(place, name) in self._state.table(kind).objects:
                version = ".".join(filter(None, (kind.plural, kind.version, kind.group)))  # the manifest's
                results.append(await self.patch(version, name, obj, place))
            else:
                results.append(await self.create(obj, place))
        return results

    async def patch(
        self,
        kind: str,
        name: str,
        patch: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> Object:
        """Patch the object, and return it. A mapping is a merge patch, an iterable has operations of a JSON patch."""
        found = self._kind(kind)
        place = self._namespace(found, namespace), name
        is_merge = isinstance(patch, Mapping)
        body = msgspec.json.encode(patch if is_merge else list(patch))
        sent = patching.SentPatch(patching.MERGE if is_merge else patching.JSON, body)
        return await self._saved(
            await self.api.writer.patch(found, place, sent, WriteOptions(), subresource=subresource)
        )

    async def replace(
        self, manifest: Mapping[str, Any], namespace: str | None = None, *, subresource: str = ""
    ) -> Object:
        """Replace the object, and return the new one. Raises NotFoundError if it does not exist."""
        kind = find_kind(self._state.catalog, manifest)
        meta = metadata_of(manifest)
        place = self._namespace(kind, namespace or meta.get("namespace")), str(meta.get("name") or "")
        sent = to_plain(manifest)
        written = await self.api.writer.replace(kind, place, sent, WriteOptions(), subresource=subresource)
        return await self._saved(written)

    async def delete(self, kind: str, name: str, namespace: str | None = None, *, policy: str = "") -> Object | None:
        """Delete the object. Returns it if finalizers keep it for now, otherwise None.

        *policy* is ``"Background"``, ``"Foreground"`` or ``"Orphan"``; default: that of the kind. Raises NotFoundError
        if the object does not exist.
        """
        found = self._kind(kind)
        place = self._namespace(found, namespace)
        result = await self.api.deleter.delete(found, place, name, DeleteOptions(policy=policy))
        if isinstance(result, Written):
            return await self._saved(result)
        await self._state.saved()
        return None

    async def _saved(self, written: Written) -> Object:
        await self._state.saved()
        return _copy(written.raw)

    # -- names ----------------------------------------------------------------------------------------------------

    def _kind(self, name: str) -> Kind:
        kind = self._state.catalog.find(name)
        if kind is None:
            raise ConfigError(f"The cluster has no resource {name!r}: apply its CustomResourceDefinition first.")
        return kind

    @staticmethod
    def _namespace(kind: Kind, namespace: str | None) -> str:
        return (namespace or "default") if kind.namespaced else ""


def _copy(raw: bytes) -> Object:
    obj: Object = msgspec.json.decode(raw)
    return obj
