"""Webhooks as they are in configurations."""

from __future__ import annotations

from typing import Any

ADDRESS: dict[str, Any] = {"service": {"namespace": "prod", "name": "hooks", "path": "/base"}, "caBundle": "b3du"}


def hook(name: str, /, **service: Any) -> dict[str, Any]:
    where = {"namespace": "prod", "name": "hooks", "port": 443, "path": f"/base/{name}", **service}
    rules = [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["*"]}]
    return {"name": f"{name}.hooks.example.com", "clientConfig": {"service": where}, "rules": rules}
