"""References to objects."""

from __future__ import annotations

from typing import Any

from trioperator._model.body import Body
from trioperator._model.references import build_object_reference, build_owner_reference

BODY: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "namespace": "ns", "uid": "u-1", "labels": {"a": "b"}},
}


def test_an_object_is_referred_to_by_kind_name_and_uid() -> None:
    expected = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u-1", "namespace": "ns"}
    assert build_object_reference(BODY) == expected
    assert build_object_reference(Body(BODY)) == expected


def test_a_cluster_wide_object_is_referred_to_without_a_namespace() -> None:
    body = {**BODY, "metadata": {"name": "w", "uid": "u-1"}}
    assert build_object_reference(body) == {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u-1"}


def test_an_object_that_is_not_stored_yet_has_no_uid_to_refer_to() -> None:
    assert build_object_reference({"kind": "Widget", "metadata": {"name": "w"}}) == {"kind": "Widget", "name": "w"}
    assert build_object_reference({}) == {}


def test_an_owner_controls_its_children_and_waits_for_them() -> None:
    assert build_owner_reference(BODY) == {
        "controller": True,
        "blockOwnerDeletion": True,
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "name": "w",
        "uid": "u-1",
    }


def test_an_owner_may_neither_control_nor_wait() -> None:
    assert build_owner_reference(BODY, controller=False, block_owner_deletion=None) == {
        "controller": False,
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "name": "w",
        "uid": "u-1",
    }
