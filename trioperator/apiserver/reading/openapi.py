"""OpenAPI documents: which resources take which options, and the schemas of all kinds. Pure.

Descriptions are those of custom kinds; those of built-in kinds are not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..model.kind_schemas import Node, definition, definition_of, reference, schema_of
from ..model.kinds import Catalog, Kind
from .discovery import VERSION

__all__ = ["index", "version_2", "version_3"]

_OPTIONS: Final = {
    "get": (),
    "patch": ("dryRun", "fieldManager", "fieldValidation", "force"),
    "post": ("dryRun", "fieldManager", "fieldValidation"),
    "put": ("dryRun", "fieldManager", "fieldValidation"),
}
_INFO: Final = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
_OLD_REFERENCE: Final = "#/definitions/"
# What version 2 of OpenAPI has no words for, or what the API does not say in it.
_NEW_WORDS: Final = frozenset({"allOf", "anyOf", "default", "not", "nullable", "oneOf"})
_LOOSE: Final = "x-kubernetes-preserve-unknown-fields"


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
    paths = dict(_paths(kinds, in_schema=True))
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
    paths = dict(_paths(kinds, in_schema=False))
    return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": definitions}


# -- schemas -------------------------------------------------------------------------------------------------------


def _schemas(kinds: Iterable[Kind]) -> dict[str, Node]:
    """Return the schemas of the kinds, and of all that they refer to."""
    schemas = {_name(kind): _schema(kind) for kind in kinds}
    open_names = [target for schema in schemas.values() for target in _references(schema)]
    while open_names:
        name = open_names.pop()
        if name not in schemas:
            schemas[name] = definition(name)
            open_names.extend(_references(schemas[name]))
    return schemas


def _name(kind: Kind) -> str:
    group = ".".join(reversed(kind.group.split(".")))
    return definition_of(kind) or f"{group}.{kind.version}.{kind.kind}"


def _schema(kind: Kind) -> Node:
    found = schema_of(kind)
    if found is not None and kind.custom is None:
        return found
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    return {**(found or {"type": "object", _LOOSE: True}), "x-kubernetes-group-version-kind": [gvk]}


def _below(node: Node) -> Iterator[Node]:
    """Yield the schemas that a schema consists of."""
    for word in ("properties", "definitions"):
        yield from (node.get(word) or {}).values()
    for word in ("items", "additionalProperties", "not"):
        if isinstance(node.get(word), Mapping):
            yield node[word]
    for word in ("allOf", "anyOf", "oneOf"):
        yield from node.get(word) or ()


def _references(node: Node) -> Iterator[str]:
    target = reference(node)
    if target is not None:
        yield target
    else:
        for part in _below(node):
            yield from _references(part)


def _as_version_2(node: Node) -> dict[str, Any]:
    target = reference(node)
    if target is not None:
        return {"$ref": f"{_OLD_REFERENCE}{target}"}
    old = {word: value for word, value in node.items() if word not in _NEW_WORDS}
    if "oneOf" in node and "type" not in node:
        old["type"] = "string"  # quantities, and integers or strings
    if "properties" in node:
        old["properties"] = {name: _as_version_2(part) for name, part in node["properties"].items()}
    for word in ("items", "additionalProperties"):
        if isinstance(node.get(word), Mapping):
            old[word] = _as_version_2(node[word])
    return old


# -- paths ---------------------------------------------------------------------------------------------------------


def _paths(kinds: Iterable[Kind], *, in_schema: bool) -> Iterable[tuple[str, dict[str, Any]]]:
    for kind in kinds:
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        base = "/" + _group_path(kind.group, kind.version)
        base += f"/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"/{kind.plural}"
        for path, methods in ((base, ("get", "post")), (f"{base}/{{name}}", ("get", "put", "patch"))):
            yield path, {method: _operation(method, gvk, in_schema=in_schema) for method in methods}


def _operation(method: str, gvk: dict[str, str], *, in_schema: bool) -> dict[str, Any]:
    parameters = []
    for name in _OPTIONS[method]:
        typed = {"schema": {"type": "string"}} if in_schema else {"type": "string"}
        parameters.append({"name": name, "in": "query", **typed})
    return {
        "x-kubernetes-action": method,
        "x-kubernetes-group-version-kind": gvk,
        "parameters": parameters,
        "responses": {},
    }
