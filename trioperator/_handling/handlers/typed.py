"""Typed arguments: handlers of a kind that a class declares get objects of the classes that they are annotated with.

The annotation decides: ``spec: DatabaseSpec`` is decoded, ``spec: Spec`` or no annotation is the view as ever.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from trioperator._handling.handlers.handler import HandlerFn, unwrap
from trioperator._model.custom_kind import get_kind
from trioperator._model.jsontypes import JsonObject
from trioperator._model.quantities import Quantity
from trioperator._model.signatures import copy_signature, read_annotations
from trioperator.errors import AdmissionError

T = TypeVar("T")

_SECTIONS: Final = ("spec", "status")
# Arguments that may be older than the class: the function has to decode them itself.
_UNTYPED: Final = ("old", "new")
_BOUND: Final = "__trioperator_bound__"
_NONE: Final = type(None)


def decode(cls: type[T], value: Mapping[str, Any]) -> T:
    """Return an object, its spec or its status as an object of the class that describes it.

    ::

        spec = trioperator.crds.decode(DatabaseSpec, body["spec"])

    Raises AdmissionError if it does not fit, with the path of the field: a PermanentError, which denies a write under
    review with HTTP 422, and fails other handlers without a retry.
    """
    found: T = _decode(cls, value, cls.__qualname__)
    return found


def _decode(cls: Any, value: Mapping[str, Any], where: str) -> Any:
    try:
        if hasattr(cls, "model_validate"):  # pydantic's
            return cls.model_validate(dict(value))
        return msgspec.convert(dict(value), cls, dec_hook=_decode_custom)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        raise AdmissionError(f"It is not a valid {where}{path.rstrip('`')}: {text}.", code=422) from None
    except ValueError as error:  # pydantic's, which has one line for each field
        problems = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in getattr(error, "errors", list)()
        )
        raise AdmissionError(f"It is not a valid {where}: {problems or error}.", code=422) from None


def encode(value: object) -> Any:
    """Return what a typed object is in JSON, for patches: ``patch.status.update(crds.encode(status))``."""
    dump = getattr(value, "model_dump", None)  # pydantic's
    return dump(mode="json", by_alias=True) if callable(dump) else msgspec.to_builtins(value, enc_hook=encode_custom)


def encode_custom(value: object) -> Any:
    """Return what a value is in JSON that msgspec does not know. Raises NotImplementedError for others."""
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError


def _decode_custom(cls: type, value: Any) -> Any:
    return Quantity(value) if cls is Quantity else value


def encode_object(obj: object) -> JsonObject:
    """Return an object of a class that declares a kind as the API server takes it.

    Fields that are None, and are so by default, are left out, as are fields of its classes within.
    """
    info = get_kind(type(obj))
    body = encode(obj)
    _drop_unset(obj, body)
    return {"apiVersion": info.api_version, "kind": info.kind, **body}


def _drop_unset(value: object, encoded: Any) -> None:
    """Remove the fields of a value in JSON that are None by default."""
    if _is_declared(type(value)) and isinstance(encoded, dict):
        for name, key, default in _list_fields(type(value)):
            item = getattr(value, name, None)
            if item is None and default is None:
                encoded.pop(key, None)
            else:
                _drop_unset(item, encoded.get(key))
    elif isinstance(value, Mapping) and isinstance(encoded, dict):
        for key, item in value.items():
            _drop_unset(item, encoded.get(key))
    elif isinstance(value, list | tuple) and isinstance(encoded, list):
        for item, each in zip(value, encoded, strict=False):
            _drop_unset(item, each)


def _list_fields(cls: Any) -> list[tuple[str, str, Any]]:
    """Return the name, the name in JSON and the default of each field of a class."""
    if hasattr(cls, "model_fields"):  # pydantic's
        return [
            (name, field.serialization_alias or field.alias or name, field.default)
            for name, field in cls.model_fields.items()
        ]
    if issubclass(cls, msgspec.Struct):
        return [(field.name, field.encode_name, field.default) for field in msgspec.structs.fields(cls)]
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else cls.__attrs_attrs__
    return [(field.name, field.name, field.default) for field in fields]


def bind_types(fn: HandlerFn, model: type | None) -> HandlerFn:
    """Return a function that calls *fn* with typed arguments; *fn* itself if it asks for none.

    It is the same function each time: handlers with one function and id count once. Raises TypeError for an annotation
    with another class than the kind has.
    """
    if model is None:
        return fn
    wanted = _find_wanted(fn, model)
    if not wanted:
        return fn
    bound: dict[Any, Any] = getattr(unwrap(fn), "__dict__", {}).setdefault(_BOUND, {})
    key = (id(getattr(fn, "__self__", None)), model)
    if key not in bound or bound[key].__wrapped__ != fn:
        bound[key] = _bind(fn, wanted)
    function: HandlerFn = bound[key]
    return function


def _bind(fn: HandlerFn, wanted: Mapping[str, _Wanted]) -> HandlerFn:
    def call(**kwargs: Any) -> Any:
        for name, want in wanted.items():
            if name in kwargs:
                kwargs[name] = want.read(kwargs[name])
        return fn(**kwargs)

    functools.update_wrapper(call, fn, updated=())
    copy_signature(call, fn)
    return call


class _Wanted(msgspec.Struct, frozen=True):
    """A typed argument: its class, how errors name it, and whether the handler takes None where there is nothing."""

    cls: Any
    where: str
    optional: bool

    def read(self, view: Mapping[str, Any]) -> Any:
        """Return the argument for a view of the object."""
        return None if self.optional and not view else _decode(self.cls, view, self.where)


def _find_wanted(fn: HandlerFn, model: type) -> dict[str, _Wanted]:
    """Return the arguments that a handler wants typed, by the classes that they are annotated with."""
    given = read_annotations(unwrap(fn))
    for name in given.keys() & set(_UNTYPED):
        if any(map(_is_declared, _flatten(_resolve(fn, given[name], {})))):
            raise TypeError(f"{_name(fn)} has a typed {name}, which has no typed form: use trioperator.crds.decode().")
    if not given.keys() & {"body", *_SECTIONS}:
        return {}
    kind = get_kind(model).kind
    hints = typing.get_type_hints(model)
    types_of = {"body": model} | {name: hints[name] for name in _SECTIONS if name in hints}
    known = {cls.__name__: cls for hint in types_of.values() for cls in _flatten(hint) if isinstance(cls, type)}
    wanted: dict[str, _Wanted] = {}
    for name in given.keys() & {"body", *_SECTIONS}:
        classes = _flatten(_resolve(fn, given[name], known))
        own = [cls for cls in _flatten(types_of.get(name)) if cls in classes and cls is not _NONE]
        if own and _is_declared(own[0]):
            where = kind if name == "body" else f"{kind}.{name}"
            wanted[name] = _Wanted(own[0], where, optional=_NONE in classes)
        elif not own:
            _check_foreign(fn, name, classes, types_of.get(name))
    return wanted


def _resolve(fn: HandlerFn, annotation: Any, known: Mapping[str, Any]) -> Any:
    """Return what an annotation stands for: a string may name what is imported for type checkers only."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation
    scope = {**getattr(unwrap(fn), "__globals__", {}), **known}
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__={"it": annotation}), scope)["it"]
    except Exception:  # noqa: BLE001 -- an annotation may be anything; those that cannot be read ask for nothing
        return annotation


