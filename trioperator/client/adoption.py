"""Owners of the objects that handlers write."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

from trioperator.handling.context import current_body
from trioperator.handling.typed import encode_object
from trioperator.kits import _clients, hierarchies
from trioperator.model.custom_kind import find_kind
from trioperator.model.jsontypes import JsonObject
from trioperator.model.resource import Resource

__all__ = ["HANDLED", "Default", "adopt", "find_handled"]


class Default(enum.Enum):
    """Default of ``owner=``: the object that is being handled, if any."""

    HANDLED = "the handled object"

    def __repr__(self) -> str:
        return self.name


HANDLED: Final = Default.HANDLED


def find_handled() -> Mapping[str, Any] | None:
    """Return the object that is being handled; None outside of handlers of objects."""
    try:
        return current_body()
    except LookupError:
        return None


def adopt(obj: JsonObject, owner: object, *, resource: Resource) -> None:
    """Make *obj* a child of *owner*, as :func:`trioperator.adopt` does: reference, name, namespace and labels.

    By default the owner is the handled object; nothing happens outside of handlers, for None, and for the handled
    object itself. Raises ValueError where Kubernetes would delete the child at once: a namespaced owner has children
    in its own namespace only.
    """
    handled = owner is HANDLED
    if find_kind(type(owner)) is not None:
        owner = _encode_owner(owner)
    parent = find_handled() if handled else None if owner is None else _clients.as_owner(owner)
    if parent is None or (handled and _is_same(obj, parent)):
        return
    metadata = parent.get("metadata") or {}
    namespace = metadata.get("namespace")
    own = (obj.get("metadata") or {}).get("namespace")
    if namespace and (resource.namespaced is False or (own or namespace) != namespace):
        where = f"in the namespace {own}" if resource.namespaced is not False else "which is cluster-scoped"
        raise ValueError(
            f"{parent.get('kind')} {namespace}/{metadata.get('name')} cannot own a {resource.kind or resource} {where}:"
            " its children are in its own namespace. Pass owner=None."
        )
    hierarchies.adopt(obj, parent)


def _encode_owner(owner: object) -> JsonObject:
    found = encode_object(owner)
    if not (found.get("metadata") or {}).get("uid"):
        raise TypeError(
            f"{type(owner).__qualname__} cannot be an owner without metadata.uid: read it from the API server, as a"
            " class with a field metadata: crds.ObjectMeta."
        )
    return found


def _is_same(obj: JsonObject, parent: Mapping[str, Any]) -> bool:
    """Return whether *obj* is the parent itself, perhaps in another version, or without its namespace."""
    mine, its = obj.get("metadata") or {}, parent.get("metadata") or {}
    return (
        obj.get("kind") == parent.get("kind")
        and _group(obj) == _group(parent)
        and mine.get("name") == its.get("name")
        and mine.get("namespace", its.get("namespace")) == its.get("namespace")
    )


def _group(obj: Mapping[str, Any]) -> str:
    return str(obj.get("apiVersion") or "").rpartition("/")[0]
