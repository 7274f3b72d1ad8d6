"""Building the value of a YAML document from the events of its parser, without recursion. Pure.

Aliases are copied. As in the real server's YAML library, the more values a document has, the fewer of them may come
from aliases.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from ..model.nesting import BODY_DEPTH_LIMIT, TOO_DEEP, TOO_MANY_VALUES, VALUES_LIMIT, depth_of
from .yaml_scalars import key_string, scalar_value

# The fraction of values from aliases falls from 99 % in documents of 400,000 values to 10 % in documents of 4,000,000.
_SMALL: Final = 400_000
_LARGE: Final = 4_000_000
_MERGE: Final = "tag:yaml.org,2002:merge"


class DocumentError(ValueError):
    """Raised when JSON cannot represent the document, or it exceeds a limit."""


@dataclasses.dataclass(slots=True)
class _Frame:
    """A list or an object that is being built. ``key`` is the key of the next value of an object."""

    value: Any
    start: int  # the number of values before this one
    anchor: str | None
    key: str | None = None
    shown_key: str = ""
    is_merge: bool = False
    line: int = 0


class DocumentBuilder:
    """Builder of one document. ``duplicates`` are the errors of strict decoding: duplicate keys."""

    def __init__(self, loader: Any, limit: int = VALUES_LIMIT) -> None:
        self.duplicates: list[str] = []
        self._loader = loader
        self._limit = limit  # of values; keys count as well
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int] | None] = {}  # values and their sizes; None while being built
        self._count = 0  # of values
        self._aliased = 0  # of those, how many come from aliases

    def build(self) -> Any:
        """Return the value of the document. Raises DocumentError, ScalarError, or the errors of the parser."""
        import yaml

        next_event, scalar, alias = self._loader.get_event, yaml.ScalarEvent, yaml.AliasEvent
        mapping, sequence = yaml.MappingStartEvent, yaml.SequenceStartEvent
        while True:
            event = next_event()
            kind = type(event)
            if kind is scalar:
                done = self._add_scalar(event)
            elif kind is alias:
                done = self._add_alias(event)
            elif kind is mapping or kind is sequence:
                self._open(event, {} if kind is mapping else [])
                continue
            else:
                done = self._close(event)
            if not self._frames:
                return done

    def _open(self, event: Any, value: Any) -> None:
        if self._frames and isinstance(self._frames[-1].value, dict) and self._frames[-1].key is None:
            raise DocumentError("invalid map key: it is a map or a list")
        if len(self._frames) >= BODY_DEPTH_LIMIT:
            raise DocumentError(f"line {event.start_mark.line + 1}: {TOO_DEEP}")
        self._count_values(1)
        self._frames.append(_Frame(value, self._count - 1, event.anchor, line=event.start_mark.line + 1))
        if event.anchor:
            self._anchors[event.anchor] = None

    def _close(self, event: Any) -> Any:
        frame = self._frames.pop()
        if frame.anchor:
            self._anchors[frame.anchor] = (frame.value, self._count - frame.start)
        return self._add(frame.value, frame.line)

    def _add_scalar(self, event: Any) -> Any:
        self._count_values(1)
        frame = self._frames[-1] if self._frames else None
        tag, is_plain = event.tag, event.implicit[0]
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            self._set_key(frame, event.value, tag, is_plain=is_plain)
            if event.anchor:
                self._anchors[event.anchor] = (frame.key, 1)
            return None
        value = scalar_value(event.value, tag, is_plain=is_plain)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        return self._add(value, event.start_mark.line + 1)

    def _set_key(self, frame: _Frame, text: str, tag: str | None, *, is_plain: bool) -> None:
        frame.is_merge = text == "<<" and (is_plain or tag == _MERGE)
        frame.key, frame.shown_key = (text, text) if frame.is_merge else key_string(text, tag, is_plain=is_plain)

    def _add_alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise DocumentError(f"unknown anchor '{event.anchor}' referenced")
        target = self._anchors[event.anchor]
        if target is None:
            raise DocumentError(f"anchor '{event.anchor}' value contains itself")
        value, size = target
        self._count_values(size + 1, size)
        if len(self._frames) + depth_of(value) > BODY_DEPTH_LIMIT:
            raise DocumentError(f"line {event.start_mark.line + 1}: {TOO_DEEP}")
        frame = self._frames[-1] if self._frames else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            if isinstance(value, (dict, list)):
                raise DocumentError("invalid map key: it is a map or a list")
            self._set_key(frame, str(value), None, is_plain=False)
            return None
        return self._add(_copy(value), event.start_mark.line + 1)

    def _count_values(self, size: int, aliased: int = 0) -> None:
        self._count += size
        self._aliased += aliased
        if self._count > self._limit:
            raise DocumentError(TOO_MANY_VALUES)
        if self._aliased > 100 and self._count > 1000:
            share = min(max((self._count - _SMALL) / (_LARGE - _SMALL), 0), 1)
            if self._aliased / self._count > 0.99 - 0.89 * share:
                raise DocumentError("document contains excessive aliasing")

    def _add(self, value: Any, line: int) -> Any:
        """Add the value to the list or the object that it is in, if any. Return the value."""
        if not self._frames:
            return value
        frame = self._frames[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
            return value
        assert frame.key is not None
        if frame.is_merge:
            _merge(frame.value, value)
        else:
            if frame.key in frame.value:
                self.duplicates.append(f"line {line}: key {frame.shown_key} already set in map")
            frame.value[frame.key] = value
        frame.key = None
        return value


def _merge(target: dict[str, Any], value: Any) -> None:
    """Merge the object, or each of a list of objects, into the target."""
    parts = value[::-1] if isinstance(value, list) else [value]
    if not all(isinstance(part, dict) for part in parts):
        raise DocumentError("map merge requires map or sequence of maps as the value")
    for part in parts:
        target.update(part)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
