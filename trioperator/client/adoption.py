"""Owners of the objects that handlers write."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Any, Final

from trioperator._handling.arguments.context import current_body
from trioperator._handling.handlers.typed import encode_object
from trioperator._model.custom_kind import find_kind
from trioperator._model.jsontypes import JsonObject
from trioperator._model.resource import Resource
from trioperator.errors import ForeignChildError
from trioperator.helpers import _clients, hierarchies


class Default(enum.Enum):
    """Type of the default of ``owner=``, which stands for the object that is being handled, if any."""

    HANDLED = "the handled object"

    def __repr__(self) -> str:
        return self.name


HANDLED: Final = Default.HANDLED
#: Metadata with which an apply can only create an object. If the object exists, there is a conflict: no object has the
#: version of an empty store. If it does not exist, the server ignores the version.
CREATE_ONLY: Final = {"resourceVersion": "1"}


def find_handled() -> Mapping[str, Any] | None:
    """Return the object that is being handled; None outside of handlers of objects."""
    try:
        return current_body()
    except LookupError:
        return None


def check_owner(obj: Mapping[str, Any], uid: str, *, what: object) -> None:
    """Raise ForeignChildError unless the existing object is owned by the object with the *uid*."""
    references = (obj.get("metadata") or {}).get("ownerReferences") or ()
    if not any(isinstance(each, Mapping) and each.get("uid") == uid for each in references):
        raise ForeignChildError(
            f"{what} exists, and is not owned by the object whose child it should be: it is left as it is. Choose"
            " another name, or pass adopt=True to take it over, or owner=None if it should have no owner."
        )


def adopt(obj: JsonObject, owner: object, *, resource: Resource, labels: Collection[str] = ()) -> str | None:
    """Make *obj* a child of *owner*: reference, name, namespace, and the owner's labels that are in *labels*.

    Labels decide which Pods get the traffic of a Service, and what a namespace may do, so users who may write the owner
    must not choose them freely. Namespaces get none.

    Returns the uid of the owner, None if there is none. By default the owner is the handled object; nothing happens
    outside of handlers, for None, and for the handled object itself. Raises ValueError where Kubernetes would delete
    the child at once: a namespaced owner has children only in its own namespace. Raises TypeError if *owner* is not an
    object, or has a class without a uid.
    """
    handled = owner is HANDLED
    if find_kind(type(owner)) is not None:
        owner = _encode_owner(owner)
    parent = find_handled() if handled else None if owner is None else _clients.as_owner(owner)
    if parent is None or (handled and _is_same(obj, parent)):
        return None
    metadata = parent.get("metadata") or {}
    namespace = metadata.get("namespace")
    own = (obj.get("metadata") or {}).get("namespace")
    if namespace and (resource.namespaced is False or (own or namespace) != namespace):
        where = f"in the namespace {own}" if resource.namespaced is not False else "which is cluster-scoped"
        raise ValueError(
            f"{parent.get('kind')} {namespace}/{metadata.get('name')} cannot own a {resource.kind or resource} {where}:"
            " its children are in its own namespace. Pass owner=None."
        )
    hierarchies.append_owner_reference(obj, parent)
    hierarchies.harmonize_naming(obj, metadata.get("name"))
    if namespace:
        hierarchies.adjust_namespace(obj, namespace)
    given = {key: value for key, value in (metadata.get("labels") or {}).items() if key in labels}
    if given and (resource.group, resource.plural) != ("", "namespaces"):
        hierarchies.label(obj, given)
    uid: str = metadata["uid"]
    return uid


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
