"""Tests for :mod:`trioperator.apiserver.reading.openapi_protobuf`: documents in protobuf are those in JSON.

kubectl itself reads them in ``tests/apiserver/test_kubectl.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.apiserver.conftest import GROUP, Target
from trioperator.apiserver.bodies.protobuf import _split
from trioperator.apiserver.reading.openapi_protobuf import encode_document

OLD = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
NEW = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def fields(data: Any) -> dict[int, list[Any]]:
    """Return the values of a message by their numbers."""
    found: dict[int, list[Any]] = {}
    for number, value in _split(data):
        found.setdefault(number, []).append(value if isinstance(value, int) else bytes(value))
    return found


def named(data: Any) -> Iterator[tuple[str, dict[int, list[Any]]]]:
    """Yield the entries of a map."""
    for entry in fields(data)[1]:
        parts = fields(entry)
        yield parts[1][0].decode(), fields(parts[2][0])


def schema_of(**schema: Any) -> dict[int, list[Any]]:
    """Return the fields of an encoded schema."""
    document = fields(encode_document({"definitions": {"a": schema}}))
    return dict(named(document[9][0]))["a"]


def test_keywords_are_fields() -> None:
    found = schema_of(type="string", format="date", pattern="^a", minLength=1, enum=["a", 1], required=["b", "c"])
    assert found[22] == [b"\n\x06string"]
    assert (found[2], found[13], found[12]) == ([b"date"], [b"^a"], [1])
    assert [fields(item)[2] for item in found[20]] == [[b'"a"'], [b"1"]]
    assert found[19] == [b"b", b"c"]


def test_numbers_may_be_negative_large_and_fractions() -> None:
    found = schema_of(minimum=-0.5, maxLength=2**40, minItems=-1)
    assert struct.unpack("<d", found[9][0].to_bytes(8, "little")) == (-0.5,)
    assert (found[11], found[15]) == ([2**40], [2**64 - 1])


def test_schemas_are_nested() -> None:
    found = schema_of(
        properties={"a": {"type": "array", "items": {"$ref": "#/definitions/x"}}}, additionalProperties=True
    )
    ((name, inner),) = named(found[25][0])
    assert (name, inner[23]) == ("a", [b"\n\x11\n\x0f#/definitions/x"])
    assert found[21] == [b"\x10\x01"]
    (choice,) = schema_of(additionalProperties={"type": "string"})[21]
    assert fields(fields(choice)[1][0])[22] == [b"\n\x06string"]


def test_extensions_are_yaml() -> None:
    (entry,) = schema_of(**{"x-kubernetes-group-version-kind": [{"kind": "A"}]})[31]
    name, value = fields(entry)[1][0], fields(entry)[2][0]
    assert (name, fields(value)[2]) == (b"x-kubernetes-group-version-kind", [b'[{"kind":"A"}]'])


@pytest.mark.parametrize("accept", [OLD, NEW, f"application/x, {OLD}"])
async def test_the_document_has_all_kinds_in_protobuf(target: Target, accept: str) -> None:
    response = await target.client.get("/openapi/v2", headers={"Accept": accept})
    assert (response.status_code, response.headers["Content-Type"]) == (200, NEW)
    document = fields(response.content)
    assert document[1] == [b"2.0"]
    definitions = dict(named(document[9][0]))
    reverse = ".".join(reversed(GROUP.split(".")))
    for name, kind in (("io.k8s.api.apps.v1.Deployment", "Deployment"), (f"{reverse}.v1.Shape", "Shape")):
        extensions = [fields(entry) for entry in definitions[name][31]]
        (gvk,) = (fields(item[2][0])[2][0] for item in extensions if item[1] == [b"x-kubernetes-group-version-kind"])
        assert kind.encode() in gvk


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/apis/apps/v1"])
async def test_other_forms_are_not_acceptable(target: Target, path: str) -> None:
    assert (await target.client.get(path, headers={"Accept": "text/html"})).status_code == 406


@pytest.mark.parametrize("accept", ["application/json", "*/*", "text/html,*/*", f"application/json, {OLD}"])
async def test_the_document_is_json_where_that_comes_first(target: Target, accept: str) -> None:
    response = await target.client.get("/openapi/v2", headers={"Accept": accept})
    assert msgspec.json.decode(response.content)["swagger"] == "2.0"
