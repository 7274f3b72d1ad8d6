"""Reading and changing Kubernetes objects in the shapes that well-known clients give them.

An object is a mutable mapping here, or a *model*: something with attributes, of ``kubernetes``, ``kubernetes_asyncio``
or ``lightkube``. Objects of ``pykube-ng`` and ``kr8s`` wrap a mapping, and are taken for it. Classes are recognised by
the package that they or their bases come from: nothing is imported but modules of a package that is loaded already.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from trioperator.model.fields import FieldPath

__all__ = ["as_owner", "get", "is_changeable", "make", "put", "resolve_all", "walk"]

# Which attribute of the wrappers holds the mapping.
_WRAPPED: Final[Mapping[str, str]] = {"kr8s": "raw", "pykube": "obj"}

# Where the models of a package are, and what our objects are called there.
_MODELS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "kubernetes": ("kubernetes.client", {"metadata": "V1ObjectMeta", "ownerReferences": "V1OwnerReference"}),
    "kubernetes_asyncio": (
        "kubernetes_asyncio.client",
        {"metadata": "V1ObjectMeta", "ownerReferences": "V1OwnerReference"},
    ),
    "lightkube": ("lightkube.models.meta_v1", {"metadata": "ObjectMeta", "ownerReferences": "OwnerReference"}),
}

_Package: TypeAlias = str


def walk(objs: Any) -> Iterator[Any]:
    """Give each object of *objs*: of one object, or of iterables of them, nested to any depth; None is no object.

    Raises TypeError for what is neither.
    """
    if objs is None:
        return
    wrapped = _unwrap(objs)
    if is_changeable(wrapped):
        yield wrapped
    elif isinstance(objs, Iterable) and not isinstance(objs, Mapping | str | bytes):
        for obj in objs:
            yield from walk(obj)
    else:
        raise TypeError(
            f"{type(objs).__name__} is no Kubernetes object that can be changed:"
            " pass a dict or another mutable mapping, an object of kr8s, kubernetes, kubernetes_asyncio, lightkube"
            " or pykube-ng, or an iterable of such."
        )


def is_changeable(obj: Any) -> bool:
    """Tell whether *obj* is a mutable mapping or a model."""
    return isinstance(obj, MutableMapping) or _package_of(obj, _MODELS) is not None


def get(obj: Any, key: str) -> Any:
    """Read the field that Kubernetes calls *key*; None where it is absent."""
    if obj is None:
        return None
    if isinstance(obj, Mapping):
        return obj.get(key)
    return getattr(obj, _attribute(obj, key), None)


def put(obj: Any, key: str, value: Any) -> None:
    """Write the field that Kubernetes calls *key*; None removes it."""
    if not isinstance(obj, MutableMapping):
        setattr(obj, _attribute(obj, key), value)
    elif value is not None:
        obj[key] = value
    else:
        obj.pop(key, None)


def make(parent: Any, key: str, fields: Mapping[str, Any]) -> Any:
    """Make the value of the field *key* of *parent*, or of an item of it, in the same shape as *parent* is."""
    package = _package_of(parent, _MODELS) if not isinstance(parent, MutableMapping) else None
    if package is None:
        return dict(fields)
    module, classes = _MODELS[package]
    model: Callable[..., Any] = getattr(importlib.import_module(module), classes[key])
    return model(**{_attribute(model, name): value for name, value in fields.items()})


def resolve_all(obj: Any, path: FieldPath) -> Iterator[Any]:
    """Give what is at *path* of *obj*, as far as it can be changed: an object, each object of a list, or nothing."""
    for key in path:
        obj = get(obj, key) if isinstance(obj, Mapping) or is_changeable(obj) else None
    for item in obj if isinstance(obj, list | tuple) else (obj,):
        if is_changeable(item):
            yield item


def as_owner(owner: Any) -> Mapping[str, Any]:
    """Reduce any kind of object to what its children take over: kind, name, namespace, uid and labels.

    Raises TypeError for what is no object.
    """
    owner = _unwrap(owner)
    if isinstance(owner, Mapping):
        return owner
    if not is_changeable(owner):
        raise TypeError(f"{type(owner).__name__} is no Kubernetes object that could be an owner.")
    metadata = get(owner, "metadata")
    fields = {key: get(metadata, key) for key in ("name", "namespace", "uid", "labels")}
    return {"apiVersion": get(owner, "apiVersion"), "kind": get(owner, "kind"), "metadata": fields}


def _unwrap(obj: Any) -> Any:
    if isinstance(obj, Mapping):
        return obj
    package = _package_of(obj, _WRAPPED)
    return obj if package is None else getattr(obj, _WRAPPED[package], obj)


def _package_of(obj: Any, packages: Mapping[str, Any]) -> _Package | None:
    # Users derive their own classes from those of the clients, so the bases count as well.
    for cls in type(obj).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in packages:
            return package
    return None


def _attribute(model: Any, key: str) -> str:
    # Generated OpenAPI models tell their own names; all others use those of Kubernetes.
    names: Mapping[str, str] = getattr(model, "attribute_map", {})
    return next((name for name, field in names.items() if field == key), key)
