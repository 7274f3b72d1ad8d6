"""Selectors for the API server, by kinds: which objects of a kind are listed and watched at all.

They are checked when they are set, as far as that is possible without the API server. Those that it rejects are errors
at the start.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from trioperator._model.resource import Marker, Resource, Selector
from trioperator._model.shard_ranges import ShardRanges
from trioperator.errors import ConfigError

_Key: TypeAlias = str | Marker | tuple[str | Marker, ...] | Selector | Callable[[Resource], bool]

_NAME: Final = r"[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?"
_LABEL: Final = rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}"
_VALUES: Final = rf"\(\s*(?:{_NAME})?\s*(?:,\s*(?:{_NAME})?\s*)*\)"
_CONDITION: Final = rf"(?:\s*=\s*|\s*==\s*|\s*!=\s*)(?:{_NAME})?|\s+(?:not)?in\s*{_VALUES}|\s*[<>]\s*-?\d+"
# Not compiled before they are needed: that takes as long as to import three modules.
_LABELS: Final = rf"(?:!\s*{_LABEL}|{_LABEL}(?:{_CONDITION})?)(?:\s*,\s*(?:!\s*{_LABEL}|{_LABEL}(?:{_CONDITION})?))*"
_FIELD: Final = r"\s*[^=!,\s]+(?:!=|==?)(?:[^,=\\]|\\[\\,=])*"
_FIELDS: Final = rf"{_FIELD}(?:,{_FIELD})*"


def check_labels(text: str) -> None:
    """Raise ValueError if no API server would accept a label selector."""
    if not re.fullmatch(_LABELS, text, re.ASCII):
        raise ValueError("a label selector is such as 'tier=gold', 'tier in (gold,silver)', 'tier' or '!tier'")


def check_fields(text: str) -> None:
    """Raise ValueError if no API server would accept a field selector."""
    if not re.fullmatch(_FIELDS, text):
        raise ValueError("a field selector is such as 'status.phase!=Succeeded' or 'metadata.name=x'")


def check_shards(text: str) -> None:
    """Raise ValueError if no API server would accept a shard selector."""
    ShardRanges.parse(text)


def _accept(text: str) -> None:
    """Accept any selector."""


class SelectorMapping(MutableMapping[_Key, str]):
    """Selectors by the kinds that they are for: ``selectors["example.com", "widgets"] = "tier=gold,!archived"``.

    Keys are the same as the positional arguments of decorators: a name; a group and a name; a group, a version and a
    name; or a function of the kind. The name may be EVERYTHING. Raises ConfigError for others, for empty values and
    values that are not strings, and for those for which *check* raises ValueError.
    """

    def __init__(self, selectors: Mapping[Any, str] | None = None, *, check: Callable[[str], None] = _accept) -> None:
        self._selectors: dict[Selector, str] = {}
        self._check = check
        self.update(selectors or {})

    def collect(self, resource: Resource) -> list[str]:
        """Return the selectors for a kind, in any version: all of them have to match."""
        known = dataclasses.replace(resource, preferred=True)
        return list(dict.fromkeys(text for selector, text in self._selectors.items() if selector.matches(known)))

    def __getitem__(self, key: _Key) -> str:
        return self._selectors[_parse(key)]

    def __setitem__(self, key: _Key, value: str) -> None:
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"The selector for {key!r} is {value!r}, but it must be a non-empty string.")
        try:
            self._check(value.strip())
        except ValueError as error:
            raise ConfigError(f"The selector for {key!r} cannot work: {value!r}. {error}.") from error
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
    if isinstance(key, str) and "/" in key:
        key = tuple(key.rsplit("/", 1))
    try:
        return Selector.parse(*key) if isinstance(key, tuple) else Selector.parse(key)
    except TypeError as error:
        raise ConfigError(f"{key!r} does not select a kind: {error}") from error
