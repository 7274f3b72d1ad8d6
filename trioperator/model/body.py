"""Views of an object: read-only, live, and empty where the object has nothing.

A view costs nothing until it is used, and always shows the state that its body points to.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, TypeAlias, TypeVar, overload

__all__ = ["Annotations", "Body", "BodyEssence", "Labels", "MappingView", "Meta", "Spec", "Status"]

BodyEssence: TypeAlias = dict[str, Any]
T = TypeVar("T")
V = TypeVar("V")


class MappingView(Mapping[str, V]):
    """Show one stanza of a body, whichever object it points to."""

    __slots__ = ("_body", "_path")

    def __init__(self, body: Body, path: tuple[str, ...]) -> None:
        self._body = body
        self._path = path

    def _target(self) -> Mapping[str, V]:
        target: Any = self._body._raw
        for key in self._path:
            target = target.get(key)
            if type(target) is not dict and not isinstance(target, Mapping):
                return {}
        found: Mapping[str, V] = target
        return found

    def __getitem__(self, key: str) -> V:
        return self._target()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._target())

    def __len__(self) -> int:
        return len(self._target())

    def __contains__(self, key: object) -> bool:
        return key in self._target()

    # What the abstract class offers does the same, by an exception for each missing key.
    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, /, default: V | T) -> V | T: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        """Give the value of a key, or *default* where there is none."""
        return self._target().get(key, default)

    def keys(self) -> KeysView[str]:
        """Give the keys."""
        return self._target().keys()

    def values(self) -> ValuesView[V]:
        """Give the values."""
        return self._target().values()

    def items(self) -> ItemsView[str, V]:
        """Give the keys with their values."""
        return self._target().items()

    def __repr__(self) -> str:
        return repr(dict(self._target()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MappingView):
            return bool(self._target() == other._target())
        return bool(self._target() == other)

    __hash__ = None  # type: ignore[assignment]  # it changes, as every dictionary does


class Spec(MappingView[Any]):
    """Show ``spec``: what is wanted of the object."""

    __slots__ = ()


class Status(MappingView[Any]):
    """Show ``status``: what was observed of the object."""

    __slots__ = ()


class Labels(MappingView[str]):
    """Show ``metadata.labels``."""

    __slots__ = ()


class Annotations(MappingView[str]):
    """Show ``metadata.annotations``."""

    __slots__ = ()


class Meta(MappingView[Any]):
    """Show ``metadata``, with its usual fields as attributes: None where the object has none."""

    __slots__ = ()

    @property
    def labels(self) -> Labels:
        """Give the labels."""
        return Labels(self._body, ("metadata", "labels"))

    @property
    def annotations(self) -> Annotations:
        """Give the annotations."""
        return Annotations(self._body, ("metadata", "annotations"))

    @property
    def uid(self) -> str | None:
        """Give what no two objects share, ever."""
        return self._target().get("uid")

    @property
    def name(self) -> str | None:
        """Give the name."""
        return self._target().get("name")

    @property
    def namespace(self) -> str | None:
        """Give the namespace; None for objects of the whole cluster."""
        return self._target().get("namespace")

    @property
    def creation_timestamp(self) -> str | None:
        """Give the time of creation, as text in ISO 8601."""
        return self._target().get("creationTimestamp")

    @property
    def deletion_timestamp(self) -> str | None:
        """Give the time when the deletion was asked for, as text in ISO 8601."""
        return self._target().get("deletionTimestamp")


class Body(Mapping[str, Any]):
    """Show a whole object, and its usual stanzas as attributes."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    def _replace_raw(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    @property
    def meta(self) -> Meta:
        """Give the metadata."""
        return Meta(self, ("metadata",))

    @property
    def metadata(self) -> Meta:
        """Give the metadata."""
        return Meta(self, ("metadata",))

    @property
    def spec(self) -> Spec:
        """Give the specification."""
        return Spec(self, ("spec",))

    @property
    def status(self) -> Status:
        """Give the status."""
        return Status(self, ("status",))

    def __getitem__(self, key: str) -> Any:
        return self._raw[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, key: object) -> bool:
        return key in self._raw

    @overload
    def get(self, key: str, /) -> Any | None: ...
    @overload
    def get(self, key: str, /, default: Any) -> Any: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        """Give the value of a key, or *default* where there is none."""
        return self._raw.get(key, default)

    def keys(self) -> KeysView[str]:
        """Give the keys."""
        return self._raw.keys()

    def values(self) -> ValuesView[Any]:
        """Give the values."""
        return self._raw.values()

    def items(self) -> ItemsView[str, Any]:
        """Give the keys with their values."""
        return self._raw.items()

    def __repr__(self) -> str:
        return repr(dict(self._raw))

    def __eq__(self, other: object) -> bool:
        return bool(self._raw == (other._raw if isinstance(other, Body) else other))

    __hash__ = None  # type: ignore[assignment]  # it changes, as every dictionary does
