"""Server-side apply, as tests request it."""

from __future__ import annotations

from typing import Any

from tests.apiserver.conftest import GROUP, Answer, Target

APPLY = "application/apply-patch+yaml"
VERSION = f"{GROUP}/v1"
KINDS = {
    "configmaps": ("v1", "ConfigMap"),
    "deployments": ("apps/v1", "Deployment"),
    "events": ("v1", "Event"),
    "frees": (VERSION, "Free"),
    "keyeds": (VERSION, "Keyed"),
    "pods": ("v1", "Pod"),
    "secrets": ("v1", "Secret"),
    "services": ("v1", "Service"),
    "shapes": (VERSION, "Shape"),
}


def wanted(plural: str, name: str = "a", *, meta: dict[str, Any] | None = None, **content: Any) -> dict[str, Any]:
    """Return a configuration to apply."""
    api_version, kind = KINDS[plural]
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **(meta or {})}, **content}


async def apply(
    target: Target,
    plural: str,
    manager: str,
    *,
    meta: dict[str, Any] | None = None,
    force: bool = False,
    **content: Any,
) -> Answer:
    """Apply the content to the object "a"."""
    obj = wanted(plural, meta=meta, **content)
    extra = {"force": "true"} if force else {}
    return await target.request("PATCH", target.path(plural, "a"), obj, APPLY, fieldManager=manager, **extra)
