"""Conformance: OpenAPI documents with the kinds and schemas that clients use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.conftest import GROUP, Target

CORE, APPS = "/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1"


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def without_descriptions(node: Any) -> Any:
    if isinstance(node, list):
        return [without_descriptions(item) for item in node]
    if isinstance(node, dict):
        words = {"description"} if isinstance(node.get("description"), str) else set()
        return {key: without_descriptions(value) for key, value in node.items() if key not in words}
    return node


async def test_the_index_lists_the_document_of_each_group_and_version(target: Target) -> None:
    paths = (await target.get("/openapi/v3")).content["paths"]
    for path in ("api/v1", "apis/apps/v1", f"apis/{GROUP}/v1"):
        document = await target.get(paths[path]["serverRelativeURL"])
        assert (document.code, document.content["openapi"]) == (200, "3.0.0")


@pytest.mark.parametrize("path", [CORE, APPS, f"/openapi/v3/apis/{GROUP}/v1", "/openapi/v2"])
async def test_a_document_contains_all_schemas_that_it_references(target: Target, path: str) -> None:
    document = (await target.get(path)).content
    schemas = document["definitions"] if "definitions" in document else document["components"]["schemas"]
    prefix = "#/definitions/" if "definitions" in document else "#/components/schemas/"
    assert {target.removeprefix(prefix) for target in references(schemas)} <= set(schemas)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (CORE, "io.k8s.api.core.v1.Container"),
        (CORE, "io.k8s.api.core.v1.ServicePort"),
        (APPS, "io.k8s.api.apps.v1.DeploymentSpec"),
        (APPS, "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
        (APPS, "io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
    ],
)
async def test_schemas_of_built_in_types_are_served(target: Target, path: str, name: str) -> None:
    schema = without_descriptions((await target.get(path)).content["components"]["schemas"][name])
    words = {
        "io.k8s.api.core.v1.Container": lambda: schema["properties"]["ports"]["x-kubernetes-list-map-keys"],
        "io.k8s.api.core.v1.ServicePort": lambda: schema["properties"]["protocol"],
        "io.k8s.api.apps.v1.DeploymentSpec": lambda: schema["required"],
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": lambda: schema["properties"]["finalizers"],
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString": lambda: schema["oneOf"],
    }[name]()
    assert (
        words
        == {
            "io.k8s.api.core.v1.Container": ["containerPort", "protocol"],
            "io.k8s.api.core.v1.ServicePort": {
                "default": "TCP",
                "type": "string",
                "enum": ["SCTP", "TCP", "UDP"],
            },
            "io.k8s.api.apps.v1.DeploymentSpec": ["selector", "template"],
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {
                "items": {"default": "", "type": "string"},
                "type": "array",
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            },
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString": [{"type": "integer"}, {"type": "string"}],
        }[name]
    )


async def test_version_2_has_its_own_keywords(target: Target) -> None:
    definitions = without_descriptions((await target.get("/openapi/v2")).content["definitions"])
    container = definitions["io.k8s.api.core.v1.Container"]["properties"]
    assert container["resources"] == {"$ref": "#/definitions/io.k8s.api.core.v1.ResourceRequirements"}
    assert container["imagePullPolicy"] == {"type": "string", "enum": ["Always", "IfNotPresent", "Never"]}
    assert definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]["type"] == "string"
    assert definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] == {
        "type": "string",
        "format": "int-or-string",
    }
    shape = definitions["dev.conformance.v1.Shape"]
    assert shape["x-kubernetes-group-version-kind"] == [{"group": GROUP, "version": "v1", "kind": "Shape"}]
    assert shape["properties"]["spec"]["properties"]["size"]["type"] == "integer"


async def test_version_2_lists_no_properties_where_unknown_fields_are_preserved(target: Target) -> None:
    definitions = (await target.get("/openapi/v2")).content["definitions"]
    gvk = {"group": GROUP, "version": "v1", "kind": "Global"}
    assert definitions["dev.conformance.v1.Global"] == {"type": "object", "x-kubernetes-group-version-kind": [gvk]}
    spec = definitions["dev.conformance.v1.Shape"]["properties"]["spec"]["properties"]
    assert spec["free"] == {"x-kubernetes-preserve-unknown-fields": True}


async def test_custom_kinds_have_their_schemas_and_metadata(target: Target) -> None:
    document = (await target.get(f"/openapi/v3/apis/{GROUP}/v1")).content
    shape = without_descriptions(document["components"]["schemas"]["dev.conformance.v1.Shape"])
    assert shape["properties"]["spec"]["properties"]["color"] == {"type": "string", "enum": ["red", "blue"]}
    assert shape["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]
    path = document["paths"][f"/apis/{GROUP}/v1/namespaces/{{namespace}}/shapes"]
    names = {parameter["name"] for parameter in path["post"]["parameters"]}
    assert {"dryRun", "fieldValidation"} <= names


async def test_the_fields_that_all_custom_objects_have_are_described(target: Target) -> None:
    document = (await target.get(f"/openapi/v3/apis/{GROUP}/v1")).content
    properties = document["components"]["schemas"]["dev.conformance.v1.Shape"]["properties"]
    assert properties["apiVersion"]["description"].startswith("APIVersion defines the ")
    assert properties["kind"]["description"].startswith("Kind is ")
    assert "etadata" in properties["metadata"]["description"]
