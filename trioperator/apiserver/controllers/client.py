"""Client of controllers: reads from the store, and writes as API clients do, with the same checks."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from trioperator.errors import NotFoundError

from ..bodies.decoding import WriteOptions
from ..bodies.delete_options import DeleteOptions
from ..bodies.patching import JSON, MERGE, SentPatch
from ..builtin.quotas import used_of
from ..model.kinds import Kind
from ..model.user import AUTHENTICATED, MASTERS, User
from ..store.state import State
from ..store.storage import Change, Stored, Table
from ..writing.deleter import Deleter
from ..writing.writer import Writer

Object = dict[str, Any]
Resource = tuple[str, str]  # group and plural

CONTROLLER_MANAGER: Final = User(name="system:kube-controller-manager", groups=(MASTERS, AUTHENTICATED))
_NO_OWNER: Final = ""  # in the place of an owner's uid


class Client:
    """Access to the cluster for controllers. The objects that it returns are the stored ones: do not modify them."""

    def __init__(self, state: State, *, writer: Writer, deleter: Deleter, tidy: Callable[[], None]) -> None:
        self._state = state
        self._writer = writer
        self._deleter = deleter
        self._tidy = tidy
        self._owned: dict[str, dict[tuple[Resource, str], None]] = {}  # by the uid of the controller

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, key: str) -> Object | None:
        """Return the object with the key (``namespace/name``, or ``name``), or None."""
        stored = self._state.store.table(resource).objects.get(key)
        return None if stored is None else stored.obj

    def all(self, resource: Resource, namespace: str = "") -> list[Object]:
        """Return the objects of the resource, in one namespace or in all."""
        table = self._state.store.table(resource)
        return [table.objects[key].obj for key in table.keys(f"{namespace}/" if namespace else "")]

    def owned(self, owner: Object, resource: Resource) -> list[Object]:
        """Return the objects of the resource that the owner controls."""
        return list(self._of(owner["metadata"]["uid"], resource))

    def orphans(self, resource: Resource, namespace: str) -> list[Object]:
        """Return the objects of the resource in the namespace that have no controller."""
        return [obj for obj in self._of(_NO_OWNER, resource) if obj["metadata"].get("namespace") == namespace]

    def used_of_quota(self, quota: Object) -> dict[str, str]:
        """Return what the namespace of the quota uses of it."""
        return used_of(quota, self._state.contents(quota["metadata"]["namespace"]))

    def _of(self, uid: str, resource: Resource) -> Iterator[Object]:
        table = self._state.store.table(resource)
        for found, key in tuple(self._owned.get(uid, ())):
            if found == resource:
                yield table.objects[key].obj

    @contextlib.contextmanager
    def following(self, listener: Callable[[Table, Change], None]) -> Iterator[None]:
        """Maintain the index of owners in the block, and call the listener with each change."""
        self._owned.clear()
        for table in self._state.store.tables.values():
            for stored in table.objects.values():
                self._own(table.resource, stored)
        listeners = self._state.store.on_change
        listeners += [self._observe, listener]
        try:
            yield
        finally:
            listeners.remove(listener)
            listeners.remove(self._observe)

    def _observe(self, table: Table, change: Change) -> None:
        if change.old is not None:
            owner = _owner_of(change.old.obj)
            owned = self._owned.get(owner)
            if owned is not None and (change.new is None or _owner_of(change.new.obj) != owner):
                owned.pop((table.resource, change.key), None)
                if not owned:
                    del self._owned[owner]
        if change.new is not None:
            self._own(table.resource, change.new)

    def _own(self, resource: Resource, stored: Stored) -> None:
        self._owned.setdefault(_owner_of(stored.obj), {})[resource, stored.key] = None

    @property
    def revision(self) -> int:
        """The newest resource version."""
        return self._state.store.revision

    # -- writing --------------------------------------------------------------------------------------------------

    async def create(self, resource: Resource, obj: Object) -> Object:
        """Create the object. Raises ApiError if the API rejects it."""
        namespace = obj["metadata"].get("namespace", "")
        return (await self._writer.create(self._kind(resource), namespace, obj, self._options())).obj

    async def merge(self, resource: Resource, obj: Object, patch: Mapping[str, Any], *, subresource: str = "") -> None:
        """Apply a merge patch to the object, unless it is gone."""
        await self._patch(resource, obj, SentPatch(MERGE, msgspec.json.encode(patch)), subresource=subresource)

    async def set_status(self, resource: Resource, obj: Object, status: Mapping[str, Any]) -> None:
        """Replace the status of the object if it differs, unless the object is gone."""
        if status != obj.get("status"):
            patch = [{"op": "add", "path": "/status", "value": status}]
            await self._patch(resource, obj, SentPatch(JSON, msgspec.json.encode(patch)), subresource="status")

    async def _patch(self, resource: Resource, obj: Object, patch: SentPatch, *, subresource: str) -> None:
        meta = obj["metadata"]
        kind, place = self._kind(resource), (meta.get("namespace", ""), meta["name"])
        try:
            await self._writer.patch(kind, place, patch, self._options(), subresource=subresource)
        except NotFoundError:
            pass  # it was deleted meanwhile

    async def bind(self, pod: Object, node: str) -> None:
        """Bind the Pod to the node, as the scheduler does."""
        meta = pod["metadata"]

        def change(old: Stored) -> Object:
            return {**old.obj, "metadata": dict(old.obj["metadata"]), "spec": {**old.obj["spec"], "nodeName": node}}

        kind = self._kind(("", "pods"))
        await self._writer.mutate(kind, (meta["namespace"], meta["name"]), change, self._options())

    async def delete(
        self, resource: Resource, obj: Object, *, grace: int | None = None, policy: str = "Background"
    ) -> None:
        """Delete the object, unless it is gone or has been replaced."""
        meta = obj["metadata"]
        options = DeleteOptions(uid=meta["uid"], grace=grace, policy=policy, user=CONTROLLER_MANAGER)
        try:
            await self._deleter.delete(self._kind(resource), meta.get("namespace", ""), meta["name"], options)
        except NotFoundError:
            pass  # it was deleted meanwhile

    def tidy(self) -> None:
        """Collect garbage and terminate namespaces, where that was deferred."""
        self._tidy()

    def _kind(self, resource: Resource) -> Kind:
        kind = self._state.catalog.by_resource(resource)
        assert kind is not None, resource
        return kind

    @staticmethod
    def _options() -> WriteOptions:
        return WriteOptions(manager="kube-controller-manager", user=CONTROLLER_MANAGER)

    # -- time -----------------------------------------------------------------------------------------------------

    def now(self) -> datetime.datetime:
        """Return the wall time of the cluster."""
        return self._state.now()

    def timestamp(self) -> str:
        """Return the wall time in the format of the API."""
        return self._state.timestamp()


def _owner_of(obj: Object) -> str:
    """Return the uid of the object's controller."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            uid: str = owner["uid"]
            return uid
    return _NO_OWNER
