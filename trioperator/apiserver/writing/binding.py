"""Bindings of Pods to nodes, as schedulers create them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from trioperator.errors import ApiError

from ..bodies.decoding import WriteOptions
from ..model.errors import conflict
from ..model.kinds import Kind, subresource_kind
from ..store.state import State
from ..store.storage import Stored
from .pod_subresources import CREATED, admit_subresource
from .validation import uid_mismatch_text
from .writer import Admission, Writer

Object = dict[str, Any]

BINDING: Final = subresource_kind("", "v1", "Binding")


class Binder:
    """Bindings of one cluster."""

    def __init__(self, state: State, writer: Writer, admission: Admission) -> None:
        self._state = state
        self._writer = writer
        self._admission = admission

    async def bind(self, kind: Kind, place: tuple[str, str], sent: Any, options: WriteOptions) -> Object:
        """Assign a Pod to a node, and return a ``Status``. Raises 409 if it cannot be assigned."""
        binding = await admit_subresource(
            sent, BINDING, pods=kind, place=place, options=options, admission=self._admission, check=_check
        )

        def change(old: Stored) -> Object:
            if problem := _find_problem(kind, binding, old):
                raise conflict(dataclasses.replace(kind, plural="pods/binding"), place[1], problem)
            return _bound(old.obj, binding, self._state.timestamp())

        await self._writer.mutate(kind, place, change, options)
        return CREATED


def _check(binding: Mapping[str, Any]) -> None:
    """Raise 500, as the real server does, for a binding to anything but a node."""
    target = binding.get("target") or {}
    if (target.get("kind") or "Node") != "Node":
        text = f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise ApiError.of(text, status=500)
    if not target.get("name"):
        raise ApiError.of("target.name: Required value", status=500)


def _find_problem(kind: Kind, binding: Mapping[str, Any], pod: Stored) -> str:
    """Return why the Pod cannot be bound, or an empty string."""
    meta, spec, name = pod.obj["metadata"], pod.obj["spec"], pod.obj["metadata"]["name"]
    uid = binding["metadata"].get("uid")
    if uid and uid != meta["uid"]:
        return uid_mismatch_text(kind, pod, uid)
    if "deletionTimestamp" in meta:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _bound(pod: Mapping[str, Any], binding: Mapping[str, Any], now: str) -> Object:
    """Return the Pod on its node, with the labels and annotations of the binding."""
    meta, status = dict(pod["metadata"]), dict(pod.get("status") or {})
    for field in ("annotations", "labels"):
        if more := binding["metadata"].get(field):
            meta[field] = {**(meta.get(field) or {}), **more}
    status.pop("nominatedNodeName", None)
    others = [each for each in status.get("conditions") or () if each["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status["conditions"] = [*others, scheduled]
    return {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": binding["target"]["name"]}, "status": status}
