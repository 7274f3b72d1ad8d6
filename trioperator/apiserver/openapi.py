"""OpenAPI documents, as far as clients need them. Pure.

They tell which resources take which options, and the schemas of custom kinds. Built-in kinds are described as objects
without further structure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from .kinds import Catalog, Kind

__all__ = ["index", "version_2", "version_3"]

_OPTIONS: Final = {
    "patch": ("dryRun", "fieldManager", "fieldValidation", "force"),
    "post": ("dryRun", "fieldManager", "fieldValidation"),
    "put": ("dryRun", "fieldManager", "fieldValidation"),
}


def _group_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def index(catalog: Catalog) -> dict[str, Any]:
    """Return ``/openapi/v3``."""
    paths = {}
    for group in catalog.groups():
        for version in catalog.versions(group):
            path = _group_path(group, version)
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def version_3(catalog: Catalog, group: str, version: str) -> dict[str, Any]:
    """Return ``/openapi/v3/apis/<group>/<version>``."""
    kinds = catalog.kinds(group, version)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": dict(_paths(kinds, in_schema=True)),
        "components": {"schemas": {_name(kind): _schema(kind) for kind in kinds}},
    }


def version_2(catalog: Catalog) -> dict[str, Any]:
    """Return ``/openapi/v2``."""
    kinds = [
        kind
        for group in catalog.groups()
        for version in catalog.versions(group)
        for kind in catalog.kinds(group, version)
    ]
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": dict(_paths(kinds, in_schema=False)),
        "definitions": {_name(kind): _schema(kind) for kind in kinds},
    }


def _name(kind: Kind) -> str:
    group = ".".join(reversed(kind.group.split("."))) if kind.custom else f"io.k8s.api.{kind.group or 'core'}"
    return f"{group}.{kind.version}.{kind.kind}"


def _schema(kind: Kind) -> dict[str, Any]:
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    schema: dict[str, Any] = {"type": "object"}
    if kind.custom is not None and kind.custom.schema:
        schema |= kind.custom.schema
    properties = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    schema["properties"] = {**properties, **(schema.get("properties") or {})}
    if kind.custom is None:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return {**schema, "x-kubernetes-group-version-kind": [gvk]}


def _paths(kinds: Iterable[Kind], *, in_schema: bool) -> Iterable[tuple[str, dict[str, Any]]]:
    for kind in kinds:
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        base = "/" + _group_path(kind.group, kind.version)
        base += f"/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"/{kind.plural}"
        yield base, {"post": _operation("post", gvk, in_schema=in_schema)}
        methods = {method: _operation(method, gvk, in_schema=in_schema) for method in ("put", "patch")}
        yield f"{base}/{{name}}", methods


def _operation(method: str, gvk: dict[str, str], *, in_schema: bool) -> dict[str, Any]:
    parameters = []
    for name in _OPTIONS[method]:
        typed = {"schema": {"type": "string"}} if in_schema else {"type": "string"}
        parameters.append({"name": name, "in": "query", **typed})
    action = {"post": "post", "put": "put", "patch": "patch"}[method]
    return {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk,
        "parameters": parameters,
        "responses": {},
    }
