"""Simulated scheduler and kubelet: Pods are bound, run, become ready, and finish or fail, without containers.

Annotations of a Pod (or of its template) control what it does:

- ``pod.trioperator.dev/ready-after``: seconds until its containers are ready, or ``never``;
- ``pod.trioperator.dev/runs-for``: seconds until its containers exit; by default only containers of Jobs do;
- ``pod.trioperator.dev/exit-codes``: exit codes such as ``1,1,0``, one for each run, the last one for all others;
- ``pod.trioperator.dev/stops-after``: seconds that it takes to terminate, within the grace period;
- ``pod.trioperator.dev/waits-for``: the reason why its containers do not start, such as ``ImagePullBackOff``;
- ``pod.trioperator.dev/unschedulable``: the message why no node fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import trio

from .client import Object, Resource
from .controller import Controller
from .nodes import ADDRESS, NODE_NAME, NODES, fits, register_node
from .templates import PODS, is_ready, set_condition

_PREFIX: Final = "pod.trioperator.dev/"
_MAX_BACKOFF: Final = 300
_INITIALIZED: Final = ("PodReadyToStartContainers", "Initialized")
_READY: Final = ("Ready", "ContainersReady")


class PodController(Controller):
    """Moves each Pod through its phases."""

    resource: ClassVar[Resource] = PODS

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._stages: dict[str, tuple[str, float]] = {}  # by key: the stage of the Pod, and its start
        self._addresses = 0

    async def prepare(self) -> None:
        """Register the node."""
        await register_node(self.client)

    async def forget(self, key: str) -> None:
        """Forget the stage of the Pod."""
        self._stages.pop(key, None)

    async def reconcile(self, obj: Object) -> float | None:
        if "deletionTimestamp" in obj["metadata"]:
            return await self._stop(obj)
        status = obj.get("status") or {}
        if status.get("phase") in {"Succeeded", "Failed"}:
            return None
        node = obj["spec"].get("nodeName")
        if not node:
            return await self._schedule(obj)
        if node != NODE_NAME:
            return None
        return await (self._run(obj) if status.get("phase") == "Running" else self._start(obj))

    def _elapsed(self, obj: Object, stage: str) -> float:
        """Return the seconds since the Pod entered the stage, on Trio's clock."""
        meta, now = obj["metadata"], trio.current_time()
        key, stage = f"{meta['namespace']}/{meta['name']}", f"{meta['uid']} {stage}"
        if self._stages.get(key, ("", 0))[0] != stage:
            self._stages[key] = (stage, now)
        return now - self._stages[key][1]

    # -- stages ---------------------------------------------------------------------------------------------------

    async def _schedule(self, obj: Object) -> float | None:
        status, problem = obj.get("status") or {}, _annotation(obj, "unschedulable")
        node = self.client.get(NODES, NODE_NAME)
        if node is None or not fits(obj["spec"], node):
            problem = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
        gates = obj["spec"].get("schedulingGates")
        if gates or problem:
            text = "Scheduling is blocked due to non-empty scheduling gates" if gates else problem
            reason = "SchedulingGated" if gates else "Unschedulable"
            condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": text}
            await self._set_status(obj, self._with(status, condition))
            return None
        if (left := self.pace.schedule - self._elapsed(obj, "scheduling")) > 0:
            return left
        await self.client.bind(obj, NODE_NAME)
        fresh = self.client.get(PODS, f"{obj['metadata']['namespace']}/{obj['metadata']['name']}")
        if fresh is not None:
            await self._set_status(fresh, self._with(status, {"type": "PodScheduled", "status": "True"}))
        return None

    async def _start(self, obj: Object) -> float | None:
        if (left := self.pace.start - self._elapsed(obj, "starting")) > 0:
            return left
        status: Object = {**(obj.get("status") or {}), "hostIP": ADDRESS, "hostIPs": [{"ip": ADDRESS}]}
        status["startTime"] = self.client.timestamp()
        names = ("PodScheduled", *_INITIALIZED)
        if reason := _annotation(obj, "waits-for"):
            text = f"containers with unready status: [{' '.join(item['name'] for item in obj['spec']['containers'])}]"
            unready = {"status": "False", "reason": "ContainersNotReady", "message": text}
            status = self._with(status, *({"type": name, "status": "True"} for name in names))
            status = self._with(status, *({"type": name, **unready} for name in _READY))
            state = {"waiting": {"reason": reason, "message": f"Waiting, as annotated: {reason}."}}
            await self._set_status(obj, {**status, **_containers(obj, state, is_ready=False)})
            return None
        self._addresses += 1
        address = f"10.244.{self._addresses // 254 % 256}.{self._addresses % 254 + 1}"
        status |= {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        status = self._with(status, *({"type": name, "status": "True"} for name in names))
        await self._show_running(obj, status, is_ready=_seconds(obj, "ready-after", self.pace.ready) <= 0)
        return None

    async def _run(self, obj: Object) -> float | None:
        restarts = _restarts(obj)
        first = (obj["status"].get("containerStatuses") or [{}])[0].get("state") or {}
        if "waiting" in first:
            delay: float = min(_MAX_BACKOFF, 10 << min(restarts, 10))
            if (left := delay - self._elapsed(obj, f"backing off {restarts}")) > 0:
                return left
            await self._show_running(obj, obj["status"], is_ready=False, restarts=restarts + 1)
            return None
        elapsed = self._elapsed(obj, f"running {restarts}")
        until_end = _seconds(obj, "runs-for", self.pace.run if _is_of_job(obj) else math.inf) - elapsed
        if until_end <= 0:
            await self._end(obj)
            return None
        until_ready = _seconds(obj, "ready-after", self.pace.ready) - elapsed
        ready = until_ready <= 0 and self._passes_gates(obj)
        if ready != is_ready(obj):
            await self._show_running(obj, obj["status"], is_ready=ready, restarts=restarts)
        return min((left for left in (until_end, until_ready) if left > 0), default=None)

    async def _end(self, obj: Object) -> None:
        restarts = _restarts(obj)
        code = self._exit_code(obj)
        reason = "Error" if code else "Completed"
        now = self.client.timestamp()
        began = (obj["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("running", {}).get("startedAt")
        ended = {"terminated": {"exitCode": code, "reason": reason, "startedAt": began or now, "finishedAt": now}}
        policy = obj["spec"].get("restartPolicy", "Always")
        status = self._with_readiness(obj, obj["status"], is_ready=False, reason="PodCompleted")
        if policy == "Always" or (policy == "OnFailure" and code):
            state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}}
            shown = _containers(obj, state, is_ready=False, restarts=restarts, last=ended)
        else:
            status["phase"] = "Failed" if code else "Succeeded"
            shown = _containers(obj, ended, is_ready=False, restarts=restarts)
        await self._set_status(obj, {**status, **shown})

    async def _stop(self, obj: Object) -> float | None:
        grace = obj["metadata"].get("deletionGracePeriodSeconds", 0)
        if not grace or obj["spec"].get("nodeName") != NODE_NAME:
            return None
        stop: float = min(grace, _seconds(obj, "stops-after", self.pace.stop))
        if (left := stop - self._elapsed(obj, "stopping")) > 0:
            return left
        if is_ready(obj):  # kubelets tell that the containers have ended before the Pod goes
            now = self.client.timestamp()
            ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
            status = self._with_readiness(obj, obj["status"], is_ready=False, reason="PodFailed")
            shown = _containers(obj, ended, is_ready=False, restarts=_restarts(obj))
            await self._set_status(obj, {**status, **shown})
        await self.client.delete(PODS, obj, grace=0)
        return None

    # -- status ---------------------------------------------------------------------------------------------------

    def _exit_code(self, obj: Object) -> int:
        """Return the exit code of this run, counted over restarts and finished Pods of the same owner."""
        codes = (_annotation(obj, "exit-codes") or "0").split(",")
        before = _restarts(obj)
        for owner in obj["metadata"].get("ownerReferences") or ():
            if owner.get("controller"):
                siblings = self.client.owned({"metadata": owner}, PODS)
                before += sum(item["status"].get("phase") in {"Succeeded", "Failed"} for item in siblings)
        text = codes[min(before, len(codes) - 1)].strip()
        return int(text) if text.isdecimal() else 1

    def _passes_gates(self, obj: Object) -> bool:
        conditions = {item["type"]: item["status"] for item in obj["status"].get("conditions") or ()}
        gates = obj["spec"].get("readinessGates") or ()
        return all(conditions.get(gate["conditionType"]) == "True" for gate in gates)

    async def _show_running(self, obj: Object, status: Object, *, is_ready: bool, restarts: int = 0) -> None:
        running = (obj["status"].get("containerStatuses") or [{}])[0].get("state") or {}
        state = running if "running" in running else {"running": {"startedAt": self.client.timestamp()}}
        status = self._with_readiness(obj, status, is_ready=is_ready, reason="ContainersNotReady")
        await self._set_status(obj, {**status, **_containers(obj, state, is_ready=is_ready, restarts=restarts)})

    def _with_readiness(self, obj: Object, status: Object, *, is_ready: bool, reason: str) -> Object:
        condition: Object = {"status": "True"}
        if not is_ready:
            names = " ".join(item["name"] for item in obj["spec"]["containers"])
            text = f"containers with unready status: [{names}]"
            condition = {"status": "False", "reason": reason, "message": text}
        return self._with(status, *({"type": name, **condition} for name in _READY))

    def _with(self, status: Object, *conditions: Mapping[str, Any]) -> Object:
        for condition in conditions:
            status = set_condition(status, {"lastProbeTime": None, **condition}, now=self.client.timestamp())
        return status

    async def _set_status(self, obj: Object, status: Object) -> None:
        generation = obj["metadata"].get("generation")
        await self.client.set_status(PODS, obj, {**status, "observedGeneration": generation} if generation else status)


def _annotation(obj: Object, name: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(_PREFIX + name) or "")


def _seconds(obj: Object, name: str, default: float) -> float:
    """Return the duration in the annotation; infinity for "never" or an invalid value."""
    text = _annotation(obj, name)
    if not text:
        return default
    try:
        return max(0.0, float(text))
    except ValueError:
        return math.inf


def _is_of_job(obj: Object) -> bool:
    owners = obj["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] == "Job" and owner.get("controller") for owner in owners)


def _restarts(obj: Object) -> int:
    statuses = (obj.get("status") or {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount", 0))


def _containers(
    obj: Object, state: Object, *, is_ready: bool, restarts: int = 0, last: Object | None = None
) -> dict[str, list[Object]]:
    """Return the statuses of all containers: all have the same state, init containers have completed."""
    old = ((obj.get("status") or {}).get("containerStatuses") or [{}])[0].get("lastState") or {}
    is_started = "waiting" not in state
    uid = obj["metadata"]["uid"]
    main: Object = {
        "state": state,
        "lastState": old if last is None else last,
        "ready": is_ready,
        "restartCount": restarts,
        "started": "running" in state,
    }
    completed: Object = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    init: Object = {
        "state": completed if is_started else {"waiting": {"reason": "PodInitializing"}},
        "lastState": {},
        "ready": is_started,
        "restartCount": 0,
        "started": False,
    }

    def statuses(containers: Iterable[Mapping[str, Any]], status: Object) -> list[Object]:
        return [{**_identity(container, uid, is_started=is_started), **status} for container in containers]

    shown = {"containerStatuses": statuses(obj["spec"]["containers"], main)}
    if init_containers := obj["spec"].get("initContainers"):
        shown["initContainerStatuses"] = statuses(init_containers, init)
    return shown


def _identity(item: Mapping[str, Any], uid: str, *, is_started: bool) -> Object:
    image = str(item.get("image") or "")
    made = {"imageID": f"simulated://{image}", "containerID": f"simulated://{uid}/{item['name']}"}
    return {"name": item["name"], "image": image, **(made if is_started else {"imageID": ""})}
