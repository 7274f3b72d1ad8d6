"""Owner references, names, namespaces and labels of child objects, to set before they are sent to the cluster.

All functions change the objects in place and send nothing. *objs* is a dict or any other mutable mapping, an object of
``kr8s``, ``kubernetes``, ``kubernetes_asyncio``, ``lightkube`` or ``pykube-ng``, or an iterable of these, nested to any
depth.

The owner defaults to the object that is being handled; None is the same as the default. Outside of handlers, pass it:
otherwise, LookupError is raised. All functions raise TypeError for anything that is not an object.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from trioperator._handling.arguments.context import current_body
from trioperator._model.fields import FieldSpec, parse_field
from trioperator._model.references import build_owner_reference
from trioperator.helpers import _clients

__all__ = [
    "adjust_namespace",
    "adopt",
    "append_owner_reference",
    "disown",
    "harmonize_naming",
    "label",
    "remove_owner_reference",
    "unlabel",
]

KubeObjects: TypeAlias = Any
Owner: TypeAlias = Any
Nested: TypeAlias = str | Iterable[FieldSpec] | None


def adopt(
    objs: KubeObjects,
    owner: Owner | None = None,
    *,
    forced: bool = False,
    strict: bool = False,
    nested: Nested = None,
) -> None:
    """Make *objs* children of *owner*: set the owner reference, name, namespace and labels.

    It calls :func:`append_owner_reference`, :func:`harmonize_naming` (with *strict*), :func:`adjust_namespace` and
    :func:`label` (with *nested*). Existing names, namespaces and labels are kept, unless *forced*. Raises ValueError if
    the owner is not in the cluster yet.
    """
    parent = _parent(owner)
    metadata = parent.get("metadata") or {}
    children = list(_clients.walk(objs))
    append_owner_reference(children, parent)
    harmonize_naming(children, metadata.get("name"), forced=forced, strict=strict)
    if metadata.get("namespace") is not None:
        adjust_namespace(children, metadata["namespace"], forced=forced)
    label(children, metadata.get("labels") or {}, forced=forced, nested=nested)


def disown(objs: KubeObjects, owner: Owner | None = None, *, nested: Nested = None) -> None:
    """Undo :func:`adopt`: remove the reference to *owner*, and the labels that are the same as the owner's.

    Names and namespaces are kept, because they identify the object. Raises ValueError for an owner without a uid.
    """
    parent = _parent(owner)
    children = list(_clients.walk(objs))
    remove_owner_reference(children, parent)
    unlabel(children, (parent.get("metadata") or {}).get("labels") or {}, nested=nested)


def append_owner_reference(
    objs: KubeObjects,
    owner: Owner | None = None,
    *,
    controller: bool = True,
    block_owner_deletion: bool = True,
) -> None:
    """Add a reference to *owner*, so that the cluster garbage-collects *objs* when *owner* is deleted.

    - *controller*: whether the owner is their controller; Kubernetes allows one for each object
    - *block_owner_deletion*: whether a foreground deletion of the owner waits for them

    Calling this again adds no second reference. Raises ValueError for an owner without a uid, a name, a kind or an API
    version, such as one that is not in the cluster yet.
    """
    children = list(_clients.walk(objs))
    reference = _reference(_parent(owner), controller=controller, block_owner_deletion=block_owner_deletion)
    for obj in children:
        metadata = _metadata(obj)
        references = list(_clients.get(metadata, "ownerReferences") or ())
        if all(_clients.get(other, "uid") != reference["uid"] for other in references):
            added = _clients.make(metadata, "ownerReferences", reference)
            _clients.put(metadata, "ownerReferences", [*references, added])


def remove_owner_reference(objs: KubeObjects, owner: Owner | None = None) -> None:
    """Undo :func:`append_owner_reference`; references to other owners are kept.

    Without any left, an empty list stays, so that a merge patch with the object removes them in the cluster, too.

    Raises ValueError for an owner without a uid, which is not in the cluster yet.
    """
    children = list(_clients.walk(objs))
    uid = (_parent(owner).get("metadata") or {}).get("uid")
    if not uid:
        raise ValueError("The owner has no metadata.uid: objects outside of the cluster cannot be referenced.")
    for obj in children:
        metadata = _clients.get(obj, "metadata")
        references = _clients.get(metadata, "ownerReferences") or ()
        kept = [other for other in references if _clients.get(other, "uid") != uid]
        if len(kept) < len(references):
            _clients.put(metadata, "ownerReferences", kept)


def label(
    objs: KubeObjects,
    labels: Mapping[str, str | None] | None = None,
    *,
    forced: bool = False,
    nested: Nested = None,
    force: bool | None = None,
) -> None:
    """Add *labels* to *objs*: by default the owner's; ``{}`` changes nothing.

    Existing labels keep their values, unless *forced*. *nested* names fields with ``metadata`` of their own, such as
    ``"spec.template"``: they are labelled, too, if they exist. *force* is Kopf's old name of *forced*.
    """
    if force is not None:
        warnings.warn("label(force=...) is deprecated: use forced=.", DeprecationWarning, stacklevel=2)
        forced = force
    labels = _owner_labels() if labels is None else labels
    targets = list(_with_nested(objs, nested))
    for obj in targets if labels else ():
        metadata = _metadata(obj)
        present = _clients.get(metadata, "labels") or {}
        _clients.put(metadata, "labels", {**present, **labels} if forced else {**labels, **present})


def unlabel(
    objs: KubeObjects,
    labels: Mapping[str, str | None] | Collection[str] | None = None,
    *,
    nested: Nested = None,
) -> None:
    """Undo :func:`label`: remove *labels*, by default the owner's.

    If *labels* is a mapping, only labels with the same values are removed; with any other collection of names, labels
    with any value. *nested* is the same as for :func:`label`.
    """
    labels = _owner_labels() if labels is None else labels
    for obj in _with_nested(objs, nested):
        metadata = _clients.get(obj, "metadata")
        present = _clients.get(metadata, "labels") or {}
        kept = {key: value for key, value in present.items() if not _is_listed(key, value, labels)}
        if len(kept) < len(present):
            _clients.put(metadata, "labels", kept or None)


def harmonize_naming(
    objs: KubeObjects,
    name: str | None = None,
    *,
    forced: bool = False,
    strict: bool = False,
) -> None:
    """Name *objs* after the owner, or *name*: by ``generateName``, which the cluster completes, or exactly if *strict*.

    Objects that have a name or a ``generateName`` keep it, unless *forced*.
    """
    name = _owner_metadata("name") if name is None else name
    for obj in _clients.walk(objs):
        metadata = _metadata(obj)
        named = _clients.get(metadata, "name") or _clients.get(metadata, "generateName")
        if forced or not named:
            _clients.put(metadata, "name", name if strict else None)
            _clients.put(metadata, "generateName", None if strict else f"{name}-")


def adjust_namespace(objs: KubeObjects, namespace: str | None = None, *, forced: bool = False) -> None:
    """Set the namespace of *objs* to the owner's, or to *namespace*.

    Objects that have a namespace keep it, unless *forced*. A cluster-scoped owner changes nothing.
    """
    namespace = _owner_metadata("namespace") if namespace is None else namespace
    if namespace is None:
        return
    for obj in _clients.walk(objs):
        metadata = _metadata(obj)
        if forced or _clients.get(metadata, "namespace") is None:
            _clients.put(metadata, "namespace", namespace)


def _parent(owner: Owner | None) -> Mapping[str, Any]:
    return current_body() if owner is None else _clients.as_owner(owner)


def _owner_metadata(key: str) -> Any:
    return (current_body().get("metadata") or {}).get(key)


def _owner_labels() -> Mapping[str, str]:
    return _owner_metadata("labels") or {}


def _reference(
    parent: Mapping[str, Any], *, controller: bool = True, block_owner_deletion: bool = True
) -> Mapping[str, Any]:
    metadata = parent.get("metadata") or {}
    absent = [f"metadata.{key}" for key in ("name", "uid") if not metadata.get(key)]
    absent += [key for key in ("apiVersion", "kind") if not parent.get(key)]
    if absent:
        raise ValueError(f"The owner has no {', '.join(sorted(absent))}: pass an owner as it is in the cluster.")
    return build_owner_reference(parent, controller=controller, block_owner_deletion=block_owner_deletion)


def _metadata(obj: Any) -> Any:
    metadata = _clients.get(obj, "metadata")
    if metadata is None:
        _clients.put(obj, "metadata", _clients.make(obj, "metadata", {}))
        metadata = _clients.get(obj, "metadata")  # the stored object may not be the same as the given one
    return metadata


def _with_nested(objs: KubeObjects, nested: Nested) -> Iterator[Any]:
    specs = [nested] if isinstance(nested, str) else list(nested or ())
    paths = [parse_field(spec) for spec in specs]
    for obj in _clients.walk(objs):
        yield obj
        for path in paths:
            yield from _clients.resolve_all(obj, path)


def _is_listed(key: str, value: Any, labels: Mapping[str, str | None] | Collection[str]) -> bool:
    return key in labels and (not isinstance(labels, Mapping) or labels[key] == value)
