"""Decoding of protobuf bodies, and errors for malformed ones."""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver import Cluster
from trioperator.apiserver.bodies.protobuf import MEDIA_TYPE, decode_protobuf

# What is encoded: the number of a field and its value; a list is a message.
Fields: TypeAlias = "list[tuple[int, int | float | str | bytes | Fields]]"


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    result = b""
    while number >= 0x80:
        result += bytes([number & 0x7F | 0x80])
        number >>= 7
    return result + bytes([number])


def encode(fields: Fields) -> bytes:
    """Encode a message."""
    result = b""
    for number, value in fields:
        if isinstance(value, int):
            result += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            result += varint(number << 3 | 1) + struct.pack("<d", value)
        else:
            data = encode(value) if isinstance(value, list) else value.encode() if isinstance(value, str) else value
            result += varint(number << 3 | 2) + varint(len(data)) + data
    return result


def envelop(version: str, kind: str, fields: Fields) -> bytes:
    """Encode an object as Go clients do."""
    return b"k8s\x00" + encode([(1, [(1, version), (2, kind)]), (2, encode(fields)), (3, ""), (4, "")])


META: Fields = [(1, "a"), (2, ""), (3, ""), (7, 0), (8, []), (11, [(1, "x"), (2, "y")]), (11, [(1, "empty")])]
PLAIN_META = {"name": "a", "labels": {"x": "y", "empty": ""}}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            envelop("v1", "ConfigMap", [(1, META), (2, [(1, "k"), (2, "v")]), (3, [(1, "b"), (2, b"\xff")]), (4, 0)]),
            {"metadata": PLAIN_META, "data": {"k": "v"}, "binaryData": {"b": "/w=="}, "immutable": False},
        ),
        (
            envelop("v1", "Pod", [(1, META), (2, [(1, [(1, "vol"), (2, [(19, [(1, [(1, "cm")])])])])])]),
            {"metadata": PLAIN_META, "spec": {"volumes": [{"name": "vol", "configMap": {"name": "cm"}}]}},
        ),
        (
            envelop("apps/v1", "Deployment", [(1, []), (2, [(1, 0), (4, [(2, [(1, [(1, 1), (3, "25%")])])])])]),
            {"spec": {"replicas": 0, "strategy": {"rollingUpdate": {"maxUnavailable": "25%"}}}},
        ),
        (
            envelop("policy/v1", "PodDisruptionBudget", [(2, [(1, [(1, 0), (2, 3)])])]),
            {"spec": {"minAvailable": 3}},
        ),
        (
            envelop("v1", "ResourceQuota", [(2, [(1, [(1, "pods"), (2, [(1, "5")])])])]),
            {"spec": {"hard": {"pods": "5"}}},
        ),
        (
            envelop("scheduling.k8s.io/v1", "PriorityClass", [(2, -5)]),
            {"value": -5},
        ),
        (
            envelop("coordination.k8s.io/v1", "Lease", [(2, [(1, "me"), (4, [(1, 1_700_000_000), (2, 5_000)])])]),
            {"spec": {"holderIdentity": "me", "renewTime": "2023-11-14T22:13:20.000005Z"}},
        ),
        (
            envelop("v1", "Event", [(6, [(1, 1_700_000_000)])]),
            {"firstTimestamp": "2023-11-14T22:13:20Z"},
        ),
        (
            envelop(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                [(2, [(7, [(4, [(1, [(29, [(1, "f"), (2, [(8, [(1, b'{"a":1}')]), (11, 1.5), (38, 1)])])])])])])],
            ),
            {
                "spec": {
                    "versions": [
                        {
                            "schema": {
                                "openAPIV3Schema": {
                                    "properties": {
                                        "f": {
                                            "default": {"a": 1},
                                            "minimum": 1.5,
                                            "x-kubernetes-preserve-unknown-fields": True,
                                        }
                                    }
                                }
                            }
                        }
                    ]
                }
            },
        ),
        (envelop("apps/v1", "DeleteOptions", [(1, 0), (4, "Foreground")]), None),
        (envelop("v1", "Secret", [(99, "of a newer version"), (98, 5), (3, "Opaque")]), {"type": "Opaque"}),
    ],
)
def test_messages_are_decoded_to_their_json_form(body: bytes, expected: dict[str, Any] | None) -> None:
    obj = decode_protobuf(body)
    if expected is None:
        expected = {"gracePeriodSeconds": 0, "propagationPolicy": "Foreground"}
    found = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind"}}
    found = _without_empty(found)
    assert {key: found[key] for key in expected} == expected


def _without_empty(value: Any) -> Any:
    """Return the value without empty objects: Go clients send non-pointer structs."""
    if isinstance(value, dict):
        return {key: _without_empty(item) for key, item in value.items() if item != {}}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{}", "does not start with the magic number"),
        (b"k8s\x00\xff", "truncated"),
        (b"k8s\x00", "no protobuf message for kind '' in version ''"),
        (envelop("v1", "Nonsense", []), "no protobuf message for kind 'Nonsense' in version 'v1'"),
        (envelop("v1", "Pod", [(1, 5)]), "got a number"),
        (envelop("v1", "Pod", [(1, [(1, b"\xff")])]), "not valid UTF-8"),
        (envelop("scheduling.k8s.io/v1", "PriorityClass", [(2, "x")]), "expected a number"),
        (envelop("v1", "Event", [(6, [(1, 1 << 60)])]), "out of range"),
    ],
)
def test_malformed_bodies_are_rejected_with_a_reason(body: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode_protobuf(body)


def test_a_message_that_is_nested_too_deeply_is_rejected() -> None:
    schema: Fields = []
    for _ in range(300):
        schema = [(28, schema)]  # not: {not: ...}
    fields: Fields = [(2, [(7, [(4, [(1, schema)])])])]
    with pytest.raises(ValueError, match="too deeply"):
        decode_protobuf(envelop("apiextensions.k8s.io/v1", "CustomResourceDefinition", fields))


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_decoded_or_rejected(data: bytes, is_inside: bool) -> None:
    body = envelop("v1", "Pod", [(1, data), (2, data)]) if is_inside else b"k8s\x00" + data
    try:
        decode_protobuf(body)
    except ValueError:
        pass


async def test_a_body_in_protobuf_is_stored(cluster: Cluster) -> None:
    async with cluster.client() as client:
        path, headers = "/api/v1/namespaces/default/configmaps", {"Content-Type": MEDIA_TYPE}
        body = envelop("v1", "ConfigMap", [(1, META), (2, [(1, "k"), (2, "v")])])
        answer: httpx.Response = await client.post(path, content=body, headers=headers)
        assert (answer.status_code, answer.headers["Content-Type"]) == (201, "application/json")
        assert (await cluster.get("cm", "a"))["data"] == {"k": "v"}
        answer = await client.post(path, content=body[:-9], headers=headers)
        assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")
        options = envelop("v1", "DeleteOptions", [(2, [(1, "00000000-0000-0000-0000-000000000000")])])
        answer = await client.request("DELETE", f"{path}/a", content=options, headers=headers)
        assert (answer.status_code, answer.json()["reason"]) == (409, "Conflict")
