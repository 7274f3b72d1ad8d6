"""Objects as JSON bytes: their metadata, their copies, and pages of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.levels import TOO_MANY
from trioperator._kube.objects import parse_deep_page, parse_identity, parse_object, parse_page


def pod(name: str = "p", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": "5", **metadata}, "spec": {"a": [1]}}


def page(*items: Any, **fields: Any) -> bytes:
    value = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": list(items)}
    return json.dumps(value | fields).encode()


def test_the_metadata_is_available_without_decoding_the_rest() -> None:
    value = {"kind": "Pod", "apiVersion": "v1"} | pod(
        namespace="ns", generation=3, deletionTimestamp="2020-01-01T00:00:00Z", finalizers=["x"]
    )
    obj = parse_object(json.dumps(value).encode())
    assert (obj.kind, obj.api_version) == ("Pod", "v1")
    assert (obj.uid, obj.name, obj.namespace, obj.resource_version) == ("u-p", "p", "ns", "5")
    assert obj.generation == 3
    assert obj.deleting
    assert obj.decode() == value
    assert "Pod ns/p at 5" in repr(obj)


def test_absent_fields_are_empty() -> None:
    obj = parse_object(b'{"metadata": {"name": null}}')
    assert (obj.uid, obj.name, obj.namespace, obj.resource_version, obj.kind, obj.api_version) == ("",) * 6
    assert obj.generation is None
    assert not obj.deleting
    assert obj.decode() == {"metadata": {"name": None}}


@pytest.mark.parametrize("raw", [b"[]", b"null", b"{}", b'{"metadata": null}', b'{"metadata": {"uid": 5}}'])
def test_invalid_metadata_is_distinguished_from_invalid_json(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        parse_object(raw)
    with pytest.raises(msgspec.DecodeError) as caught:
        parse_object(b'{"metadata": {"na')
    assert not isinstance(caught.value, msgspec.ValidationError)


def test_decoding_returns_a_new_object_each_time() -> None:
    obj = parse_object(json.dumps(pod()).encode())
    obj.decode()["spec"]["a"].append(2)
    assert obj.decode()["spec"] == {"a": [1]}


def test_a_page_has_objects_a_version_and_a_token() -> None:
    parsed = parse_page(page(pod("a"), pod("b"), metadata={"resourceVersion": "9", "continue": "more"}))
    assert [obj.name for obj in parsed.items] == ["a", "b"]
    assert (parsed.resource_version, parsed.next, parsed.broken) == ("9", "more", [])


def test_the_last_page_has_no_token_and_an_empty_list_may_be_null() -> None:
    parsed = parse_page(page(items=None))
    assert (parsed.items, parsed.next) == ([], "")


def test_kind_and_version_are_filled_in_from_the_list() -> None:
    (obj,) = parse_page(page(pod())).items
    assert (obj.kind, obj.api_version) == ("Pod", "v1")
    assert obj.decode() == pod() | {"kind": "Pod", "apiVersion": "v1"}
    (own,) = parse_page(page(pod() | {"kind": "Other", "apiVersion": "x/v2"})).items
    assert own.decode()["kind"] == "Other"
    assert own.decode()["apiVersion"] == "x/v2"


def test_an_object_does_not_keep_its_page_in_memory() -> None:
    body = page(pod("a"), pod("b"))
    parsed = parse_page(body)
    for obj in parsed.items:
        assert type(obj.raw) is bytes
        assert len(obj.raw) < len(body) / 2
        assert json.loads(obj.raw)["metadata"]["name"] == obj.name


def test_an_invalid_object_does_not_invalidate_its_page() -> None:
    parsed = parse_page(page(pod("a"), {"metadata": {"uid": 1}}, None, pod("b")))
    assert [obj.name for obj in parsed.items] == ["a", "b"]
    assert len(parsed.broken) == 2


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"kind": "PodList"}', page(items={}), page(kind="Status")])
def test_a_body_that_is_not_a_list_is_rejected(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse_page(body)


DEEP = b'{"a":[' * TOO_MANY + b"]}" * TOO_MANY  # more levels than any decoder has


def deep_page(*items: bytes, head: bytes = b"") -> bytes:
    head = head or b'"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9", "continue": "c"}'
    return b'{%b, "more": %b, "items": [%b]}' % (head, DEEP, b", ".join(items))


def deep(name: bytes, metadata: bytes = b"") -> bytes:
    return b'{"metadata": {"name": "%b", "uid": "u-%b"%b}, "spec": %b}' % (name, name, metadata, DEEP)


def test_one_deep_object_does_not_invalidate_its_page() -> None:
    body = deep_page(json.dumps(pod("a")).encode(), deep(b"bad"), json.dumps(pod("b")).encode())
    with pytest.raises(RecursionError):
        parse_page(body)
    parsed = parse_deep_page(body)
    assert [(obj.name, obj.kind, obj.api_version) for obj in parsed.items] == [("a", "Pod", "v1"), ("b", "Pod", "v1")]
    assert (parsed.resource_version, parsed.next, parsed.size) == ("9", "c", len(body))
    (broken,) = parsed.broken
    assert broken.identity is not None
    assert (str(broken.identity), broken.identity.key) == ("Pod bad", "u-bad")
    assert broken.problem == "it is nested too deeply"


def test_an_object_is_identified_even_if_its_metadata_is_deep() -> None:
    fields = b', "managedFields": %b, "namespace": "ns", "resourceVersion": "7", "deletionTimestamp": "2020"' % DEEP
    identity = parse_identity(b'{"kind": "Pod", "apiVersion": "v1", ' + deep(b"bad", fields)[1:])
    assert identity is not None
    assert (str(identity), identity.key, identity.resource_version) == ("Pod ns/bad", "u-bad", "7")
    assert identity.deleting
    assert identity.decode()["metadata"]["name"] == "bad"


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"{}", b'{"metadata": null}', b'{"metadata": {"name": 5}}', DEEP])
def test_what_has_no_name_is_not_identified(raw: bytes) -> None:
    assert parse_identity(raw) is None


@pytest.mark.parametrize("body", [b"", DEEP, b"[%b]" % DEEP, deep_page(deep(b"a"), head=b'"kind": "List"')])
def test_a_deep_body_that_is_not_a_list_is_rejected(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        parse_deep_page(body)


def test_a_deep_page_without_objects_is_empty() -> None:
    assert parse_deep_page(b'{"metadata": {}, "items": null, "more": %b}' % DEEP).items == []


def test_the_key_is_the_uid_or_else_the_name() -> None:
    assert parse_object(b'{"metadata": {"name": "a", "namespace": "ns", "uid": "u"}}').key == "u"
    assert parse_object(b'{"metadata": {"name": "a", "namespace": "ns"}}').key == "ns/a"
