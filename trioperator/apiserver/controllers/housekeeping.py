"""Small controllers: expiry of Events, default service accounts, garbage collection and termination of namespaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

import trio

from trioperator.errors import ConflictError

from .client import Object, Resource
from .controller import EVENTS, Controller


class EventController(Controller):
    """Deletes each event some time after its last write; those that exist at the start count as new."""

    resource: ClassVar[Resource] = EVENTS

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._written: dict[str, tuple[str, float]] = {}  # by key: resource version, and when it was first seen

    async def reconcile(self, obj: Object) -> float | None:
        meta, now = obj["metadata"], trio.current_time()
        key = f"{meta['namespace']}/{meta['name']}"
        version, since = self._written.get(key, ("", now))
        if version != meta["resourceVersion"]:
            since = now
            self._written[key] = (meta["resourceVersion"], now)
        left = since + self.pace.event_ttl - now
        if left > 0:
            return left
        await self.client.delete(EVENTS, obj)
        return None

    async def forget(self, key: str) -> None:
        """Forget when the event was written."""
        self._written.pop(key, None)


ACCOUNTS: Final[Resource] = ("", "serviceaccounts")
NAMESPACES: Final[Resource] = ("", "namespaces")


class ServiceAccountController(Controller):
    """Creates the service account ``default`` in each namespace, again when it was deleted."""

    resource: ClassVar[Resource] = NAMESPACES

    def keys_for(self, resource: Resource, obj: Object) -> Iterable[str]:
        """Return the namespace: the object, or the service account's."""
        if resource == ACCOUNTS:
            return (obj["metadata"]["namespace"],) if obj["metadata"]["name"] == "default" else ()
        return super().keys_for(resource, obj)

    async def reconcile(self, obj: Object) -> float | None:
        name = obj["metadata"]["name"]
        if "deletionTimestamp" in obj["metadata"] or self.client.get(ACCOUNTS, f"{name}/default") is not None:
            return None
        meta = {"name": "default", "namespace": name}
        try:
            await self.client.create(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        except ConflictError:
            pass  # it was created meanwhile
        return None


class GarbageCollector(Controller):
    """Runs the deferred follow-ups of changes; a prompt cluster has none."""

    resource: ClassVar[Resource] = ("", "namespaces")

    def keys_for(self, resource: Resource, obj: Object) -> Iterable[str]:
        """Return one key for all objects: a namespace that always exists."""
        return ("default",)

    async def reconcile(self, obj: Object) -> float | None:
        self.client.tidy()
        return None
