"""YAML that the API accepts: the subset that JSON can represent, with the error messages of the real server. Pure.

The values are built from the parser's events: deep nesting, and aliases that expand to too much, are errors before they
cost anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import msgspec

from ..model.json_text import has_too_many_commas, parse_float, parse_integer
from ..model.nesting import BODY_DEPTH_LIMIT, TOO_DEEP, TOO_MANY_VALUES, VALUES_LIMIT, is_too_deep
from ..model.quoting import quote
from .yaml_scalars import key_of, scalar_value

_FILE_LIMIT: Final = 10 * VALUES_LIMIT


class YamlError(ValueError):
    """Raised when the document is not valid YAML, with the message of the real server."""


def load_yaml(body: bytes) -> tuple[Any, list[str]]:
    """Decode the first document in the body; return it, and the errors of strict decoding: duplicate keys.

    The last of duplicate keys wins. JSON is YAML. Like the real server, it does not even parse further documents.
    """
    if body.lstrip()[:1] in {b"{", b"["}:
        if has_too_many_commas(body):
            raise YamlError(f"yaml: {TOO_MANY_VALUES}")
        try:
            return _load_json(body), []
        except RecursionError:
            raise YamlError(f"yaml: {TOO_DEEP}") from None
        except ValueError:
            pass  # flow-style YAML, duplicate keys, or invalid
    return next(_decode(body), (None, []))


def load_documents(text: str) -> list[Any]:
    """Decode all documents of a file, which may be larger than those in requests."""
    return [document for document, _ in _decode(text, _FILE_LIMIT)]


def _load_json(body: bytes) -> Any:
    value = json.loads(
        body,
        object_pairs_hook=_unique_keys,
        parse_float=parse_float,
        parse_int=parse_integer,
        parse_constant=_reject_constant,
    )
    if is_too_deep(value, BODY_DEPTH_LIMIT):
        raise RecursionError
    if b"\\u" in body:
        msgspec.json.encode(value)  # raises ValueError for halves of surrogate pairs
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("duplicate key")
    return result


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _decode(text: bytes | str, limit: int = VALUES_LIMIT) -> Iterator[tuple[Any, list[str]]]:
    import yaml

    try:
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        while (event := loader.get_event()) is not None:
            if isinstance(event, yaml.DocumentStartEvent):
                builder = _Builder(loader.get_event, limit)
                yield builder.build(loader.get_event()), builder.duplicates
    except yaml.MarkedYAMLError as error:
        raise YamlError(f"yaml: {_line(error)}{error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise YamlError(f"yaml: {error}") from None


class _Builder:
    """Builder of the value of one document. ``duplicates`` are the errors of strict decoding: duplicate keys."""

    def __init__(self, next_event: Callable[[], Any], limit: int) -> None:
        self.duplicates: list[str] = []
        self._next = next_event
        self._left = limit  # values that there may be still; keys count as well
        self._anchors: dict[str, Any] = {}

    def build(self, event: Any, depth: int = 0) -> Any:
        """Return the value that begins with the event. Raises ValueError, or the errors of the parser."""
        import yaml

        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise ValueError(f"unknown anchor '{event.anchor}' referenced")
            return self._copy(self._anchors[event.anchor], depth)
        self._count(depth)
        if isinstance(event, yaml.ScalarEvent):
            value = scalar_value(event.value, event.tag, is_plain=event.implicit[0])
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(following := self._next(), yaml.SequenceEndEvent):
                value.append(self.build(following, depth + 1))
        else:
            value = {}
            while not isinstance(following := self._next(), yaml.MappingEndEvent):
                self._add(value, following, depth + 1)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _add(self, target: dict[str, Any], event: Any, depth: int) -> None:
        """Add the field of an object that begins with the event of its key."""
        key = key_of(self.build(event, depth))
        following = self._next()
        value = self.build(following, depth)
        if key == "<<" and getattr(event, "implicit", (False,))[0]:
            parts = value[::-1] if isinstance(value, list) else [value]
            if not all(isinstance(part, dict) for part in parts):
                raise ValueError("map merge requires map or sequence of maps as the value")
            for part in parts:
                target.update(part)
            return
        if key in target:
            self.duplicates.append(f"line {following.start_mark.line + 1}: key {quote(key)} already set in map")
        target[key] = value

    def _copy(self, value: Any, depth: int) -> Any:
        self._count(depth)
        if isinstance(value, dict):
            return {key: self._copy(item, depth + 1) for key, item in value.items()}
        return [self._copy(item, depth + 1) for item in value] if isinstance(value, list) else value

    def _count(self, depth: int) -> None:
        self._left -= 1
        if depth >= BODY_DEPTH_LIMIT:
            raise ValueError(TOO_DEEP)
        if self._left < 0:
            raise ValueError(TOO_MANY_VALUES)


def _line(error: Any) -> str:
    """Return the line that the real server reports: the start of the context, zero- or one-based."""
    lines = [mark.line for mark in (error.context_mark, error.problem_mark) if mark is not None and mark.line]
    if not lines:
        return ""
    is_scanner = type(error).__name__ == "ScannerError"
    return f"line {lines[0] + is_scanner}: "
