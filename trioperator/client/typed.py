"""Typed objects of the client: instances of the classes that :func:`trioperator.crds.kind` declares.

A method that is called with such a class, or with an object of it, returns objects of the class; otherwise dicts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeAlias, TypedDict, TypeVar

import msgspec

from trioperator._handling.handlers.typed import decode
from trioperator._model.custom_kind import find_kind
from trioperator._model.jsontypes import JsonObject
from trioperator.client.paging import Labels
from trioperator.errors import AdmissionError, DecodeError

# Number of objects that an error names at most.
_SHOWN: Final = 5


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


class _Attrs(Protocol):
    __attrs_attrs__: ClassVar[Any]


class _Pydantic(Protocol):
    __pydantic_validator__: ClassVar[Any]


class Lightkube(Protocol):
    """A class of lightkube's resources."""

    _api_info: Any


#: A class that declares a kind, for type checkers: which of these classes do so is known at run time only.
Kind = TypeVar("Kind", bound="msgspec.Struct | _Dataclass | _Attrs | _Pydantic")

#: Classes and objects of lightkube, which are dataclasses and declare no kinds of ours.
Foreign: TypeAlias = Lightkube | type[Lightkube]

#: A condition as in :data:`trioperator._model.conditions.Condition`, whose function takes a typed object.
TypedCondition: TypeAlias = str | Callable[[Kind], object]

#: The subresource of objects that may be typed: other ones are objects of other kinds.
Status: TypeAlias = Literal["status"] | None
Subresource = TypeVar("Subresource", bound=str | None)


class GetOptions(TypedDict, Generic[Subresource], total=False):
    """Options of ``get()``."""

    namespace: str | None
    subresource: Subresource


class ListOptions(TypedDict, total=False):
    """Options of ``list()``."""

    namespace: str | None
    all_namespaces: bool
    labels: Labels | None
    fields: Labels | None


class IterateOptions(ListOptions, total=False):
    """Options of ``iterate()``."""

    page_size: int | None


class WatchOptions(ListOptions, total=False):
    """Options of ``watch()``."""

    name: str | None


class WaitOptions(TypedDict, total=False):
    """Options of ``wait_for()``."""

    namespace: str | None
    timeout: float | None


class CreateOptions(TypedDict, total=False):
    """Options of ``create()`` that returns a typed object."""

    owner: object
    namespace: str | None
    dry_run: bool


class CreateAnyOptions(CreateOptions, total=False):
    """Options of ``create()``."""

    subresource: str | None


class ReplaceOptions(GetOptions[Subresource], total=False):
    """Options of ``replace()``."""

    dry_run: bool


class PatchOptions(ReplaceOptions[Subresource], total=False):
    """Options of ``patch()``."""

    merge: Mapping[str, Any] | None
    json: Sequence[Mapping[str, Any]] | None
    strategic: Mapping[str, Any] | None


class ApplyOptions(ReplaceOptions[Subresource], total=False):
    """Options of ``apply()``."""

    owner: object
    adopt: bool
    force: bool
    field_manager: str | None


def find_model(args: Sequence[object], *, subresource: str | None = None) -> type | None:
    """Return the class of the objects that a method returns for its positional arguments; None for dicts.

    Subresources other than the status are objects of other kinds.
    """
    if not args or subresource not in (None, "status"):
        return None
    cls = args[0] if isinstance(args[0], type) else type(args[0])
    return None if find_kind(cls) is None else cls


def make_decoder(model: type | None) -> Callable[[JsonObject], Any]:
    """Return a function that decodes an object into the class, or returns it as it is if the class is None.

    It raises DecodeError for an object that does not fit.
    """
    if model is None:
        return lambda obj: obj

    def read(obj: JsonObject) -> Any:
        (found,) = decode_all(model, [obj])
        return found

    return read


def decode_all(model: type | None, objs: list[JsonObject]) -> list[Any]:
    """Return objects as instances of the class, or as they are if that is None.

    Raises DecodeError with all objects that do not fit.
    """
    if model is None:
        return objs
    found: list[Any] = []
    problems: list[tuple[JsonObject, str]] = []
    for obj in objs:
        try:
            found.append(decode(model, obj))
        except AdmissionError as error:
            problems.append((obj, f"{_describe(obj)}: {error}"))
    if problems:
        raise DecodeError(_summarize([text for _, text in problems]), objects=[obj for obj, _ in problems])
    return found


def _describe(obj: JsonObject) -> str:
    metadata = obj.get("metadata") or {}
    name = metadata.get("name") or "An object"
    return f"{metadata['namespace']}/{name}" if metadata.get("namespace") else str(name)


def _summarize(texts: Iterable[str]) -> str:
    shown = list(texts)
    more = len(shown) - _SHOWN
    return " ".join(shown[:_SHOWN]) + (f" There are {more} more." if more > 0 else "")
