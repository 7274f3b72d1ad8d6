"""Shard selectors: ranges of hashes by which API servers divide objects (KEP-5866).

``shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')`` selects the objects whose uids have a
hash in the lower half, by FNV-1a with 64 bits; several ranges are joined by ``||``. Servers that do not know shard
selectors ignore them, and send all objects: so whoever uses one has to compare the hashes, too.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterable
from typing import Final

import msgspec

#: Number of hashes: they are less than that.
SPACE: Final = 2**64
UID: Final = "object.metadata.uid"
NAMESPACE: Final = "object.metadata.namespace"

_OFFSET: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
# Ranges in one selector, at most: URLs are limited, and too much is better than an error.
_MAX_RANGES: Final = 64
_CALL: Final = re.compile(r"shardRange\(\s*([\w.]*)\s*,\s*(['\"])(\w*)\2\s*,\s*(['\"])(\w*)\4\s*\)", re.ASCII)
_HEX: Final = re.compile(r"0x(?:[0-9a-f]{16}|10{16})")


@functools.lru_cache(maxsize=4096)
def hash_text(text: str) -> int:
    """Return the hash of a uid or a namespace: FNV-1a, as API servers have it."""
    found = _OFFSET
    for byte in text.encode(errors="surrogatepass"):
        found = (found ^ byte) * _PRIME % SPACE
    return found


class ShardRanges(msgspec.Struct, frozen=True):
    """Ranges of hashes of a *field*: from a start up to an end that is not in it. They are sorted, and disjoint."""

    ranges: tuple[tuple[int, int], ...] = ()
    field: str = UID

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]], field: str = UID) -> ShardRanges:
        """Return the union of ranges."""
        joined: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            if joined and start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((start, end))
        return cls(tuple(joined), field)

    @classmethod
    def parse(cls, text: str) -> ShardRanges:
        """Parse a shard selector. Raises ValueError, with what is wrong."""
        fields, ranges = set[str](), []
        for part in text.split("||"):
            found = _CALL.fullmatch(part.strip())
            if found is None:
                raise ValueError(f"{part.strip()!r} is not shardRange({UID}, '0x…', '0x…')")
            field, start, end = found[1], found[3], found[5]
            if field not in (UID, NAMESPACE):
                raise ValueError(f"unsupported field path {field!r}; supported: {UID}, {NAMESPACE}")
            for number in (start, end):
                if not _HEX.fullmatch(number):
                    raise ValueError(f"{number!r} must be a 0x-prefixed 16-digit hex value, or '0x10000000000000000'")
            if int(start, 16) >= int(end, 16):
                raise ValueError(f"shard range start {start} must be less than end {end}")
            fields.add(field)
            ranges.append((int(start, 16), int(end, 16)))
        if len(fields) > 1:
            raise ValueError(f"all shard ranges must use the same field, got {' and '.join(sorted(fields))}")
        return cls.of(ranges, fields.pop())

    def __contains__(self, number: int) -> bool:
        index = bisect.bisect_right(self.ranges, number, key=lambda found: found[0]) - 1
        return index >= 0 and number < self.ranges[index][1]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __sub__(self, other: ShardRanges) -> ShardRanges:
        found = list(self.ranges)
        for start, end in other.ranges:
            found = [
                part
                for before, after in found
                for part in ((before, min(after, start)), (max(before, end), after))
                if part[0] < part[1]
            ]
        return ShardRanges(tuple(found), self.field)

    def __or__(self, other: ShardRanges) -> ShardRanges:
        return ShardRanges.of((*self.ranges, *other.ranges), self.field)

    def __and__(self, other: ShardRanges) -> ShardRanges:
        return self - (self - other)

    def __str__(self) -> str:
        ranges = self.ranges
        if len(ranges) > _MAX_RANGES:
            ranges = ((ranges[0][0], ranges[-1][1]),)
        return " || ".join(f"shardRange({self.field}, '0x{start:016x}', '0x{end:016x}')" for start, end in ranges)

    def selects(self, *, uid: str, namespace: str) -> bool:
        """Check whether an object is in the ranges."""
        return hash_text(uid if self.field == UID else namespace) in self


#: As good as nothing: for those who need a list and a watch, but no objects.
NOTHING: Final = ShardRanges(((0, 1),))


def find_shard(key: str, shards: int) -> int:
    """Return the shard of an object by its uid, if the hashes are divided into as many equal ranges."""
    return hash_text(key) * shards // SPACE if shards > 1 else 0


def range_of(shard: int, shards: int) -> tuple[int, int]:
    """Return the range of hashes of a shard."""
    return -(-shard * SPACE // shards), -(-(shard + 1) * SPACE // shards)
