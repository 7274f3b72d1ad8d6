"""Records of the ledger, some dozens of bytes each, and the page of an object that they are on.

A record is encoded once, at the end of a run, and is rarely read.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from trioperator._model.resource import Resource

# Limit of the records on a page, in bytes: with it, all that is kept of an object fits into 1 KiB.
_MAX_BYTES: Final = 736
# Bytes that a record takes besides its own while it is repeated.
_REPEATED: Final = 120
# Bytes in which the length of a record is stored, before the record.
_LENGTH: Final = 2
# Limits of a record: bytes in total, and bytes of a string where it would be larger. Bytes of an item besides strings.
_MAX_RECORD: Final = 480
_MAX_TEXT: Final = 120
_ITEM: Final = 16

_pack: Final = msgspec.msgpack.Encoder().encode

#: The kind of an object, its namespace and its name.
Subject: TypeAlias = tuple[Resource, str, str]
#: Causes, changes, and a call or a request, as tuples of the fields of :class:`Cause`, :class:`Change`, :class:`Call`
#: and :class:`Request`.
Causes: TypeAlias = list[tuple[str, str | int | None]]
Changes: TypeAlias = tuple[tuple[str, str | None], ...]
Note: TypeAlias = tuple[str, int | str, int | str]


class Cause(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why an object is reconciled: a watch event with its resource version, or anything else by its name."""

    what: str
    detail: str | int | None = None


class Change(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A field that has changed, and the manager that has changed it, if that is known. Without a field: any."""

    field: str
    manager: str | None = None


class Call(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A call of a handler: its milliseconds, and what has become of it."""

    handler: str
    milliseconds: int
    result: str


class Request(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request with its status; 0 if there was no response."""

    method: str
    path: str
    status: int


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A run of an object, or several equal ones: *times* in a row until *last*. Times are on Trio's clock."""

    began: float
    milliseconds: int
    causes: tuple[Cause, ...]
    changes: tuple[Change, ...]
    notes: tuple[Note, ...]
    omitted: int = 0
    times: int = 1
    last: float = 0.0

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of handlers."""
        return tuple(note for note in map(_read, self.notes) if isinstance(note, Call))

    @property
    def requests(self) -> tuple[Request, ...]:
        """The requests."""
        return tuple(note for note in map(_read, self.notes) if isinstance(note, Request))


def _read(note: Note) -> Call | Request:
    """Return the call or the request of a note: only a call has a number in the middle."""
    if isinstance(note[1], int):
        return msgspec.convert(note, Call)
    return msgspec.convert(note, Request)


_decode: Final = msgspec.msgpack.Decoder(Record).decode


def _encode(record: tuple[Any, ...]) -> bytes:
    """Encode a record, or as much of it as there is room for, after its length."""
    encoded = _pack(record)
    if len(encoded) > _MAX_RECORD:
        encoded = _encode_part(record)
    return len(encoded).to_bytes(_LENGTH) + encoded


def _encode_part(record: tuple[Any, ...]) -> bytes:
    """Encode a record that is too large: strings are truncated, and items beyond the limit are counted."""
    began, spent, causes, changes, notes, *others = record
    omitted = others[0] if others else 0
    room, kept = _MAX_RECORD, list[list[Any]]()
    for items in (causes, changes, notes):
        kept.append([])
        for item in items:
            texts = [_cut(each) if isinstance(each, str) else each for each in item]
            room -= _ITEM + sum(len(each.encode()) for each in texts if isinstance(each, str))
            if room > 0:
                kept[-1].append(texts)
            else:
                omitted += 1
    return _pack((began, spent, *kept, omitted))


def _cut(text: str) -> str:
    return text.encode()[:_MAX_TEXT].decode(errors="ignore")


class Page:
    """The newest records of one object, and counts since the page was begun.

    ``writes`` are requests other than GET that have succeeded, ``runs`` are reconciles that called a handler or sent a
    request, and ``idle`` those that found nothing to do.
    """

    __slots__ = ("_records", "_repeated", "idle", "runs", "subject", "writes")

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.writes = self.runs = self.idle = 0
        self._records = b""  # the newest first
        self._repeated: tuple[object, float, float, bytes, int] | None = None  # what, when, when last, it, how often

    def add(self, record: tuple[Any, ...], writes: int) -> None:
        """Add the record of a run that has called or requested anything; drop the oldest ones that have no room."""
        if self._repeated is not None:
            self._flush()
        self.runs += 1
        if writes:
            self.writes += writes
        encoded = _pack(record)
        if len(encoded) > _MAX_RECORD:
            encoded = _encode_part(record)
        # To cut off what is too much takes less than to find where the oldest record begins that has room.
        self._records = (len(encoded).to_bytes(_LENGTH) + encoded + self._records)[:_MAX_BYTES]

    def add_idle(self, what: object, now: float, record: tuple[Any, ...]) -> None:
        """Add the record of a run that has found nothing to do."""
        self.idle += 1
        self.repeat(what, now, record)

    def repeat(self, what: object, now: float, record: tuple[Any, ...], *, writes: int = 0) -> None:
        """Add a record, or count it if it is the same as the one before."""
        self.writes += writes
        if self._repeated is not None and self._repeated[0] == what:
            _, began, _, first, times = self._repeated
            self._repeated = what, began, now, first, times + 1
            return
        if self._repeated is not None:
            self._flush()
        encoded = _encode(record)
        self._records = self._records[: _MAX_BYTES - _REPEATED - len(encoded)]
        self._repeated = what, now, now, encoded, 1

    def _flush(self) -> None:
        self._records = (self._encode_repeated() + self._records)[:_MAX_BYTES]
        self._repeated = None

    def _encode_repeated(self) -> bytes:
        assert self._repeated is not None
        _, _, last, first, times = self._repeated
        if times == 1:
            return first
        encoded = _pack(msgspec.structs.replace(_decode(first[_LENGTH:]), times=times, last=last))
        return len(encoded).to_bytes(_LENGTH) + encoded

    @property
    def records(self) -> list[Record]:
        """The newest records, in order."""
        found = list[Record]()
        left = self._records if self._repeated is None else self._encode_repeated() + self._records
        while len(left) >= (end := _LENGTH + int.from_bytes(left[:_LENGTH])):
            found.append(_decode(left[_LENGTH:end]))
            left = left[end:]
        return found[::-1]
