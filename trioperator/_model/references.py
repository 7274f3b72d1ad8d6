"""Kubernetes references to objects and owners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, cast


class ObjectReference(TypedDict, total=False):
    """Reference to an object."""

    apiVersion: str
    kind: str
    namespace: str
    name: str
    uid: str


class OwnerReference(TypedDict, total=False):
    """Reference to an owner, which is in the same namespace or cluster-scoped."""

    controller: bool
    blockOwnerDeletion: bool
    apiVersion: str
    kind: str
    name: str
    uid: str


def build_object_reference(body: Mapping[str, Any]) -> ObjectReference:
    """Return a reference to the object, without fields that the object does not have."""
    metadata = body.get("metadata") or {}
    reference = {
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
        "namespace": metadata.get("namespace"),
    }
    return cast(ObjectReference, {key: value for key, value in reference.items() if value})


def build_owner_reference(
    body: Mapping[str, Any], *, controller: bool | None = True, block_owner_deletion: bool | None = True
) -> OwnerReference:
    """Return a reference to the object as an owner, without fields that the object does not have."""
    metadata = body.get("metadata") or {}
    reference = {
        "controller": controller,
        "blockOwnerDeletion": block_owner_deletion,
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "name": metadata.get("name"),
        "uid": metadata.get("uid"),
    }
    return cast(OwnerReference, {key: value for key, value in reference.items() if value is not None})
