"""Tests for :mod:`trioperator.apiserver.bodies.decoding`: what clients send is checked, and is in the stored form."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.bodies import patching
from trioperator.apiserver.bodies.decoding import (
    WriteOptions,
    decode_body,
    decode_configuration,
    decode_object,
    decode_patch,
    read_write_options,
)
from trioperator.apiserver.model.json_text import decode_json
from trioperator.apiserver.model.kinds import Catalog, Kind
from trioperator.apiserver.model.messages import Request
from trioperator.errors import ApiError

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def kind_of(plural: str) -> Kind:
    kind = Catalog().get("", "v1", plural)
    assert kind is not None
    return kind


CONFIG_MAPS = kind_of("configmaps")


def options_of(verb: str = "create", content_type: str = "", user_agent: str = "", **query: str) -> WriteOptions:
    request = Request(method="POST", path="/", content_type=content_type, user_agent=user_agent, query=query)
    return read_write_options(verb, request)


@pytest.mark.parametrize(
    ("query", "user_agent", "manager"),
    [
        ({"fieldManager": "me"}, "kubectl/v1.33", "me"),
        ({}, "kubectl/v1.33 (linux)", "kubectl"),
        ({}, "plain", "plain"),
        ({}, "x" * 200, "x" * 128),
        ({}, "", ""),
    ],
)
def test_the_default_field_manager_is_the_client(query: dict[str, str], user_agent: str, manager: str) -> None:
    assert options_of(user_agent=user_agent, **query).manager == manager


@pytest.mark.parametrize(
    ("verb", "content_type", "query", "message"),
    [
        ("create", "", {"dryRun": "x"}, 'dryRun: Unsupported value: ["x"]: supported values: "All"'),
        ("create", "", {"fieldValidation": "x"}, 'fieldValidation: Unsupported value: "x"'),
        ("update", "", {"fieldManager": "x" * 129}, "fieldManager: Too long: may not be more than 128 bytes"),
        ("update", "", {"fieldManager": "é\n"}, "invalid character U+000A (at position 2)"),
        ("patch", patching.APPLY, {}, "fieldManager: Required value: is required for apply patch"),
        ("patch", patching.JSON, {"force": "true"}, "force: Forbidden: may not be specified for non-apply patch"),
    ],
)
def test_invalid_options_are_rejected(verb: str, content_type: str, query: dict[str, str], message: str) -> None:
    with pytest.raises(ApiError) as caught:
        options_of(verb, content_type, **query)
    assert caught.value.status == 422
    assert message in caught.value.message


@pytest.mark.parametrize(("text", "force"), [("true", True), ("1", True), ("T", True), ("false", False), ("", False)])
def test_an_apply_may_be_forced(text: str, force: bool) -> None:
    assert options_of("patch", patching.APPLY, fieldManager="me", force=text).force is force


@pytest.mark.parametrize(
    ("text", "value"), [(b"1.0", 1), (b"1e3", 1000), (b"1.5", 1.5), (b"1e300", 1e300), (b"-2.0", -2)]
)
def test_whole_numbers_are_integers(text: bytes, value: float) -> None:
    found = decode_json(text)
    assert (found, type(found)) == (value, type(value))


@given(VALUES)
def test_json_round_trips(value: Any) -> None:
    assert decode_json(msgspec.json.encode(value)) == value


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("", b'{"data":{"a":"1"}}'),
        ("application/json; charset=utf-8", b'{"data":{"a":"1"}}'),
        ("application/yaml", b"data:\n  a: '1'\n"),
    ],
)
def test_a_body_is_json_or_yaml(content_type: str, body: bytes) -> None:
    request = Request(method="POST", path="/", content_type=content_type, body=body)
    assert decode_body(CONFIG_MAPS, request) == {"data": {"a": "1"}}


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [("text/plain", b"{}", 415), ("", b"{x", 400), ("", b"", 400), ("application/yaml", b"a: [", 400)],
)
def test_an_unreadable_body_is_rejected(content_type: str, body: bytes, status: int) -> None:
    with pytest.raises(ApiError) as caught:
        decode_body(CONFIG_MAPS, Request(method="POST", path="/", content_type=content_type, body=body))
    assert caught.value.status == status


def test_a_merge_patch_is_an_object_and_a_json_patch_may_be_a_list() -> None:
    assert decode_patch(b'[{"op":"remove","path":"/a"}]', patching.JSON, WriteOptions()) == [
        {"op": "remove", "path": "/a"}
    ]
    with pytest.raises(ApiError, match="cannot unmarshal array into Go value"):
        decode_patch(b"[]", patching.MERGE, WriteOptions())


def test_duplicate_keys_of_a_configuration_warn_or_are_rejected() -> None:
    body = b"data:\n  a: '1'\n  a: '2'\n"
    options = WriteOptions()
    assert decode_configuration(body, options)["data"] == {"a": "2"}
    assert len(options.warnings) == 1
    silent = WriteOptions(field_validation="Ignore")
    decode_configuration(body, silent)
    assert silent.warnings == []
    with pytest.raises(ApiError, match="error strict decoding YAML"):
        decode_configuration(body, WriteOptions(field_validation="Strict"))


def test_unknown_fields_are_dropped_with_a_warning_or_are_rejected() -> None:
    sent = {"data": {"a": "1"}, "nonsense": 1}
    options = WriteOptions()
    obj = decode_object(CONFIG_MAPS, sent, options)
    assert (obj["apiVersion"], obj["kind"], obj["data"]) == ("v1", "ConfigMap", {"a": "1"})
    assert "nonsense" not in obj
    assert options.warnings == ['unknown field "nonsense"']
    with pytest.raises(ApiError, match='strict decoding error: unknown field "nonsense"'):
        decode_object(CONFIG_MAPS, sent, WriteOptions(field_validation="Strict"))


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (None, "Object 'Kind' is missing in 'null'"),
        ([], "cannot unmarshal array into Go value"),
        ({"kind": "Pod", "apiVersion": "v1"}, 'no kind "Pod" is registered'),
        ({"kind": "ConfigMap", "apiVersion": "v2"}, 'registered for version "v2"'),
        ({"data": {"a": 1}}, "cannot be handled as a ConfigMap: json: cannot unmarshal number"),
    ],
)
def test_an_object_of_another_type_is_rejected(sent: Any, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode_object(CONFIG_MAPS, sent, WriteOptions())
    assert caught.value.status == 400
    assert message in caught.value.message
