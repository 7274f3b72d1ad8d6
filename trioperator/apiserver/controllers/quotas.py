"""ResourceQuotas: what is used of them, which the API server compares with what is created."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ..builtin.quotas import QUOTAS
from .client import Object, Resource
from .controller import Controller


class QuotaController(Controller):
    """Counts what a namespace uses of its quotas."""

    resource: ClassVar[Resource] = QUOTAS

    def keys_for(self, resource: Resource, obj: Object) -> Iterable[str]:
        """Return the quotas in the namespace of the object."""
        namespace = obj["metadata"].get("namespace")
        found = self.client.all(QUOTAS, namespace) if namespace else ()
        return [f"{namespace}/{quota['metadata']['name']}" for quota in found]

    async def reconcile(self, obj: Object) -> float | None:
        used = self.client.used_of_quota(obj)
        await self.client.set_status(QUOTAS, obj, {"hard": obj["spec"].get("hard") or {}, "used": used})
        return None
