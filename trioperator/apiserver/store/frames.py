"""Format of data files: one line for each write, with a checksum that reveals an incomplete one. Pure.

A line is eight hexadecimal digits (the CRC-32 of the rest), a space, and JSON. The first line identifies the file; each
further line is a frame of changes that were written together, and is valid as a whole or not at all.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

FORMAT: Final = "trioperator cluster"
VERSION: Final = 1

#: The group and the plural name of the resource, the object's key, and its JSON or None if it was deleted.
Entry: TypeAlias = tuple[str, str, str, bytes | None]


class CorruptRecordError(ValueError):
    """Raised when the content is corrupt in a way that no incomplete write explains, or has another format."""


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: the format, and the number of objects in a rewritten file."""

    format: str
    version: int
    objects: int


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that were written together, and the revision after them."""

    revision: int
    changes: list[tuple[str, str, str, msgspec.Raw]] = []
    facts: dict[str, str] = {}


_NULL: Final = b"null"
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_OBJECT_DEPTH: Final = 4  # of the objects in a frame
_encode: Final = msgspec.json.Encoder().encode
_decode_head: Final = msgspec.json.Decoder(_Head).decode
_decode_frame: Final = msgspec.json.Decoder(Frame).decode


def encode_head(*, objects: int) -> bytes:
    """Return the first line of a file that starts with that number of objects."""
    return _line(_encode(_Head(format=FORMAT, version=VERSION, objects=objects)))


def encode_frame(revision: int, changes: Iterable[Entry], facts: Mapping[str, str]) -> bytes:
    """Return the line of the changes."""
    raw = [
        b"[%b,%b,%b,%b]" % (_encode(group), _encode(plural), _encode(key), _NULL if content is None else content)
        for group, plural, key, content in changes
    ]
    return _line(b'{"revision":%d,"changes":[%b],"facts":%b}' % (revision, b",".join(raw), _encode(facts)))


def read_frames(lines: Iterable[bytes]) -> Iterator[tuple[Frame, int]]:
    """Yield each frame and the offset of its end, up to an incomplete write.

    Raises CorruptRecordError if the first line is wrong, if valid lines follow an invalid one, or if objects that the
    first line announces are missing. There is at least one frame.
    """
    source = iter(lines)
    first = next(source, b"")
    payload = _payload(first)
    if payload is None:
        raise CorruptRecordError("its first line is not a data file's")
    missing = _read_head(payload)
    offset = start = len(first)
    for line in source:
        payload = _payload(line)
        if payload is None:
            if any(_payload(later) is not None for later in source):
                raise CorruptRecordError(f"the line at byte {offset} is invalid, but valid lines follow")
            break
        frame = _read_frame(payload, offset)
        missing -= len(frame.changes)
        offset += len(line)
        yield frame, offset
    if offset == start:
        raise CorruptRecordError("it ends after its first line")
    if missing > 0:
        raise CorruptRecordError(f"{missing} objects are missing from byte {offset} on")


def content_of(raw: msgspec.Raw) -> bytes | None:
    """Return the JSON of the object, or None if it was deleted."""
    content = bytes(raw)
    return None if content == _NULL else content


def _read_head(payload: bytes) -> int:
    try:
        head = _decode_head(payload)
    except msgspec.MsgspecError:
        raise CorruptRecordError("its first line is not a data file's") from None
    if head.format != FORMAT:
        raise CorruptRecordError("its first line is not a data file's")
    if head.version != VERSION:
        raise CorruptRecordError(f"its format version is {head.version}, but only {VERSION} is supported")
    return head.objects


def _read_frame(payload: bytes, offset: int) -> Frame:
    try:
        return _decode_frame(payload)
    except RecursionError:
        return _split_frame(payload, offset)
    except msgspec.MsgspecError as error:
        raise CorruptRecordError(f"the line at byte {offset} cannot be decoded: {error}") from None


def _split_frame(payload: bytes, offset: int) -> Frame:
    """Decode a frame with objects that are nested too deeply to be decoded: they are only cut out of it."""
    depth, start = 0, 0
    cuts: list[tuple[int, int]] = []  # the objects: the fourth items of the changes
    for token in _TOKEN.finditer(payload):
        mark = token.group()
        if mark in b"[{":
            depth += 1
            if depth == _OBJECT_DEPTH and mark == b"{":
                start = token.start()
        elif mark in b"]}":
            if depth == _OBJECT_DEPTH and mark == b"}":
                cuts.append((start, token.end()))
            depth -= 1
    parts, end = [], 0
    for number, cut in enumerate(cuts):
        parts += [payload[end : cut[0]], b"%d" % number]
        end = cut[1]
    try:
        frame = _decode_frame(b"".join([*parts, payload[end:]]))
    except msgspec.MsgspecError as error:
        raise CorruptRecordError(f"the line at byte {offset} cannot be decoded: {error}") from None
    contents = [payload[first:last] for first, last in cuts]
    changes = [
        (*name, raw if bytes(raw) == _NULL else msgspec.Raw(contents[int(bytes(raw))])) for *name, raw in frame.changes
    ]
    return msgspec.structs.replace(frame, changes=changes)


def _line(payload: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(payload), payload)


def _payload(line: bytes) -> bytes | None:
    """Return the payload of the line, or None if it is incomplete."""
    payload = line[9:-1]
    return payload if line == _line(payload) else None
