"""Jobs."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import trio

from .client import Object, Resource
from .controller import Controller
from .templates import PODS, condition_of, has_ended, is_active, is_ready, make_pod, parse_time

JOBS: Resource = ("batch", "jobs")

_TRACKING: Final = "batch.kubernetes.io/job-tracking"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_MIN_BACKOFF: Final = 10
_MAX_BACKOFF: Final = 600


class JobController(Controller):
    """Creates Pods for Jobs, counts how they finish, and completes or fails the Jobs."""

    resource: ClassVar[Resource] = JOBS
    owns: ClassVar[tuple[Resource, ...]] = (PODS,)
    source: ClassVar[str] = "job-controller"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._failures: dict[str, tuple[int, float]] = {}  # by key: failures in a row, and the time of the last one

    async def forget(self, key: str) -> None:
        """Remove the tracking finalizer from the Pods that are left."""
        self._failures.pop(key, None)
        namespace, _, name = key.partition("/")
        for pod in self.client.all(PODS, namespace):
            if _belonged(pod, name):
                await self._release(pod)

    async def reconcile(self, obj: Object) -> float | None:
        status: Object = dict(obj.get("status") or {})
        pods = self.client.owned(obj, PODS)
        if "deletionTimestamp" in obj["metadata"] or finish_time(obj) is not None:
            for pod in pods:
                await self._release(pod)
            return await self._expire(obj)
        ended = self._count_finished(obj, status, pods)
        if obj["spec"].get("suspend"):
            await self._stop(obj, pods)
            status.pop("startTime", None)
            status = self._with_condition(status, ("Suspended", "True", "JobSuspended", "Job suspended"))
            wait = None
        else:
            status.setdefault("startTime", self.client.timestamp())
            if condition_of(status, "Suspended") is not None:
                status = self._with_condition(status, ("Suspended", "False", "JobResumed", "Job resumed"))
            status, wait = await self._sync_pods(obj, status, pods)
        await self._update_status(obj, status)
        await self._record_conditions(obj, status)
        for pod in ended:
            await self._release(pod)
        return wait

    # -- counting -------------------------------------------------------------------------------------------------

    def _count_finished(self, obj: Object, status: Object, pods: list[Object]) -> list[Object]:
        """Add newly finished Pods to the counts of the status; return them."""
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        fresh = [pod for pod in pods if _TRACKING in (pod["metadata"].get("finalizers") or ()) and not is_active(pod)]
        for pod in fresh:
            has_succeeded = pod["status"].get("phase") == "Succeeded"
            field = "succeeded" if has_succeeded else "failed"
            if has_succeeded:
                self._failures.pop(key, None)
                if obj["spec"].get("completionMode") == "Indexed":
                    indexes = {*_indexes(status.get("completedIndexes", "")), _index_of(pod)}
                    status["completedIndexes"] = _ranges(indexes)
                    status["succeeded"] = len(indexes)
                    continue
            else:
                self._failures[key] = (self._failures.get(key, (0, 0.0))[0] + 1, trio.current_time())
            status[field] = status.get(field, 0) + 1
        return fresh

    async def _sync_pods(self, obj: Object, status: Object, pods: list[Object]) -> tuple[Object, float | None]:
        """Finish the Job if it is done or has failed, otherwise create or delete Pods as needed."""
        spec = obj["spec"]
        succeeded, failed, wanted = status.get("succeeded", 0), status.get("failed", 0), spec.get("completions")
        active = [pod for pod in pods if is_active(pod)]
        limit = spec.get("backoffLimit", 6)
        restarts = sum(_restarts(pod) for pod in active)
        deadline = self._until_deadline(obj, status)
        if failed > limit or (restarts and restarts >= limit):
            text = "Job has reached the specified backoff limit"
            return await self._fail(obj, status, active, "BackoffLimitExceeded", text), 0
        if deadline is not None and deadline <= 0:
            text = "Job was active longer than specified deadline"
            return await self._fail(obj, status, active, "DeadlineExceeded", text), 0
        if (succeeded >= wanted) if wanted is not None else (succeeded and not active):
            await self._stop(obj, active)
            text = "Reached expected number of succeeded pods"
            for name in ("SuccessCriteriaMet", "Complete"):
                status = self._with_condition(status, (name, "True", "CompletionsReached", text))
            return {**status, "completionTime": self.client.timestamp()}, 0
        parallelism = spec.get("parallelism", 1)
        if wanted is not None:
            target = min(parallelism, wanted - succeeded)
        else:
            target = len(active) if succeeded else parallelism
        await self._stop(obj, active[: max(0, len(active) - target)])
        wait = self._until_retry(obj) if len(active) < target else None
        if wait is not None and wait <= 0:
            wait = None
            await self._create(obj, status, active, target - len(active))
        return status, min((left for left in (wait, deadline) if left is not None), default=None)

    def _until_deadline(self, obj: Object, status: Object) -> float | None:
        seconds = obj["spec"].get("activeDeadlineSeconds")
        if seconds is None:
            return None
        return float(seconds - (self.client.now() - parse_time(status["startTime"])).total_seconds())

    def _until_retry(self, obj: Object) -> float:
        """Return the seconds of backoff that are left."""
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        if key not in self._failures:
            return 0
        count, last = self._failures[key]
        delay = min(_MAX_BACKOFF, _MIN_BACKOFF << min(count - 1, 10))
        return last + delay - trio.current_time()

    # -- Pods -----------------------------------------------------------------------------------------------------

    async def _create(self, obj: Object, status: Object, active: list[Object], count: int) -> None:
        meta = obj["metadata"]
        labels = {
            "batch.kubernetes.io/controller-uid": meta["uid"],
            "batch.kubernetes.io/job-name": meta["name"],
            "controller-uid": meta["uid"],
            "job-name": meta["name"],
        }
        if obj["spec"].get("manualSelector"):
            labels = {}
        indexes: list[int | None] = [None] * count
        if obj["spec"].get("completionMode") == "Indexed":
            taken = {*_indexes(status.get("completedIndexes", "")), *map(_index_of, active)}
            free = [index for index in range(obj["spec"]["completions"]) if index not in taken]
            indexes = list(free[:count])
        for index in indexes:
            pod = make_pod(obj, obj["spec"]["template"], labels=labels)
            pod["metadata"]["finalizers"] = [_TRACKING]
            if index is not None:
                _set_index(pod, meta["name"], index)
            await self.create_for(obj, PODS, pod)

    async def _stop(self, obj: Object, pods: list[Object]) -> None:
        """Delete Pods that are not needed; they are not counted."""
        for pod in pods:
            if is_active(pod):
                await self._release(pod)
                await self.delete_for(obj, PODS, pod)

    async def _release(self, pod: Object) -> None:
        finalizers = pod["metadata"].get("finalizers") or []
        if _TRACKING in finalizers:
            kept = [item for item in finalizers if item != _TRACKING]
            await self.client.merge(PODS, pod, {"metadata": {"finalizers": kept}})

    # -- status ---------------------------------------------------------------------------------------------------

    async def _fail(self, obj: Object, status: Object, active: list[Object], reason: str, message: str) -> Object:
        await self._stop(obj, active)
        for name in ("FailureTarget", "Failed"):
            status = self._with_condition(status, (name, "True", reason, message))
        return status

    def _with_condition(self, status: Object, condition: tuple[str, str, str, str]) -> Object:
        """Return the status with a condition: its type, status, reason and message."""
        name, value, reason, message = condition
        now = self.client.timestamp()
        old = condition_of(status, name)
        if old is not None and old["status"] == value:
            return status
        new = {"type": name, "status": value, "reason": reason, "message": message}
        new |= {"lastProbeTime": now, "lastTransitionTime": now}
        others = [item for item in status.get("conditions") or () if item["type"] != name]
        return {**status, "conditions": [*others, new]}

    async def _record_conditions(self, obj: Object, status: Object) -> None:
        """Record the conditions that have become true, and that a Job has been resumed."""
        for item in status.get("conditions") or ():
            old = condition_of(obj.get("status") or {}, item["type"])
            if old is not None and old["status"] == item["status"]:
                continue
            if item["type"] == "Suspended":
                await self.record(obj, "Suspended" if item["status"] == "True" else "Resumed", item["message"])
            elif item["type"] == "Complete":
                await self.record(obj, "Completed", "Job completed")
            elif item["type"] == "Failed":
                await self.record(obj, item["reason"], item["message"], kind="Warning")

    async def _update_status(self, obj: Object, status: Object) -> None:
        pods = self.client.owned(obj, PODS)
        active = [pod for pod in pods if is_active(pod)]
        going = [pod for pod in pods if "deletionTimestamp" in pod["metadata"] and not has_ended(pod)]
        status = {key: value for key, value in status.items() if key != "active"}
        if active:
            status["active"] = len(active)
        status |= {"ready": sum(map(is_ready, active)), "terminating": len(going), "uncountedTerminatedPods": {}}
        await self.client.set_status(JOBS, obj, status)

    async def _expire(self, obj: Object) -> float | None:
        """Delete the finished Job after ``ttlSecondsAfterFinished``."""
        seconds, finished = obj["spec"].get("ttlSecondsAfterFinished"), finish_time(obj)
        if seconds is None or finished is None or "deletionTimestamp" in obj["metadata"]:
            return None
        left = float(seconds - (self.client.now() - parse_time(finished)).total_seconds())
        if left > 0:
            return left
        await self.client.delete(JOBS, obj, policy="Foreground")
        return None


def finish_time(obj: Object) -> str | None:
    """Return when the Job completed or failed; None while it runs."""
    for name in ("Complete", "Failed"):
        condition = condition_of(obj.get("status") or {}, name)
        if condition is not None and condition["status"] == "True":
            return str(condition["lastTransitionTime"])
    return None


def _belonged(pod: Object, job: str) -> bool:
    """Return whether the Pod belonged to a deleted Job of the name, which may have orphaned it."""
    owners = [owner for owner in pod["metadata"].get("ownerReferences") or () if owner.get("controller")]
    if owners:
        return any(owner["kind"] == "Job" and owner["name"] == job for owner in owners)
    return bool((pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name") == job)


def _restarts(pod: Object) -> int:
    return sum(item.get("restartCount", 0) for item in (pod.get("status") or {}).get("containerStatuses") or ())


def _set_index(pod: Object, job: str, index: int) -> None:
    meta, spec = pod["metadata"], pod["spec"]
    meta["generateName"] = f"{job}-{index}-"
    meta["annotations"] = {**(meta.get("annotations") or {}), _INDEX: str(index)}
    meta["labels"] = {**meta["labels"], _INDEX: str(index)}
    spec["hostname"] = f"{job}-{index}"
    variable = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}
    spec["containers"] = [{**item, "env": [*(item.get("env") or ()), variable]} for item in spec["containers"]]


def _index_of(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(_INDEX) or 0)


def _indexes(text: str) -> set[int]:
    """Parse ``0,2-4``."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _ranges(indexes: set[int]) -> str:
    """Format as ``0,2-4``."""
    parts: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1] = (parts[-1][0], index)
        else:
            parts.append((index, index))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
