"""Conformance: embedded resources are decoded and validated like objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import GROUP, Answer, Target, definition, ensure_definition
from tests.apiserver.dry_runs import of_field
from trioperator.apiserver.custom.embedded import EmbeddedError, check_embedded, coerce_embedded
from trioperator.apiserver.custom.schema import compile_schema

EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
HOLDERS = definition("holders", "Holder", schema={"openAPIV3Schema": of_field(EMBEDDED)})


async def embed(target: Target, obj: Any) -> Answer:
    """Create an object that contains the other, as a dry run."""
    await ensure_definition(target, HOLDERS)
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Holder", "metadata": {"name": "a"}, "spec": {"f": obj}}
    path = f"/apis/{GROUP}/v1/namespaces/{target.namespace}/holders"
    return await target.request("POST", path, body, dryRun="All")


def pod(**meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        ({}, "spec.f.apiVersion", "Required value"),
        ({"apiVersion": "v1", "kind": ""}, "spec.f.kind", 'Invalid value: "": must not be empty'),
        (
            {"apiVersion": "a/b/c", "kind": "X"},
            "spec.f.apiVersion",
            'Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
        ),
        ({"apiVersion": "v1", "kind": "a b"}, "spec.f.kind", 'Invalid value: "a b": may have mixed case'),
        (pod(name="a/b"), "spec.f.metadata.name", "Invalid value: \"a/b\": may not contain '/'"),
        (pod(labels={"a b": "c"}), "spec.f.metadata.labels", 'Invalid value: "a b": name part must consist of'),
        (
            pod(ownerReferences=[{"apiVersion": "v1", "kind": "X", "name": "y"}]),
            "spec.f.metadata.ownerReferences.uid",
            'Invalid value: "": must not be empty',
        ),
    ],
)
async def test_an_invalid_embedded_object_is_rejected(target: Target, obj: Any, field: str, message: str) -> None:
    answer = await embed(target, obj)
    assert answer.code == 422
    cause = answer.content["details"]["causes"][0]
    assert cause["field"] == field
    assert cause["message"].startswith(message)


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({"apiVersion": 1, "kind": "X"}, "spec.f.apiVersion: Invalid value: 1: must be a string"),
        (
            {"apiVersion": "v1", "kind": "X", "metadata": "x"},
            'spec.f.metadata: Invalid value: "x": json: cannot unmarshal string into Go value of type v1.ObjectMeta',
        ),
        (
            pod(name=5),
            'spec.f.metadata: Invalid value: {"name":5}: json: cannot unmarshal number into Go struct field '
            "ObjectMeta.name of type string",
        ),
    ],
)
async def test_a_head_of_the_wrong_type_cannot_be_decoded(target: Target, obj: Any, message: str) -> None:
    answer = await embed(target, obj)
    assert answer.code == 400
    assert answer.message == f'Holder in version "v1" cannot be handled as a Holder: {message}'


async def test_unknown_fields_of_embedded_metadata_are_pruned(target: Target) -> None:
    answer = await embed(target, {**pod(name="a", foo=1, creationTimestamp=None), "more": {"foo": 1}})
    assert answer.content["spec"]["f"] == {**pod(name="a"), "more": {"foo": 1}}
    assert answer.headers.get_list("Warning") == ['299 - "unknown field \\"spec.f.metadata.foo\\""']
    assert (await embed(target, {"apiVersion": "v1", "kind": "X", "metadata": None})).content["spec"]["f"] == {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": {},
    }


def test_embedded_objects_in_lists_and_maps_are_found() -> None:
    schema = {
        "type": "object",
        "properties": {"l": {"type": "array", "items": EMBEDDED}, "m": {"additionalProperties": EMBEDDED}},
    }
    node = compile_schema(schema, is_root=True)
    value = {"l": [pod(), {"kind": "X"}], "m": {"k": {"apiVersion": "v1"}}}
    assert [cause.field for cause in check_embedded(node, value)] == ["l[1].apiVersion", "m.k.kind"]
    unknown: list[str] = []
    assert coerce_embedded(node, {"l": [pod(x=1)]}, unknown) == {"l": [pod()]}
    assert unknown == ["l[0].metadata.x"]
    with pytest.raises(EmbeddedError, match=r"m\.k\.kind: Invalid value: 1: must be a string"):
        coerce_embedded(node, {"m": {"k": {"kind": 1}}}, [])
    assert coerce_embedded(node, value, []) is not value
    plain = {"l": [{"kind": "X"}], "other": 1}
    assert coerce_embedded(node, plain, []) is plain
