"""Views of objects."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from trioperator._model.body import Annotations, Body, Labels, Meta, Spec, Status
from trioperator._model.lazy_object import LazyObject

RAW: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {
        "name": "w",
        "namespace": "ns",
        "uid": "u-1",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"app": "x"},
        "annotations": {"note": "y"},
    },
    "spec": {"size": 1, "items": [1]},
    "status": {"phase": "Ready"},
}


def test_a_body_is_a_mapping_like_the_object() -> None:
    body = Body(RAW)
    assert body == RAW
    assert body == Body(dict(RAW))
    assert body != {}
    assert dict(body) == RAW
    assert list(body) == list(RAW)
    assert len(body) == 5
    assert "spec" in body
    assert "data" not in body
    assert body["spec"] is RAW["spec"]
    assert body.get("kind") == "Widget"
    assert body.get("data") is None
    assert body.get("data", 5) == 5
    assert list(body.items()) == list(RAW.items())
    assert list(body.values()) == list(RAW.values())
    assert body.keys() == RAW.keys()
    assert repr(body) == repr(RAW)
    with pytest.raises(KeyError):
        body["data"]


def test_the_sections_are_views() -> None:
    body = Body(RAW)
    assert isinstance(body.spec, Spec)
    assert isinstance(body.status, Status)
    assert isinstance(body.meta, Meta)
    assert isinstance(body.metadata, Meta)
    assert isinstance(body.meta.labels, Labels)
    assert isinstance(body.meta.annotations, Annotations)
    assert body.spec == {"size": 1, "items": [1]}
    assert body.spec["items"] == [1]
    assert dict(body.spec) == RAW["spec"]
    assert {**body.status} == {"phase": "Ready"}
    assert body.meta == RAW["metadata"]
    assert body.meta == body.metadata
    assert body.meta.labels == {"app": "x"}
    assert body.meta.annotations["note"] == "y"
    assert repr(body.spec) == repr(RAW["spec"])
    assert sorted(body.spec.items(), key=str) == sorted(RAW["spec"].items(), key=str)
    assert list(body.spec.values()) == [1, [1]]
    assert body.spec.keys() == {"size", "items"}
    assert "size" in body.spec
    assert len(body.spec) == 2


def test_the_common_metadata_are_attributes() -> None:
    meta = Body(RAW).meta
    assert (meta.name, meta.namespace, meta.uid) == ("w", "ns", "u-1")
    assert meta.creation_timestamp == "2026-01-02T03:04:05Z"
    assert meta.deletion_timestamp is None


@pytest.mark.parametrize("raw", [{}, {"metadata": None, "spec": None, "status": None}, {"metadata": {"labels": None}}])
def test_missing_sections_are_empty(raw: dict[str, Any]) -> None:
    body = Body(raw)
    for view in (body.spec, body.status, body.meta.labels, body.meta.annotations):
        assert view == {}
        assert not view
        assert list(view) == []
        assert view.get("x") is None
        assert view.get("x", "d") == "d"
        assert "x" not in view
        with pytest.raises(KeyError):
            view["x"]
    assert body.meta.name is None
    assert body.meta.namespace is None
    assert body.meta.uid is None
    assert body.meta.creation_timestamp is None


def test_a_section_that_is_not_a_mapping_is_empty() -> None:
    assert Body({"spec": "text", "metadata": ["x"]}).spec == {}
    assert Body({"metadata": ["x"]}).meta.labels == {}


def test_views_follow_their_body_to_a_newer_object() -> None:
    body = Body(RAW)
    spec, labels, meta = body.spec, body.meta.labels, body.meta
    body._replace_raw({"metadata": {"name": "w", "labels": {"app": "z"}}, "spec": {"size": 2}})
    assert spec == {"size": 2}
    assert labels == {"app": "z"}
    assert meta.uid is None
    assert body["spec"] == {"size": 2}
    body._replace_raw({})
    assert spec == {}


def test_views_are_read_only() -> None:
    body = Body(RAW)
    views: list[Any] = [body, body.spec, body.status, body.meta, body.meta.labels, body.meta.annotations]
    for view in views:
        with pytest.raises(TypeError):
            view["x"] = 1
        with pytest.raises(TypeError):
            del view["x"]


def test_views_are_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(Body(RAW))
    with pytest.raises(TypeError):
        hash(Body(RAW).spec)


def test_a_body_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Body(RAW).anything = 1  # type: ignore[attr-defined]


def make() -> tuple[dict[str, Any], Body]:
    raw = copy.deepcopy(RAW)
    return raw, Body(raw, private=True)


@pytest.mark.parametrize(
    "find",
    [
        lambda body: body["spec"]["items"],
        lambda body: body.get("spec")["items"],
        lambda body: body.spec["items"],
        lambda body: body.spec.get("items"),
        lambda body: dict(body)["spec"]["items"],
        lambda body: dict(body.spec)["items"],
        lambda body: {**body.spec}["items"],
        lambda body: dict(body.spec.items())["items"],
        lambda body: list(body.spec.values())[1],
        lambda body: dict(body.items())["spec"]["items"],
        lambda body: list(body.values())[3]["items"],
    ],
)
def test_nobody_can_change_an_object_through_a_private_body(find: Callable[[Body], Any]) -> None:
    raw, body = make()
    items = find(body)
    assert items == [1]
    items.append(2)
    assert raw == RAW
    assert body.spec["items"] == [1, 2]  # as it is with any dictionary
    assert find(body) == [1, 2]
    assert body != RAW
    assert "[1, 2]" in repr(body)
    assert "[1, 2]" in repr(body.spec)
    body._replace_raw(raw)
    assert find(body) == [1]


def test_a_private_body_shows_all_changes_in_one_section() -> None:
    raw, body = make()
    body["spec"]["size"] = 5
    body.meta["labels"]["new"] = "yes"
    body["metadata"]["annotations"]["note"] = "z"
    assert body.spec == {"size": 5, "items": [1]}
    assert body.spec["size"] == body.spec.get("size") == 5
    assert body.meta.labels == {"app": "x", "new": "yes"}
    assert dict(body.meta.annotations) == {"note": "z"}
    assert raw == RAW


def test_nothing_is_copied_unless_a_list_or_a_dictionary_is_handed_out() -> None:
    _, body = make()
    assert body.spec["size"] == body.spec.get("size") == 1
    assert body.spec.get("absent", []) == []
    assert dict(body.meta.labels.items()) == {"app": "x"}
    assert body["kind"] == "Widget"
    assert body.meta.name == "w"
    assert len(body.spec) == 2
    assert list(body.status.values()) == ["Ready"]
    assert body._own == {}


def make_large() -> LazyObject:
    raw = msgspec.json.encode(RAW)
    return LazyObject.of(raw, lambda: msgspec.json.decode(raw), soon=None)


def test_a_large_object_is_safe_from_those_who_get_a_private_body_of_it() -> None:
    raw = make_large()
    body = Body(raw, private=True)
    body.spec["items"].append(2)
    body["status"]["phase"] = "x"
    for section in body.values():
        if isinstance(section, dict):
            section.clear()
    assert raw == RAW


def test_a_private_body_follows_its_object_from_small_to_large_and_back() -> None:
    body = Body(RAW, private=True)
    spec = body.spec
    assert spec["items"] == [1]
    large = make_large()
    body._replace_raw(large)
    spec["items"].append(2)
    assert large == RAW
    body._replace_raw({"spec": {"items": [3]}})
    assert (spec["items"], dict(body)) == ([3], {"spec": {"items": [3]}})


def test_a_private_body_keeps_nothing_decoded_of_a_large_object_at_rest() -> None:
    raw = make_large()
    body = Body(raw, private=True)
    assert body.spec["items"] == [1]
    assert isinstance(body._own, LazyObject)
    for found in (raw, body._own):
        found.rest()
        assert not found.is_decoded
    assert body == RAW


def test_who_looks_at_a_private_body_of_a_large_object_decodes_nothing_but_a_copy() -> None:
    large = make_large()
    large.rest()
    body = Body(large, private=True)
    assert body.spec["items"] == [1]
    assert (body.get("other"), body.meta.name, "spec" in body, len(body)) == (None, "w", True, len(list(body)))
    assert body == dict(body.items())
    assert not large.is_decoded
