"""Schemas of built-in and custom kinds, compared with the real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.conftest import SHAPE
from tests.apiserver.conftest import definition as custom_definition
from tests.controlplane import ControlPlane
from tests.schemas.gather import gather, pack
from trioperator.apiserver.custom.definitions import kinds_of
from trioperator.apiserver.model import kind_schemas
from trioperator.apiserver.model.kind_schemas import OBJECT_META, Node, definition, resolve, schema_of
from trioperator.apiserver.model.kinds import Catalog, Kind


def builtin(group: str, plural: str) -> Kind:
    kind = Catalog().by_resource((group, plural))
    assert kind is not None
    return kind


def custom(schema: dict[str, Any]) -> Kind:
    obj = custom_definition("shapes", "Shape", schema={"openAPIV3Schema": schema})
    return kinds_of(obj)[0]


def at(kind: Kind, *path: str) -> Node:
    """Return the schema at a path below the kind's schema; ``[]`` stands for items."""
    node = schema_of(kind)
    assert node is not None
    for step in path:
        node = resolve(node)
        node = node["items"] if step == "[]" else node["properties"][step]
    return resolve(node)


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        target = node.get("$ref")
        if isinstance(target, str):
            yield target
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_built_in_kind_has_a_schema() -> None:
    assert [kind.qualified for kind in Catalog() if not schema_of(kind)] == []


def test_references_are_resolved_from_kind_to_container() -> None:
    pods = builtin("", "pods")
    containers = at(pods, "spec", "containers")
    assert (containers["x-kubernetes-list-type"], containers["x-kubernetes-list-map-keys"]) == ("map", ["name"])
    container = at(pods, "spec", "containers", "[]")
    assert (container["type"], container["required"]) == ("object", ["name"])
    assert at(pods, "spec", "containers", "[]", "ports", "[]", "protocol")["default"] == "TCP"
    assert at(pods, "spec", "nodeSelector")["x-kubernetes-map-type"] == "atomic"
    assert at(builtin("apps", "deployments"), "spec", "selector")["x-kubernetes-map-type"] == "atomic"


def test_references_resolve_to_existing_definitions() -> None:
    names = list(kind_schemas._data().definitions)
    targets = {target for name in names for target in references(definition(name))}
    assert {target.rpartition("/")[2] for target in targets} <= set(names)


def test_keywords_of_a_node_override_those_of_its_definition() -> None:
    node = {
        "allOf": [{"$ref": f"#/components/schemas/{OBJECT_META}"}],
        "default": {},
        "x-kubernetes-map-type": "atomic",
    }
    resolved = resolve(node)
    assert (resolved["type"], resolved["default"], resolved["x-kubernetes-map-type"]) == ("object", {}, "atomic")
    assert "x-kubernetes-map-type" not in definition(OBJECT_META)


def test_custom_kinds_have_the_metadata_of_all_kinds() -> None:
    shapes = custom(SHAPE)
    assert at(shapes, "spec", "size") == {"type": "integer", "default": 3, "minimum": 0, "maximum": 100}
    assert at(shapes, "metadata", "ownerReferences")["x-kubernetes-list-map-keys"] == ["uid"]
    assert at(shapes, "kind")["type"] == "string"


def test_embedded_resources_have_metadata_too() -> None:
    inner = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    kind = custom({"type": "object", "properties": {"inner": inner}})
    assert at(kind, "inner", "metadata", "finalizers")["x-kubernetes-list-type"] == "set"


def test_the_data_has_no_descriptions() -> None:
    for name in kind_schemas._data().definitions:
        text = kind_schemas._data().definitions[name]
        assert b'"description":"' not in bytes(text), name


@pytest.mark.e2e
def test_the_data_matches_the_real_server(controlplane: ControlPlane) -> None:
    found = gather(lambda path: json.loads(controlplane.kubectl("get", "--raw", path)))
    theirs = {name: schema for name, schema in found["definitions"].items() if name.startswith("io.k8s.")}
    ours = {name: json.loads(bytes(raw)) for name, raw in kind_schemas._data().definitions.items()}
    assert {name for name in theirs if ours.get(name) != theirs[name]} == set()


def test_the_same_data_produces_the_same_bytes() -> None:
    assert pack({"b": 1, "a": {"d": 2, "c": 3}}) == pack({"a": {"c": 3, "d": 2}, "b": 1})
