"""Read-only, live views of an object. Missing sections are empty mappings.

Views are cheap, and always show the current state of their body. Values within it are plain dictionaries and lists,
which whoever gets them can change. So those who look at a cached object get a *private* body: a section is copied when
a dictionary or a list of it is handed out for the first time.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, overload

from trioperator._model.jsontypes import copy_json
from trioperator._model.lazy_object import LazyObject

BodyEssence: TypeAlias = dict[str, Any]
_CONTAINERS: Final[frozenset[type]] = frozenset({dict, list})

T = TypeVar("T")
V = TypeVar("V")


class MappingView(Mapping[str, V]):
    """Read-only view of one section of a body."""

    __slots__ = ("_body",)
    _path: ClassVar[tuple[str, ...]]

    def __init__(self, body: Body) -> None:
        self._body = body

    def _target(self) -> Mapping[str, V]:
        """Return the section: only to be looked at."""
        own = self._body._own
        target: Any = own if own and (type(own) is LazyObject or self._path[0] in own) else self._body._raw
        for key in self._path:
            target = target.get(key)
            if type(target) is not dict and not isinstance(target, Mapping):
                return {}
        found: Mapping[str, V] = target
        return found

    def _private(self) -> Mapping[str, V]:
        """Return the section: to be handed out."""
        target = self._target()
        if any(type(value) in _CONTAINERS for value in target.values()):
            self._body.get(self._path[0])
            target = self._target()
        return target

    def __getitem__(self, key: str) -> V:
        value = self._target()[key]
        if type(value) in _CONTAINERS:
            self._body.get(self._path[0])
            return self._target()[key]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._target())

    def __len__(self) -> int:
        return len(self._target())

    def __contains__(self, key: object) -> bool:
        return key in self._target()

    # Faster than the inherited method, which catches an exception for each missing key.
    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, /, default: V | T) -> V | T: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        """Return the value of a key, or *default* if it is missing."""
        target = self._target()
        return self[key] if type(target.get(key)) in _CONTAINERS else target.get(key, default)

    def keys(self) -> KeysView[str]:
        """Return the keys."""
        return self._target().keys()

    def values(self) -> ValuesView[V]:
        """Return the values."""
        return self._private().values()

    def items(self) -> ItemsView[str, V]:
        """Return the keys with their values."""
        return self._private().items()

    def __repr__(self) -> str:
        return repr(dict(self._target()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MappingView):
            return bool(self._target() == other._target())
        return bool(self._target() == other)

    __hash__ = None  # type: ignore[assignment]  # mutable, like a dict


class Spec(MappingView[Any]):
    """View of ``spec``, the desired state."""

    __slots__ = ()
    _path: ClassVar[tuple[str, ...]] = ("spec",)


class Status(MappingView[Any]):
    """View of ``status``, the observed state."""

    __slots__ = ()
    _path: ClassVar[tuple[str, ...]] = ("status",)


class Labels(MappingView[str]):
    """View of ``metadata.labels``."""

    __slots__ = ()
    _path: ClassVar[tuple[str, ...]] = ("metadata", "labels")


class Annotations(MappingView[str]):
    """View of ``metadata.annotations``."""

    __slots__ = ()
    _path: ClassVar[tuple[str, ...]] = ("metadata", "annotations")


class Meta(MappingView[Any]):
    """View of ``metadata``, with its common fields as attributes: None if absent."""

    __slots__ = ()
    _path: ClassVar[tuple[str, ...]] = ("metadata",)

    @property
    def labels(self) -> Labels:
        """The labels."""
        return Labels(self._body)

    @property
    def annotations(self) -> Annotations:
        """The annotations."""
        return Annotations(self._body)

    @property
    def uid(self) -> str | None:
        """The unique id of the object, never reused."""
        return self._target().get("uid")

    @property
    def name(self) -> str | None:
        """The name."""
        return self._target().get("name")

    @property
    def namespace(self) -> str | None:
        """The namespace; None for cluster-scoped objects."""
        return self._target().get("namespace")

    @property
    def creation_timestamp(self) -> str | None:
        """The time of creation, as an ISO 8601 string."""
        return self._target().get("creationTimestamp")

    @property
    def deletion_timestamp(self) -> str | None:
        """The time when the deletion was requested, as an ISO 8601 string."""
        return self._target().get("deletionTimestamp")


def _begin_copies(raw: Mapping[str, Any]) -> dict[str, Any] | LazyObject:
    """Return the copies of what is handed out of an object: made one by one, or for a large one all at once.

    Then the object itself is no longer looked at: it would be decoded, too.
    """
    return raw.copy() if type(raw) is LazyObject else {}


class Body(Mapping[str, Any]):
    """Read-only view of a whole object, with its common sections as attributes.

    The object itself is safe from whoever gets a *private* body: dictionaries and lists within it are copies.
    """

    __slots__ = ("_own", "_raw")

    # Not by keyword only, which takes longer: each call of handlers has several bodies.
    def __init__(self, raw: Mapping[str, Any], private: bool = False) -> None:
        self._raw = raw
        self._own = None if not private else {} if type(raw) is dict else _begin_copies(raw)

    def _replace_raw(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        if self._own is not None:
            self._own = _begin_copies(raw)

    def _whole(self) -> Mapping[str, Any]:
        """Return what has all keys of the object."""
        return self._own if type(self._own) is LazyObject else self._raw

    def _shown(self) -> Mapping[str, Any]:
        """Return the whole object: only to be looked at."""
        return {**self._raw, **self._own} if self._own and type(self._own) is dict else self._whole()

    def _private(self) -> Mapping[str, Any]:
        """Return the whole object: to be handed out."""
        return {key: self[key] for key in self._raw} if type(self._own) is dict else self._whole()

    @property
    def meta(self) -> Meta:
        """The metadata."""
        return Meta(self)

    @property
    def metadata(self) -> Meta:
        """The metadata."""
        return Meta(self)

    @property
    def spec(self) -> Spec:
        """The specification."""
        return Spec(self)

    @property
    def status(self) -> Status:
        """The status."""
        return Status(self)

    def __getitem__(self, key: str) -> Any:
        own = self._own
        if type(own) is LazyObject:
            return own[key]
        value = self._raw[key]
        if own is None or type(value) not in _CONTAINERS:
            return value
        if type(own) is dict and key not in own:
            own[key] = copy_json(value)
        return own[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())

    def __contains__(self, key: object) -> bool:
        return key in self._whole()

    @overload
    def get(self, key: str, /) -> Any | None: ...
    @overload
    def get(self, key: str, /, default: Any) -> Any: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        """Return the value of a key, or *default* if it is missing."""
        return self[key] if key in self._whole() else default

    def keys(self) -> KeysView[str]:
        """Return the keys."""
        return self._whole().keys()

    def values(self) -> ValuesView[Any]:
        """Return the values."""
        return self._private().values()

    def items(self) -> ItemsView[str, Any]:
        """Return the keys with their values."""
        return self._private().items()

    def __repr__(self) -> str:
        return repr(dict(self._shown()))

    def __eq__(self, other: object) -> bool:
        return bool(self._shown() == (other._shown() if isinstance(other, Body) else other))

    __hash__ = None  # type: ignore[assignment]  # mutable, like a dict
