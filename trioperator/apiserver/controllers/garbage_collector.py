"""Garbage collection and termination of namespaces, soon after the changes that cause them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from .client import Object, Resource
from .controller import Controller


class GarbageCollector(Controller):
    """Runs the deferred follow-ups of changes; a prompt cluster has none."""

    resource: ClassVar[Resource] = ("", "namespaces")

    def keys_for(self, resource: Resource, obj: Object) -> Iterable[str]:
        """Return one key for all objects: that of a namespace which always exists."""
        return ("default",)

    async def reconcile(self, obj: Object) -> float | None:
        self.client.tidy()
        return None
