"""Kinds and objects as users name them: by strings, classes of client libraries, resources, and whole objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from trioperator._handling.handlers.typed import encode_object
from trioperator._model.custom_kind import find_kind
from trioperator._model.jsontypes import JsonObject
from trioperator._model.resource import Resource, Selector
from trioperator.helpers import _clients

#: A kind that is known already, or has to be looked up in the cluster.
KindName: TypeAlias = Resource | Selector

_FORMS: Final = "'pods', 'deployments.apps', ('apps/v1', 'Deployment'), a class or a Resource"
# Classes of generated clients have no other attributes that say what they are for.
_GENERATED: Final = re.compile(r"(V\d+(?:(?:alpha|beta)\d+)?)([A-Z]\w*)")


class TargetName(NamedTuple):
    """One object: its kind and name, and its namespace and uid if they are given."""

    kind: KindName
    name: str
    namespace: str | None
    uid: str | None = None


def parse_kind(args: tuple[object, ...]) -> KindName:
    """Return the kind that positional arguments name. Raises TypeError for anything that does not name one kind."""
    if len(args) == 1 and isinstance(args[0], Resource):
        return args[0]
    if len(args) == 1 and isinstance(args[0], type):
        return _parse_class(args[0])
    if not args or not all(isinstance(arg, str) for arg in args):
        raise TypeError(f"{_quote(args)} does not name a kind: pass {_FORMS}.")
    return Selector.parse(*args)


def parse_target(args: tuple[object, ...]) -> TargetName:
    """Return the object that positional arguments name: a kind and a name, or a whole object.

    Raises TypeError for anything else.
    """
    if len(args) == 1 and not isinstance(args[0], str | type | Resource):
        return _parse_object(args[0])
    *kind, name = args or ("",)
    if not kind or not isinstance(name, str) or not name:
        raise TypeError(
            f"{_quote(args)} does not name an object: pass its kind and its name, or the object itself, and everything"
            " else by keyword, such as merge=."
        )
    return TargetName(parse_kind(tuple(kind)), name, None)


def to_dict(obj: object) -> JsonObject:
    """Return an object as a new dict: a mapping, a typed object, or one of a known client library.

    Raises TypeError for anything else.
    """
    if find_kind(type(obj)) is not None:
        return encode_object(obj)
    convert = getattr(obj, "to_dict", None)
    if not isinstance(obj, Mapping) and callable(convert) and hasattr(type(obj), "from_dict"):  # lightkube's
        obj = convert()
    (found,) = _clients.walk([obj], readable=True)
    if not isinstance(found, Mapping):
        raise TypeError(f"{type(obj).__name__} cannot be sent as it is: pass a dict.")
    return {key: _copy(value) for key, value in found.items()}


def explain_nameless(obj: object) -> str:
    """Return what to do about an object without a name, where its class cannot have one."""
    if find_kind(type(obj)) is None or hasattr(obj, "metadata"):
        return ""
    return f", as the class {type(obj).__qualname__} has no field metadata: crds.ObjectMeta"


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list | tuple) else value


def _parse_object(obj: object) -> TargetName:
    fields = _clients.as_owner(obj) if find_kind(type(obj)) is None else encode_object(obj)
    metadata = fields.get("metadata") or {}
    if not metadata.get("name"):
        raise TypeError(f"The object has no metadata.name{explain_nameless(obj)}.")
    api_version, kind = fields.get("apiVersion"), fields.get("kind")
    named = Selector.parse(api_version, kind) if api_version and kind else _parse_class(type(obj))
    return TargetName(named, metadata["name"], metadata.get("namespace"), metadata.get("uid") or None)


def _parse_class(cls: type) -> Selector:
    declared = find_kind(cls)
    if declared is not None:
        return Selector.parse(declared.group, declared.version, declared.plural)
    info = getattr(cls, "_api_info", None)  # lightkube's
    if info is not None:
        resource = info.resource
        return Selector.parse(resource.group or "", resource.version, resource.kind)
    versions = (getattr(cls, name, None) for name in ("apiVersion", "api_version", "version"))
    version = next((version for version in versions if isinstance(version, str)), None)
    kind = getattr(cls, "kind", None)
    if version and isinstance(kind, str):
        return Selector.parse(version, kind)
    generated = _GENERATED.fullmatch(cls.__name__)
    if generated is None:
        raise TypeError(f"The class {cls.__qualname__} does not name a kind: it has no apiVersion and kind.")
    return Selector.parse(version=generated[1].lower(), kind=generated[2])


def _quote(args: tuple[object, ...]) -> str:
    """Return what was passed, for messages. Objects may be secret: only names and the like are quoted."""
    plain = (str, int, type, Resource)
    quoted = [repr(arg) if arg is None or isinstance(arg, plain) else f"a {type(arg).__name__}" for arg in args]
    return ", ".join(quoted) or "Nothing"
