"""Eviction of Pods: deletions that disruption budgets can prevent.

Budgets are taken as their status has them, as on the real server: a controller, or a test, keeps it up to date.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from trioperator.errors import ApiError

from ..bodies.decoding import WriteOptions
from ..bodies.delete_options import DeleteOptions
from ..bodies.patching import JSON, SentPatch
from ..model.errors import forbidden
from ..model.kinds import Kind, subresource_kind
from ..model.selectors import selector_of
from ..store.state import State
from ..store.storage import Stored
from .deleter import Deleter
from .pod_subresources import CREATED, admit_subresource
from .writer import Admission, Writer

Object = dict[str, Any]

EVICTION: Final = subresource_kind("policy", "v1", "Eviction")
_MANAGER: Final = "kube-apiserver"
_BUDGETS: Final = ("policy", "poddisruptionbudgets")
_VIOLATION: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL: Final = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_SECONDS: Final = 10  # until clients shall try again, where the status of a budget is behind


class Evictor:
    """Evictions of one cluster."""

    def __init__(self, state: State, writer: Writer, deleter: Deleter, admission: Admission) -> None:
        self._state = state
        self._writer = writer
        self._deleter = deleter
        self._admission = admission

    async def evict(
        self, kind: Kind, place: tuple[str, str], sent: Any, *, options: WriteOptions, deletion: DeleteOptions
    ) -> Object:
        """Delete a Pod if its disruption budget allows it, and return a ``Status``. Raises 429 if not."""
        await admit_subresource(sent, EVICTION, pods=kind, place=place, options=options, admission=self._admission)
        pod = self._state.require(kind, *place)
        if not _is_free(pod.obj):
            await self._take(pod.obj, dry_run=deletion.dry_run)
        await self._deleter.evict(kind, pod, deletion, mark=lambda: self._mark(kind, place))
        return CREATED

    async def _take(self, pod: Mapping[str, Any], *, dry_run: bool) -> None:
        """Take one disruption of the Pod's budget, if it has one and counts."""
        budgets = list(self._budgets_of(pod))
        if len(budgets) > 1:
            raise ApiError.of(_SEVERAL, status=500)
        if not budgets or _is_spare(pod, budgets[0].obj):
            return
        (budget,) = budgets
        kind = self._state.catalog.by_resource(_BUDGETS)
        assert kind is not None
        _check(kind, budget.obj)
        if not dry_run:
            namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            place = namespace, budget.obj["metadata"]["name"]
            await self._set_status(kind, place, _taken(budget.obj["status"], name, self._state.timestamp()))

    def _budgets_of(self, pod: Mapping[str, Any]) -> Iterator[Stored]:
        meta = pod["metadata"]
        table = self._state.store.table(_BUDGETS)
        for key in table.keys(f"{meta['namespace']}/"):
            stored = table.objects[key]
            selector = selector_of((stored.obj.get("spec") or {}).get("selector") or {})
            if selector and selector.matches(pod):
                yield stored

    async def _mark(self, kind: Kind, place: tuple[str, str]) -> Stored:
        """Set the condition that says why the Pod goes, for those that see it before."""
        status = self._state.require(kind, *place).obj.get("status") or {}
        await self._set_status(kind, place, _marked(status, self._state.timestamp()))
        return self._state.require(kind, *place)

    async def _set_status(self, kind: Kind, place: tuple[str, str], status: Object) -> None:
        patch = SentPatch(JSON, msgspec.json.encode([{"op": "add", "path": "/status", "value": status}]))
        await self._writer.patch(kind, place, patch, WriteOptions(manager=_MANAGER), subresource="status")


def _is_free(pod: Mapping[str, Any]) -> bool:
    """Return whether a Pod counts for no budget."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in {"Pending", "Succeeded", "Failed"} or "deletionTimestamp" in pod["metadata"]


def _is_spare(pod: Mapping[str, Any], budget: Mapping[str, Any]) -> bool:
    """Return whether a Pod is not ready, and can go without taking from its budget."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    if any((each["type"], each["status"]) == ("Ready", "True") for each in conditions):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= desired > 0)


def _check(kind: Kind, budget: Mapping[str, Any]) -> None:
    """Raise 429 if a budget allows no disruption."""
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _violation(f"The disruption budget {name} is still being processed by the server.", _SECONDS)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        shown = dataclasses.replace(kind, plural="poddisruptionbudget")
        raise forbidden(shown, name, "pdb disruptions allowed is negative")
    if not allowed:
        desired, current = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _violation(f"The disruption budget {name} needs {desired} healthy pods and has {current} currently")


def _violation(text: str, seconds: int = 0) -> ApiError:
    details: Object = {"causes": [{"reason": "DisruptionBudget", "message": text}]}
    if seconds:
        details["retryAfterSeconds"] = seconds
    return ApiError.of(_VIOLATION, status=429, reason="TooManyRequests", details=details, retry_after=seconds or None)


def _taken(status: Mapping[str, Any], pod: str, now: str) -> Object:
    """Return the status of a budget with one disruption less."""
    disrupted = {**(status.get("disruptedPods") or {}), pod: now}
    return {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}


def _marked(status: Mapping[str, Any], now: str) -> Object:
    """Return the status of a Pod with the condition that it is evicted."""
    kept = [each for each in status.get("conditions") or () if each["type"] != "DisruptionTarget"]
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": now,
    }
    return {**status, "conditions": [*kept, condition]}
