"""Objects for controllers to work on."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def template(labels: dict[str, str], *, image: str = "i", notes: dict[str, str] | None = None, **spec: Any) -> Object:
    """Return a Pod template, with annotations for the simulated kubelet."""
    meta: Object = {"labels": labels}
    if notes:
        meta["annotations"] = tell(**notes)
    return {"metadata": meta, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def tell(**notes: str) -> dict[str, str]:
    """Return annotations for the simulated kubelet: runs_for="5"…"""
    return {f"pod.trioperator.dev/{name.replace('_', '-')}": text for name, text in notes.items()}


def pod(name: str = "p", *, meta: Object | None = None, notes: dict[str, str] | None = None, **spec: Any) -> Object:
    """Return a Pod."""
    made = {"name": name, "annotations": tell(**(notes or {})), **(meta or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": made,
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def workload(kind: str, name: str = "w", *, group: str = "apps", **options: Any) -> Object:
    """Return a workload; options of templates go to its template, others to its spec."""
    labels = {"app": name}
    own = {key: options.pop(key) for key in ("image", "notes", "restartPolicy") if key in options}
    spec: Object = {"selector": {"matchLabels": labels}, "template": template(labels, **own), **options}
    if kind == "Job":
        del spec["selector"]
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def conditions(obj: Object) -> dict[str, str]:
    """Return the statuses of the object's conditions."""
    return {item["type"]: item["status"] for item in (obj.get("status") or {}).get("conditions") or ()}
