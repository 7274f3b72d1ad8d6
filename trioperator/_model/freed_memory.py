"""Freed memory: what large lists and objects took is returned to the system when they are no longer used."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Any, Final

import msgspec

#: Whether all memory of Python is the C library's. Else most of what is freed is Python's own, which nobody can return.
IS_PLAIN: Final = os.environ.get("PYTHONMALLOC") == "malloc"

# How many small objects make room for others, of each size up to 512 bytes, in units of 64 bytes.
_ROOM: Final = 1000
# JSON of 50 keys, of which there are as many different ones as there are numbers.
_KEYS: Final = b"{" + b",".join(b'"%d-NUMBER":0' % number for number in range(50)) + b"}"


@contextlib.contextmanager
def leaving_room() -> Iterator[None]:
    """Let what is made after the block lie among older objects, rather than among the many that are made within it.

    Python returns memory in areas of a MiB. Whatever small object is made after a huge one has taken up all gaps in the
    memory that is used lies behind that, and keeps an area when the huge one is gone: ten of them kept 30 to 60 areas.
    """
    room = None if IS_PLAIN else _take_room()
    try:
        yield
    finally:
        del room
        if not IS_PLAIN:
            for number in range(160):  # msgspec keeps the last 1,024 keys, which were made within the block
                msgspec.json.decode(_KEYS.replace(b"NUMBER", b"%d" % number))


def order_room() -> None:
    """Let the next objects be made at the lowest addresses that are free: the highest are those of what is just gone.

    Of the memory for objects of a size, Python takes next what was freed last.
    """
    if not IS_PLAIN:
        for blocks in _take_room():
            blocks.sort(key=id)


def _take_room() -> list[list[Any]]:
    """Return what takes up the memory that is freed first: of each size, and of each type of which some are kept."""
    return [
        [object() for _ in range(_ROOM)],
        [[None] for _ in range(_ROOM)],
        [{"": None} for _ in range(_ROOM)],
        [2**20 + number for number in range(_ROOM)],
        *([bytes(size - 33) for _ in range(_ROOM * 64 // size)] for size in range(48, 513, 16)),
    ]


def return_memory() -> None:
    """Let the C library return to the system what it keeps for later, if it is glibc. It takes a millisecond or two.

    Else it keeps what pages of lists were in, as smaller blocks that are still used lie between, or after them.
    """
    with contextlib.suppress(AttributeError, OSError):  # of other libraries
        ctypes.CDLL(None).malloc_trim(0)
