"""Base class of controllers, which reconcile one object at a time."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable
from typing import ClassVar

from .client import Client, Object, Resource


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

    @abc.abstractmethod
    async def reconcile(self, obj: Object) -> float | None:
        """Move the object one step towards its desired state; return the seconds until it is requeued, if it is."""

    async def forget(self, key: str) -> None:  # noqa: B027 -- optional
        """Clean up after the object is deleted."""
