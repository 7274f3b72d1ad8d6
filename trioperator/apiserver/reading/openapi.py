"""OpenAPI documents: the query parameters of each resource, and the schemas of all kinds. Pure.

Only custom kinds have descriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..model.kind_schemas import Node, definition, definition_of, reference, schema_of
from ..model.kinds import Catalog, Kind
from .discovery import VERSION

_OPTIONS: Final = {
    "get": (),
    "patch": ("dryRun", "fieldManager", "fieldValidation", "force"),
    "post": ("dryRun", "fieldManager", "fieldValidation"),
    "put": ("dryRun", "fieldManager", "fieldValidation"),
}
_INFO: Final = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
_VERSION_2_REFERENCE: Final = "#/definitions/"
# Keywords that OpenAPI version 2 does not have, or that the API omits in it.
_VERSION_3_KEYWORDS: Final = frozenset({"allOf", "anyOf", "default", "not", "nullable", "oneOf"})
_GVK: Final = "x-kubernetes-group-version-kind"
_PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"


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
    paths = dict(_paths(kinds, has_schema=True))
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": _schemas(kinds)}}


def version_2(catalog: Catalog) -> dict[str, Any]:
    """Return ``/openapi/v2``."""
    kinds = [
        kind
        for group in catalog.groups()
        for version in catalog.versions(group)
        for kind in catalog.kinds(group, version)
    ]
    definitions = {name: _as_version_2(schema) for name, schema in _schemas(kinds).items()}
    paths = dict(_paths(kinds, has_schema=False))
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}


# -- schemas -------------------------------------------------------------------------------------------------------


def _schemas(kinds: Iterable[Kind]) -> dict[str, Node]:
    """Return the schemas of the kinds, and all schemas that they reference."""
    schemas = {_name(kind): _schema(kind) for kind in kinds}
    pending = [target for schema in schemas.values() for target in _references(schema)]
    while pending:
        name = pending.pop()
        if name not in schemas:
            schemas[name] = definition(name)
            pending.extend(_references(schemas[name]))
    return schemas


def _name(kind: Kind) -> str:
    group = ".".join(reversed(kind.group.split(".")))
    return definition_of(kind) or f"{group}.{kind.version}.{kind.kind}"


def _schema(kind: Kind) -> Node:
    found = schema_of(kind)
    if found is not None and kind.custom is None:
        return found
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    return {**(found or {"type": "object", _PRESERVE_UNKNOWN: True}), _GVK: [gvk]}


def _subschemas(node: Node) -> Iterator[Node]:
    for keyword in ("properties", "definitions"):
        yield from (node.get(keyword) or {}).values()
    for keyword in ("items", "additionalProperties", "not"):
        if isinstance(node.get(keyword), Mapping):
            yield node[keyword]
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from node.get(keyword) or ()


def _references(node: Node) -> Iterator[str]:
    target = reference(node)
    if target is not None:
        yield target
    else:
        for part in _subschemas(node):
            yield from _references(part)


def _as_version_2(node: Node) -> dict[str, Any]:
    target = reference(node)
    if target is not None:
        return {"$ref": f"{_VERSION_2_REFERENCE}{target}"}
    if node.get(_PRESERVE_UNKNOWN):  # kubectl would take the properties that are listed for all that may be there
        known = {keyword: node[keyword] for keyword in ("description", _GVK) if keyword in node}
        return {**known, "type": "object"} if _GVK in node else {**known, _PRESERVE_UNKNOWN: True}
    old = {keyword: value for keyword, value in node.items() if keyword not in _VERSION_3_KEYWORDS}
    if "oneOf" in node and "type" not in node:
        old["type"] = "string"  # quantities, and integers or strings
    if "properties" in node:
        old["properties"] = {name: _as_version_2(part) for name, part in node["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(node.get(keyword), Mapping):
            old[keyword] = _as_version_2(node[keyword])
    return old


# -- paths ---------------------------------------------------------------------------------------------------------


def _paths(kinds: Iterable[Kind], *, has_schema: bool) -> Iterable[tuple[str, dict[str, Any]]]:
    for kind in kinds:
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        base = "/" + _group_path(kind.group, kind.version)
        base += f"/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"/{kind.plural}"
        for path, methods in ((base, ("get", "post")), (f"{base}/{{name}}", ("get", "put", "patch"))):
            yield path, {method: _operation(method, gvk, has_schema=has_schema) for method in methods}


def _operation(method: str, gvk: dict[str, str], *, has_schema: bool) -> dict[str, Any]:
    parameters = []
    for name in _OPTIONS[method]:
        typed = {"schema": {"type": "string"}} if has_schema else {"type": "string"}
        parameters.append({"name": name, "in": "query", **typed})
    return {
        "x-kubernetes-action": method,
        _GVK: gvk,
        "parameters": parameters,
        "responses": {},
    }
