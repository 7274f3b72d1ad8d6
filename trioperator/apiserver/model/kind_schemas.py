"""Schemas of all served kinds, built-in and custom, as JSON schemas with references.

Schemas of built-in kinds come from the real server's OpenAPI documents (see ``tests/schemas``). They are loaded on
first use, and each definition is decoded on demand. Pure but for that.

A node is a mapping with the keywords of JSON schema and the ``x-kubernetes-*`` extensions. A node may be a reference to
a definition: always read it through :func:`resolve`.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .kinds import Kind

Node = Mapping[str, Any]

DATA: Final = pathlib.Path(__file__).with_name("data") / "schemas.json.gz"
OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
REFERENCE: Final = "#/components/schemas/"
_HEAD: Final[Node] = {
    "apiVersion": {"type": "string", "description": "APIVersion defines the group and version of the object's schema."},
    "kind": {"type": "string", "description": "Kind is the type of the object."},
}

# The schemas have no descriptions; these are shown by `kubectl explain KIND.metadata`.
_META_DESCRIPTIONS: Final = {
    "annotations": "Annotations are free text for tools, by key.",
    "creationTimestamp": "CreationTimestamp is a timestamp of the server, when it created the object.",
    "deletionTimestamp": "DeletionTimestamp is set when deletion begins: the object may be gone from then on.",
    "finalizers": "Finalizers must all be removed before the object is gone.",
    "generateName": "GenerateName is the beginning of a name that the server completes.",
    "generation": "Generation counts the changes of the specification.",
    "labels": "Labels are short texts to select objects by, by key.",
    "managedFields": "ManagedFields tell who manages which fields.",
    "name": "Name is unique among the objects of the kind in the namespace.",
    "namespace": "Namespace is the space within which the name is unique.",
    "ownerReferences": "OwnerReferences name the objects with which this one is deleted.",
    "resourceVersion": "ResourceVersion changes with each write.",
    "uid": "UID is unique among all objects there ever are.",
}


class _Data(msgspec.Struct):
    kinds: dict[str, str]
    definitions: dict[str, msgspec.Raw]
    pointers: dict[str, list[str]]


def schema_of(kind: Kind) -> Node | None:
    """Return the schema of the kind's objects as clients see them, or None if there is none.

    It covers the whole object: ``apiVersion``, ``kind`` and ``metadata`` are in it for custom kinds, too.
    """
    if kind.custom is None:
        name = definition_of(kind)
        return None if name is None else definition(name)
    return None if kind.custom.schema is None else _with_metadata(kind.custom.schema)


def resolve(node: Node) -> Node:
    """Return the node merged with the definition that it refers to; its own keywords take precedence.

    Objects within custom objects get the metadata that all objects have.
    """
    target = reference(node)
    if target is None:
        return _with_metadata(node) if node.get("x-kubernetes-embedded-resource") else node
    own = {word: value for word, value in node.items() if word not in {"$ref", "allOf", "default"}}
    found = definition(target)
    if "default" in node:
        own["default"] = node["default"]
    return {**found, **own} if own else found


def reference(node: Node) -> str | None:
    """Return the name of the definition that the node refers to."""
    if "$ref" not in node:
        parts = node.get("allOf")
        if not (isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], Mapping)):
            return None
        node = parts[0]
    target = node.get("$ref")
    return str(target).removeprefix(REFERENCE) if target else None


@functools.cache
def definition(name: str) -> Node:
    """Return the built-in definition of that name. Raises KeyError if there is none."""
    found: dict[str, Any] = msgspec.json.decode(_data().definitions[name])
    for field, text in _META_DESCRIPTIONS.items() if name == OBJECT_META else ():
        found["properties"][field]["description"] = text
    return found


def pointers_of(name: str) -> frozenset[str]:
    """Return the scalar fields of the definition that are pointers in Go: of all others, zeros are omitted."""
    return frozenset(_data().pointers.get(name, ()))


def definition_of(kind: Kind) -> str | None:
    """Return the name of the built-in kind's definition."""
    return _data().kinds.get(f"{kind.group}/{kind.version}/{kind.kind}")


@functools.cache
def _data() -> _Data:
    import gzip

    return msgspec.json.decode(gzip.decompress(DATA.read_bytes()), type=_Data)


def _with_metadata(schema: Node) -> Node:
    metadata = {"allOf": [{"$ref": f"{REFERENCE}{OBJECT_META}"}], "description": "Standard object's metadata."}
    properties = {**_HEAD, **(schema.get("properties") or {}), "metadata": metadata}
    return {**schema, "properties": properties}
