"""Access to Kubernetes objects of well-known client libraries.

An object is a mutable mapping, or a *model*: an object with attributes, of ``kubernetes``, ``kubernetes_asyncio`` or
``lightkube``. Objects of ``pykube-ng`` and ``kr8s`` wrap a mapping, which is used instead. Classes are recognized by
the package of the class or its bases, so only modules of packages that are loaded already are imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from trioperator._model.fields import FieldPath

# The attribute of each wrapper that holds the mapping.
_WRAPPED: Final[Mapping[str, str]] = {"kr8s": "raw", "pykube": "obj"}

# The module of each package that holds its models, and their names for the objects here.
_MODELS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "kubernetes": ("kubernetes.client", {"metadata": "V1ObjectMeta", "ownerReferences": "V1OwnerReference"}),
    "kubernetes_asyncio": (
        "kubernetes_asyncio.client",
        {"metadata": "V1ObjectMeta", "ownerReferences": "V1OwnerReference"},
    ),
    "lightkube": ("lightkube.models.meta_v1", {"metadata": "ObjectMeta", "ownerReferences": "OwnerReference"}),
}

_Package: TypeAlias = str

_HOW: Final = " that can be changed"


def walk(objs: Any, *, readable: bool = False) -> Iterator[Any]:
    """Yield each object in *objs*: one object, or iterables of objects, nested to any depth; None counts as empty.

    With *readable*, read-only mappings are accepted, too. Raises TypeError for anything else.
    """
    if objs is None:
        return
    wrapped = _unwrap(objs)
    if is_changeable(wrapped) or (readable and isinstance(wrapped, Mapping)):
        yield wrapped
    elif isinstance(objs, Iterable) and not isinstance(objs, Mapping | str | bytes):
        for obj in objs:
            yield from walk(obj, readable=readable)
    else:
        wanted, how = ("a dict or another mapping", "") if readable else ("a dict or another mutable mapping", _HOW)
        raise TypeError(
            f"K8s object class is not supported: {type(objs).__name__} is not a Kubernetes object{how}. Pass {wanted},"
            " an object of kr8s, kubernetes, kubernetes_asyncio, lightkube or pykube-ng, or an iterable of them."
        )


def is_changeable(obj: Any) -> bool:
    """Return whether *obj* is a mutable mapping or a model."""
    return isinstance(obj, MutableMapping) or _package_of(obj, _MODELS) is not None


def get(obj: Any, key: str) -> Any:
    """Return the field that Kubernetes calls *key*; None if it is absent."""
    if obj is None:
        return None
    if isinstance(obj, Mapping):
        return obj.get(key)
    return getattr(obj, _attribute(obj, key), None)


def put(obj: Any, key: str, value: Any) -> None:
    """Set the field that Kubernetes calls *key*; None removes it."""
    if not isinstance(obj, MutableMapping):
        setattr(obj, _attribute(obj, key), value)
    elif value is not None:
        obj[key] = value
    else:
        obj.pop(key, None)


def make(parent: Any, key: str, fields: Mapping[str, Any]) -> Any:
    """Return a new value, or a new item, for the field *key* of *parent*: a dict or a model, like *parent*."""
    package = _package_of(parent, _MODELS) if not isinstance(parent, MutableMapping) else None
    if package is None:
        return dict(fields)
    module, classes = _MODELS[package]
    model: Callable[..., Any] = getattr(importlib.import_module(module), classes[key])
    return model(**{_attribute(model, name): value for name, value in fields.items()})


def resolve_all(obj: Any, path: FieldPath) -> Iterator[Any]:
    """Yield the changeable objects at *path* in *obj*: a single one, each item of a list, or none."""
    for key in path:
        obj = get(obj, key) if isinstance(obj, Mapping) or is_changeable(obj) else None
    for item in obj if isinstance(obj, list | tuple) else (obj,):
        if is_changeable(item):
            yield item


def as_owner(owner: Any) -> Mapping[str, Any]:
    """Return the fields of an owner that its children need: API version, kind, name, namespace, uid and labels.

    Raises TypeError if *owner* is not an object.
    """
    owner = _unwrap(owner)
    if isinstance(owner, Mapping):
        return owner
    if not is_changeable(owner):
        raise TypeError(f"{type(owner).__name__} is not a Kubernetes object that can be an owner.")
    metadata = get(owner, "metadata")
    fields = {key: get(metadata, key) for key in ("name", "namespace", "uid", "labels")}
    return {"apiVersion": get(owner, "apiVersion"), "kind": get(owner, "kind"), "metadata": fields}


def _unwrap(obj: Any) -> Any:
    if isinstance(obj, Mapping):
        return obj
    package = _package_of(obj, _WRAPPED)
    return obj if package is None else getattr(obj, _WRAPPED[package], obj)


def _package_of(obj: Any, packages: Mapping[str, Any]) -> _Package | None:
    # Users derive classes from the classes of the client libraries, so the bases count too.
    for cls in type(obj).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in packages:
            return package
    return None


def _attribute(model: Any, key: str) -> str:
    # Generated OpenAPI models map their own names; all others use the names of Kubernetes.
    names: Mapping[str, str] = getattr(model, "attribute_map", {})
    return next((name for name, field in names.items() if field == key), key)
