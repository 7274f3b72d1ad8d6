"""The garbage collector, and the ends of namespaces: some time after the changes that ask for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from .client import Object, Resource
from .controller import Controller

__all__ = ["GarbageCollector"]


class GarbageCollector(Controller):
    """Tidy up after changes of any object; where the cluster is prompt, there is nothing left to do."""

    resource: ClassVar[Resource] = ("", "namespaces")

    def keys_for(self, resource: Resource, obj: Object) -> Iterable[str]:
        """Return the one key under which all is done: that of a namespace which is always there."""
        return ("default",)

    async def reconcile(self, obj: Object) -> float | None:
        self.client.tidy()
        return None
