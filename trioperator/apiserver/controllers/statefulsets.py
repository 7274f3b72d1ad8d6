"""StatefulSets: Pods with stable names."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from .client import Object, Resource
from .controller import Controller
from .revisions import REVISIONS, clean_revisions, ensure_revision
from .templates import PODS, adopt, has_ended, is_ready, make_pod, owner_reference, until_available
from .volume_claims import CLAIMS

STATEFULSETS: Resource = ("apps", "statefulsets")

_HASH: Final = "controller-revision-hash"


class StatefulSetController(Controller):
    """Creates Pods in the order of their ordinals; deletes and updates them in the reverse order."""

    resource: ClassVar[Resource] = STATEFULSETS
    owns: ClassVar[tuple[Resource, ...]] = (PODS,)
    source: ClassVar[str] = "statefulset-controller"
    created: ClassVar[str] = "Create Pod {name} in StatefulSet {owner} successful"
    deleted: ClassVar[str] = "Delete Pod {name} in StatefulSet {owner} successful"

    async def reconcile(self, obj: Object) -> float | None:
        meta = obj["metadata"]
        if "deletionTimestamp" not in meta:
            await adopt(self.client, obj, REVISIONS, kept=lambda found: _is_of(obj, found))
            await adopt(self.client, obj, PODS, kept=lambda found: _is_of(obj, found))
        mark = await ensure_revision(self.client, obj, label="controller.kubernetes.io/hash")
        newest = f"{meta['name']}-{mark}"
        current = (obj.get("status") or {}).get("currentRevision") or newest
        if "deletionTimestamp" not in meta:
            await self._sync_pods(obj, current, newest)
        return await self._update_status(obj, current, newest)

    def _pods(self, obj: Object) -> dict[int, Object]:
        """Return the Pods by ordinal, in order."""
        found = {}
        for pod in self.client.owned(obj, PODS):
            name, _, ordinal = pod["metadata"]["name"].rpartition("-")
            if name == obj["metadata"]["name"] and ordinal.isdecimal():
                found[int(ordinal)] = pod
        return dict(sorted(found.items()))

    async def _sync_pods(self, obj: Object, current: str, newest: str) -> None:
        spec = obj["spec"]
        is_ordered = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        start = (spec.get("ordinals") or {}).get("start", 0)
        wanted = range(start, start + spec.get("replicas", 1))
        partition = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition", 0)
        pods = self._pods(obj)
        for ordinal in wanted:
            revision = newest if ordinal >= partition else current
            if not await self._ensure(obj, pods.get(ordinal), ordinal, revision) and is_ordered:
                return
        for ordinal in reversed([ordinal for ordinal in pods if ordinal not in wanted]):
            await self._remove(obj, pods[ordinal])
            if is_ordered:
                return
        if (spec.get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate":
            await self._update_pods(
                obj, [pods[ordinal] for ordinal in wanted if ordinal in pods and ordinal >= partition], newest
            )

    async def _ensure(self, obj: Object, pod: Object | None, ordinal: int, revision: str) -> bool:
        """Ensure that the Pod of the ordinal exists; return whether the next one may be created."""
        if pod is not None and has_ended(pod):
            await self.delete_for(obj, PODS, pod)
            pod = None
            if self.client.get(PODS, f"{obj['metadata']['namespace']}/{obj['metadata']['name']}-{ordinal}") is not None:
                return False
        if pod is None:
            await self._create(obj, ordinal, revision)
            return False
        return "deletionTimestamp" not in pod["metadata"] and self._until_available(obj, pod) <= 0

    async def _create(self, obj: Object, ordinal: int, revision: str) -> None:
        meta, spec = obj["metadata"], obj["spec"]
        name = f"{meta['name']}-{ordinal}"
        labels = {
            "apps.kubernetes.io/pod-index": str(ordinal),
            _HASH: revision,
            "statefulset.kubernetes.io/pod-name": name,
        }
        pod = make_pod(obj, self._template(obj, revision), name=name, labels=labels)
        pod["metadata"]["generateName"] = f"{meta['name']}-"
        pod["spec"]["hostname"] = name
        if spec.get("serviceName"):
            pod["spec"]["subdomain"] = spec["serviceName"]
        claims = {item["metadata"]["name"]: item for item in spec.get("volumeClaimTemplates") or ()}
        if claims:
            own = [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}} for claim in claims]
            others = [item for item in pod["spec"].get("volumes") or () if item["name"] not in claims]
            pod["spec"]["volumes"] = [*own, *others]
        for claim, template in claims.items():
            await self._ensure_claim(obj, f"{claim}-{name}", template, pod=name)
        await self.create_for(obj, PODS, pod)

    def _template(self, obj: Object, revision: str) -> Object:
        stored = self.client.get(("apps", "controllerrevisions"), f"{obj['metadata']['namespace']}/{revision}")
        template: Object = obj["spec"]["template"] if stored is None else stored["data"]["spec"]["template"]
        return {key: value for key, value in template.items() if key != "$patch"}

    async def _ensure_claim(self, obj: Object, name: str, template: Object, *, pod: str) -> None:
        namespace = obj["metadata"]["namespace"]
        if self.client.get(CLAIMS, f"{namespace}/{name}") is not None:
            return
        own = template.get("metadata") or {}
        labels = {**(own.get("labels") or {}), **(obj["spec"]["selector"].get("matchLabels") or {})}
        meta: Object = {"name": name, "namespace": namespace, "labels": labels}
        if own.get("annotations"):
            meta["annotations"] = own["annotations"]
        if _retention(obj, "whenDeleted") == "Delete":
            meta["ownerReferences"] = [{**owner_reference(obj), "controller": False}]
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": template["spec"]}
        await self.client.create(CLAIMS, claim)
        message = f"Create Claim {name} Pod {pod} in StatefulSet {obj['metadata']['name']} success"
        await self.record(obj, "SuccessfulCreate", message)

    async def _remove(self, obj: Object, pod: Object) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            return
        await self.delete_for(obj, PODS, pod)
        if _retention(obj, "whenScaled") == "Delete":
            for template in obj["spec"].get("volumeClaimTemplates") or ():
                meta = pod["metadata"]
                key = f"{meta['namespace']}/{template['metadata']['name']}-{meta['name']}"
                claim = self.client.get(CLAIMS, key)
                if claim is not None:
                    await self.client.delete(CLAIMS, claim)

    async def _update_pods(self, obj: Object, pods: list[Object], newest: str) -> None:
        """Delete the last Pod of an older template, once all Pods after it are available."""
        for pod in reversed(pods):
            if "deletionTimestamp" in pod["metadata"]:
                return
            if pod["metadata"]["labels"].get(_HASH) != newest:
                await self.delete_for(obj, PODS, pod)
                return
            if self._until_available(obj, pod) > 0:
                return

    def _until_available(self, obj: Object, pod: Object) -> float:
        return until_available(pod, obj["spec"].get("minReadySeconds", 0), now=self.client.now())

    async def _update_status(self, obj: Object, current: str, newest: str) -> float | None:
        pods = [pod for pod in self._pods(obj).values() if not has_ended(pod)]
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        waits = [self._until_available(obj, pod) for pod in alive if is_ready(pod)]

        def count(revision: str) -> int:
            return sum(pod["metadata"]["labels"].get(_HASH) == revision for pod in alive)

        ready = sum(map(is_ready, pods))
        if count(newest) == ready == len(pods) == obj["spec"].get("replicas", 1):
            current = newest
        counts = {"readyReplicas": ready, "currentReplicas": count(current), "updatedReplicas": count(newest)}
        status: dict[str, Any] = {
            "observedGeneration": obj["metadata"]["generation"],
            "replicas": len(pods),
            "availableReplicas": sum(wait <= 0 for wait in waits),
            "currentRevision": current,
            "updateRevision": newest,
            "collisionCount": 0,
            **{field: value for field, value in counts.items() if value},
        }
        await self.client.set_status(STATEFULSETS, obj, status)
        used = {pod["metadata"]["labels"].get(_HASH, ""): pod for pod in pods}
        await clean_revisions(self.client, obj, used={**used, current: None, newest: None})
        return min((wait for wait in waits if wait > 0), default=None)


def _retention(obj: Object, moment: str) -> str:
    policy: str = (obj["spec"].get("persistentVolumeClaimRetentionPolicy") or {}).get(moment, "Retain")
    return policy


def _is_of(obj: Object, found: Object) -> bool:
    """Return whether a Pod or a revision has a name of the set, so that it may be adopted."""
    own, _, _ = found["metadata"]["name"].rpartition("-")
    return own == obj["metadata"]["name"] and "deletionTimestamp" not in found["metadata"]
