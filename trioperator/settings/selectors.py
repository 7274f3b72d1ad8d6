"""Selectors for the API server, by kinds: which objects of a kind are listed and watched at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias

from trioperator._model.resource import Marker, Resource, Selector
from trioperator.errors import ConfigError

_Key: TypeAlias = str | Marker | tuple[str | Marker, ...] | Selector


class SelectorMapping(MutableMapping[_Key, str]):
    """Selectors by the kinds that they are for: ``selectors["example.com", "widgets"] = "tier=gold,!archived"``.

    Keys are the positional arguments of the decorators: a name, a group and a name, or a group, a version and a name,
    of which the name may be EVERYTHING. Raises ConfigError for others, and for values that are not non-empty strings.
    """

    def __init__(self, selectors: Mapping[Any, str] | None = None) -> None:
        self._selectors: dict[Selector, str] = {}
        self.update(selectors or {})

    def collect(self, resource: Resource) -> list[str]:
        """Return the selectors that are for a kind, in whatever version: all of them have to match."""
        known = dataclasses.replace(resource, preferred=True)
        return list(dict.fromkeys(text for selector, text in self._selectors.items() if selector.matches(known)))

    def __getitem__(self, key: _Key) -> str:
        return self._selectors[_parse(key)]

    def __setitem__(self, key: _Key, value: str) -> None:
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"The selector for {key!r} is {value!r}, but it must be a string such as 'tier=gold'.")
        self._selectors[_parse(key)] = value.strip()

    def __delitem__(self, key: _Key) -> None:
        del self._selectors[_parse(key)]

    def __iter__(self) -> Iterator[Selector]:
        return iter(self._selectors)

    def __len__(self) -> int:
        return len(self._selectors)

    def __repr__(self) -> str:
        return repr({str(selector): text for selector, text in self._selectors.items()})


def _parse(key: _Key) -> Selector:
    if isinstance(key, Selector):
        return key
    if callable(key):
        raise ConfigError(f"{key!r} is no kind: selectors for the API server are by names, or for EVERYTHING.")
    try:
        return Selector.parse(*key) if isinstance(key, tuple) else Selector.parse(key)
    except TypeError as error:
        raise ConfigError(f"{key!r} is no kind: {error}") from error
