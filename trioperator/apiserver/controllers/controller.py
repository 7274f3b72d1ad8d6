"""Base class of controllers, which reconcile one object at a time."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
from collections.abc import Iterable
from typing import ClassVar, Final

from trioperator.errors import ApiError

from .client import Client, Object, Resource

EVENTS: Final[Resource] = ("", "events")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things take in the cluster, in seconds on Trio's clock."""

    schedule: float = 0  # until a Pod is bound to the node
    start: float = 1  # from then on, until its containers run
    ready: float = 0  # from then on, until it is ready
    run: float = 1  # how long the containers of a Job's Pod run
    stop: float = 1  # how long a Pod takes to terminate, within its grace period
    event_ttl: float = 3600  # how long Kubernetes Events are kept


class Controller(abc.ABC):
    """Reconciler of the objects of one resource, called when they or related objects change."""

    resource: ClassVar[Resource]
    owns: ClassVar[tuple[Resource, ...]] = ()
    #: The name of the controller in Events, and their messages about the objects that it creates and deletes.
    source: ClassVar[str] = ""
    created: ClassVar[str] = "Created pod: {name}"
    deleted: ClassVar[str] = "Deleted pod: {name}"

    def __init__(self, client: Client, pace: Pace) -> None:
        self.client = client
        self.pace = pace

    async def prepare(self) -> None:  # noqa: B027 -- optional
        """Create the objects that must exist from the start."""

    def keys_for(self, resource: Resource, obj: Object) -> Iterable[str]:
        """Return the keys to reconcile when the object changes: by default its own, or its owner's."""
        meta = obj["metadata"]
        if resource == self.resource:
            return (f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"],)
        if resource in self.owns:
            group, _ = self.resource
            return [
                f"{meta['namespace']}/{owner['name']}"
                for owner in meta.get("ownerReferences") or ()
                if owner.get("controller") and owner["apiVersion"].rpartition("/")[0] == group
            ]
        return ()

    async def create_for(self, owner: Object, resource: Resource, manifest: Object) -> None:
        """Create an object that the owner controls, and record it."""
        try:
            name = (await self.client.create(resource, manifest))["metadata"]["name"]
        except ApiError as error:
            await self.record(owner, "FailedCreate", f"Error creating: {error.message}", kind="Warning")
            raise
        message = self.created.format(name=name, owner=owner["metadata"]["name"])
        await self.record(owner, "SuccessfulCreate", message)

    async def delete_for(self, owner: Object, resource: Resource, obj: Object) -> None:
        """Delete an object that the owner controls, and record it, unless it is being deleted."""
        if "deletionTimestamp" not in obj["metadata"]:
            await self.client.delete(resource, obj)
            message = self.deleted.format(name=obj["metadata"]["name"], owner=owner["metadata"]["name"])
            await self.record(owner, "SuccessfulDelete", message)

    async def record(self, obj: Object, reason: str, message: str, *, kind: str = "Normal") -> None:
        """Create an Event about the object, as far as that is possible."""
        meta, now = obj["metadata"], self.client.timestamp()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{self.client.revision:016x}", "namespace": meta["namespace"]},
            "involvedObject": {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
            | {field: meta[field] for field in ("name", "namespace", "resourceVersion", "uid")},
            "type": kind,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self.source},
            "reportingComponent": self.source,
            "reportingInstance": "",
        }
        with contextlib.suppress(ApiError):  # the namespace is terminating, for example
            await self.client.create(EVENTS, event)

    @abc.abstractmethod
    async def reconcile(self, obj: Object) -> float | None:
        """Move the object one step towards its desired state; return the seconds until it is requeued, if it is."""

    async def forget(self, key: str) -> None:  # noqa: B027 -- optional
        """Clean up after the object is deleted."""
