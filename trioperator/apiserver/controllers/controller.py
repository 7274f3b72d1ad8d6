"""What all controllers are: something that looks at one object at a time, and brings it nearer to what it says."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable
from typing import ClassVar

from .client import Client, Object, Resource

__all__ = ["Controller", "Pace"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things take in the cluster, in seconds of Trio's clock."""

    schedule: float = 0  # until a Pod is put on the node
    start: float = 1  # from then on, until its containers run
    ready: float = 0  # from then on, until it is ready
    run: float = 1  # how long the containers of a Job's Pod run
    stop: float = 1  # how long a Pod needs to end itself, if its grace period allows so much
    event_ttl: float = 3600  # how long Kubernetes Events are kept


class Controller(abc.ABC):
    """Looks after the objects of one resource; it is asked to when they change, or something which concerns them."""

    resource: ClassVar[Resource]
    owns: ClassVar[tuple[Resource, ...]] = ()

    def __init__(self, client: Client, pace: Pace) -> None:
        self.client = client
        self.pace = pace

    async def prepare(self) -> None:  # noqa: B027 -- may be left out
        """Create what has to be there from the beginning."""

    def keys_for(self, resource: Resource, obj: Object) -> Iterable[str]:
        """Return the keys of the objects to be looked at, as this one has changed: itself, and its owner."""
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
        """Bring the object one step on; return the seconds after which to look again, if nothing changes before."""

    async def clear(self, key: str) -> None:  # noqa: B027 -- may be left out
        """Do what is left to do after the object is gone."""
