"""PersistentVolumeClaims: each is bound to a simulated volume."""

from __future__ import annotations

from typing import ClassVar, Final

from .client import Object, Resource
from .controller import Controller

__all__ = ["CLAIMS", "VOLUMES", "VolumeClaimController"]

CLAIMS: Final[Resource] = ("", "persistentvolumeclaims")
VOLUMES: Final[Resource] = ("", "persistentvolumes")
_PROVISIONER: Final = "pretended.trioperator.dev"


class VolumeClaimController(Controller):
    """Provisions a volume for each claim and binds them; deletes the volume with its claim."""

    resource: ClassVar[Resource] = CLAIMS

    async def reconcile(self, obj: Object) -> float | None:
        meta, spec = obj["metadata"], obj["spec"]
        if "deletionTimestamp" in meta or (obj.get("status") or {}).get("phase") == "Bound":
            return None
        name = spec.get("volumeName") or f"pvc-{meta['uid']}"
        volume = self.client.get(VOLUMES, name)
        if volume is None:
            if spec.get("volumeName"):
                return None  # the volume that it names may still be created
            volume = await self._provision(obj, name)
        await self.client.set_status(VOLUMES, volume, {"phase": "Bound"})
        if not spec.get("volumeName"):
            await self.client.merge(CLAIMS, obj, {"spec": {"volumeName": name}})
        key = f"{meta['namespace']}/{meta['name']}"
        capacity = (volume["spec"].get("capacity") or {}) or (spec.get("resources") or {}).get("requests") or {}
        status = {"phase": "Bound", "accessModes": spec.get("accessModes") or [], "capacity": capacity}
        await self.client.set_status(CLAIMS, self.client.get(CLAIMS, key) or obj, status)
        return None

    async def _provision(self, obj: Object, name: str) -> Object:
        meta, spec = obj["metadata"], obj["spec"]
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": meta["uid"]}
        volume_spec: Object = {
            "accessModes": spec.get("accessModes") or [],
            "capacity": (spec.get("resources") or {}).get("requests") or {},
            "claimRef": {**claim, "namespace": meta["namespace"], "name": meta["name"]},
            "csi": {"driver": _PROVISIONER, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": "Delete",
        }
        for field in ("storageClassName", "volumeMode"):
            if spec.get(field):
                volume_spec[field] = spec[field]
        own = {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": _PROVISIONER}}
        manifest = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": own, "spec": volume_spec}
        return await self.client.create(VOLUMES, manifest)

    def keys_for(self, resource: Resource, obj: Object) -> tuple[str, ...]:
        """Return the key of the claim: the object, or that of the volume."""
        if resource == VOLUMES:
            claim = obj["spec"].get("claimRef")
            return (f"{claim['namespace']}/{claim['name']}",) if claim else ()
        return tuple(super().keys_for(resource, obj))

    async def forget(self, key: str) -> None:
        """Delete the volumes that were provisioned for the claim."""
        for volume in self.client.all(VOLUMES):
            claim = volume["spec"].get("claimRef") or {}
            is_own = (volume["spec"].get("csi") or {}).get("driver") == _PROVISIONER
            if is_own and f"{claim.get('namespace')}/{claim.get('name')}" == key:
                await self.client.delete(VOLUMES, volume)
