"""Expiry of Kubernetes Events."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import trio

from .client import Object, Resource
from .controller import Controller

EVENTS: Final[Resource] = ("", "events")


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