def wants_types(fn: HandlerFn) -> bool:
    """Return whether a function has arguments of classes."""
    given = read_annotations(unwrap(fn))
    return any(
        map(_is_declared, (cls for name in ("body", *_SECTIONS) for cls in _flatten(_resolve(fn, given.get(name), {}))))
    )


def _flatten(annotation: Any) -> list[Any]:
    """Return the members of a union, or the annotation itself, without Annotated."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _flatten(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [each for arg in typing.get_args(annotation) for each in _flatten(arg)]
    return [_NONE if annotation is None else annotation]


def _is_declared(cls: Any) -> bool:
    """Return whether a class has fields that are declared: a view is a mapping, and needs no decoding."""
    return isinstance(cls, type) and (
        issubclass(cls, msgspec.Struct)
        or dataclasses.is_dataclass(cls)
        or hasattr(cls, "__attrs_attrs__")
        or hasattr(cls, "model_validate")
    )


def _check_foreign(fn: HandlerFn, name: str, classes: list[Any], own: Any) -> None:
    """Raise TypeError for a class that would never be passed: other kinds' are fine where there are several."""
    foreign = [cls for cls in classes if _is_declared(cls)]
    if len(foreign) == 1 and len([cls for cls in classes if cls is not _NONE]) == 1:
        shown = " | ".join(getattr(cls, "__qualname__", str(cls)) for cls in _flatten(own) if cls is not _NONE)
        raise TypeError(
            f"{_name(fn)} has {name}: {foreign[0].__qualname__}, but the kind has"
            f" {shown if own is not None else f'no {name}'} there."
        )


def _name(fn: HandlerFn) -> str:
    return str(getattr(unwrap(fn), "__qualname__", fn))
