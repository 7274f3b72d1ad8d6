"""PersistentVolumeClaims: each is bound to a simulated volume."""

from __future__ import annotations

from typing import ClassVar, Final

from trioperator._model.quantities import quantity_value

from .client import Object, Resource
from .controller import Controller

CLAIMS: Final[Resource] = ("", "persistentvolumeclaims")
VOLUMES: Final[Resource] = ("", "persistentvolumes")
_PROVISIONER: Final = "pretended.trioperator.dev"


class VolumeClaimController(Controller):
    """Provisions a volume for each claim and binds them; the volume grows, and is deleted, with its claim."""

    resource: ClassVar[Resource] = CLAIMS

    async def reconcile(self, obj: Object) -> float | None:
        meta, spec = obj["metadata"], obj["spec"]
        if "deletionTimestamp" in meta:
            return None
        if (obj.get("status") or {}).get("phase") == "Bound":
            await self._expand(obj)
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

    async def _expand(self, claim: Object) -> None:
        """Let the volume of a bound claim grow to what the claim requests, if it was provisioned here."""
        volume = self.client.get(VOLUMES, claim["spec"].get("volumeName") or "")
        size = claim["spec"]["resources"]["requests"]["storage"]
        status = claim["status"]
        capacity = status.get("capacity") or {}
        if (
            volume is None
            or not _is_own(volume)
            or quantity_value(capacity.get("storage", "0")) >= quantity_value(size)
        ):
            return
        await self.client.merge(VOLUMES, volume, {"spec": {"capacity": {"storage": size}}})
        await self.client.set_status(CLAIMS, claim, {**status, "capacity": {**capacity, "storage": size}})

    def keys_for(self, resource: Resource, obj: Object) -> tuple[str, ...]:
        """Return the key of the claim: the object, or the volume's."""
        if resource == VOLUMES:
            claim = obj["spec"].get("claimRef")
            return (f"{claim['namespace']}/{claim['name']}",) if claim else ()
        return tuple(super().keys_for(resource, obj))

    async def forget(self, key: str) -> None:
        """Delete the volumes that were provisioned for the claim."""
        for volume in self.client.all(VOLUMES):
            claim = volume["spec"].get("claimRef") or {}
            if _is_own(volume) and f"{claim.get('namespace')}/{claim.get('name')}" == key:
                await self.client.delete(VOLUMES, volume)


def _is_own(volume: Object) -> bool:
    return (volume["spec"].get("csi") or {}).get("driver") == _PROVISIONER
