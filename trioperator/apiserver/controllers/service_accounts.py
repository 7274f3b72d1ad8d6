"""Default service accounts of namespaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from trioperator.errors import ConflictError

from .client import Object, Resource
from .controller import Controller

ACCOUNTS: Final[Resource] = ("", "serviceaccounts")
NAMESPACES: Final[Resource] = ("", "namespaces")


class ServiceAccountController(Controller):
    """Creates the service account ``default`` in each namespace, again when it was deleted."""

    resource: ClassVar[Resource] = NAMESPACES

    def keys_for(self, resource: Resource, obj: Object) -> Iterable[str]:
        """Return the namespace: the object, or that of the service account."""
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
