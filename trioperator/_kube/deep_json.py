"""JSON that is nested too deeply for the decoder, taken apart without recursion.

The decoder gives up after about 1,000 levels, and Kubernetes stores objects with 10,000. Nothing here runs unless the
decoder has given up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

#: Errors of the decoder for invalid JSON, and for JSON that is nested too deeply.
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_TEXT = rb'"(?:[^"\\]++|\\.)*+"'
_STRING = re.compile(_TEXT, re.DOTALL)
_NUMBER = re.compile(rb"[\w.+-]++")  # or a literal
_NAME = re.compile(rb"\s*+(" + _TEXT + rb")\s*+:\s*+", re.DOTALL)
_OPENING = {b"{": re.compile(rb"\s*+\{\s*+(\})?"), b"[": re.compile(rb"\s*+\[\s*+(\])?")}
_NEXT = re.compile(rb"\s*+(?:,\s*+|([}\]]))")
# Everything up to the next bracket outside of strings; neither group where the JSON ends before one.
_BRACKET = re.compile(rb'[^"{}\[\]]*+(?:' + _TEXT + rb'[^"{}\[\]]*+)*+(?:([{\[])|([}\]])|"|\Z)', re.DOTALL)

_decode_any: Final = msgspec.json.Decoder().decode
_decode_name: Final = msgspec.json.Decoder(str).decode


def split_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the members of a JSON object in order, with undecoded values. Raises ``msgspec.DecodeError``."""
    position = _enter(data, b"{")
    while position:
        name = _match(_NAME, data, position)
        end = _find_end(data, name.end())
        yield _decode_name(name[1]), data[name.end() : end]
        position = _go_on(data, end)


def split_items(data: bytes) -> Iterator[bytes]:
    """Yield the items of a JSON array in order, undecoded. Raises ``msgspec.DecodeError``."""
    position = _enter(data, b"[")
    while position:
        end = _find_end(data, position)
        yield data[position:end]
        position = _go_on(data, end)


def decode_shallow(data: bytes, names: Collection[str]) -> dict[str, Any]:
    """Decode some members of a JSON object one by one; leave out those that are nested too deeply.

    Raises ``msgspec.DecodeError``.
    """
    found: dict[str, Any] = {}
    for name, value in split_members(data):
        if name in names:
            try:
                found[name] = _decode_any(value)
            except RecursionError:
                continue
    return found


def _match(pattern: re.Pattern[bytes], data: bytes, position: int) -> re.Match[bytes]:
    found = pattern.match(data, position)
    if found is None:
        raise msgspec.DecodeError(f"JSON is malformed (byte {position})")
    return found


def _enter(data: bytes, bracket: bytes) -> int:
    """Return where the first value begins, 0 if there is none."""
    found = _match(_OPENING[bracket], data, 0)
    return 0 if found[1] else found.end()


def _go_on(data: bytes, position: int) -> int:
    """Return where the next value begins, 0 after the last one."""
    found = _match(_NEXT, data, position)
    return 0 if found[1] else found.end()


def _find_end(data: bytes, position: int) -> int:
    """Return where the value ends that begins at *position*."""
    first = data[position : position + 1]
    if first not in (b"{", b"["):
        return _match(_STRING if first == b'"' else _NUMBER, data, position).end()
    depth = 0
    for bracket in _BRACKET.finditer(data, position):
        if bracket.lastindex == 1:
            depth += 1
        elif bracket.lastindex == 2:
            depth -= 1
            if not depth:
                return bracket.end()
        else:
            break
    raise msgspec.DecodeError(f"JSON is malformed: the value at byte {position} has no end")
