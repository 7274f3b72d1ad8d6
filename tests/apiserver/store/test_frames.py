"""Frames of a data file: remains of an interrupted write are dropped, any other corruption is an error."""

from __future__ import annotations

import io
import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator.apiserver.store.frames import CorruptRecordError, content_of, encode_frame, encode_head, read_frames

texts = st.text(max_size=5)
contents = st.none() | st.sampled_from([b"{}", b'{"a":"\\n"}', '{"ü":1}'.encode()])
changes = st.lists(st.tuples(texts, texts, texts, contents), max_size=4)
batch = st.tuples(st.integers(0, 2**60), changes, st.dictionaries(texts, texts, max_size=2))
batches = st.lists(batch, min_size=1, max_size=5)
Batches = list[tuple[int, list[tuple[str, str, str, bytes | None]], dict[str, str]]]


def write(batches: Batches) -> list[bytes]:
    return [encode_head(objects=0), *(encode_frame(*batch) for batch in batches)]


def read(content: bytes) -> tuple[Batches, int]:
    found, end = [], 0
    for frame, offset in read_frames(io.BytesIO(content)):
        end = offset
        entries = [(group, plural, key, content_of(raw)) for group, plural, key, raw in frame.changes]
        found.append((frame.revision, entries, frame.facts))
    return found, end


@given(batches)
def test_written_frames_are_read_back(batches: Batches) -> None:
    content = b"".join(write(batches))
    assert read(content) == (batches, len(content))


@given(batches, st.data())
def test_a_truncated_file_loses_only_the_unfinished_write(batches: Batches, data: st.DataObject) -> None:
    lines = write(batches)
    ends = list(itertools.accumulate(map(len, lines)))
    cut = data.draw(st.integers(ends[1], ends[-1]))
    whole = [end for end in ends if end <= cut]
    assert read(b"".join(lines)[:cut]) == (batches[: len(whole) - 1], whole[-1])


@given(batches, st.binary(min_size=1, max_size=40))
def test_garbage_at_the_end_is_dropped(batches: Batches, rubbish: bytes) -> None:
    content = b"".join(write(batches))
    assert read(content + rubbish) == (batches, len(content))


@given(batches.filter(lambda batches: len(batches) > 1), st.data())
def test_corruption_before_valid_frames_is_an_error(batches: Batches, data: st.DataObject) -> None:
    lines = write(batches)
    content = bytearray(b"".join(lines))
    at = data.draw(st.integers(len(lines[0]), len(content) - len(lines[-1]) - 2))
    content[at] ^= 0x01
    with pytest.raises(CorruptRecordError, match=r"line at byte \d+ is invalid, but valid lines follow"):
        read(bytes(content))


@pytest.mark.parametrize("content", [b"\n", b"hello\n", b"SQLite format 3\0", encode_frame(1, (), {}), b"\0" * 100])
def test_other_files_are_rejected(content: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="first line is not a data file's"):
        read(content)


def test_another_format_version_is_rejected() -> None:
    payload = b'{"format":"trioperator cluster","version":2,"objects":0}'
    with pytest.raises(CorruptRecordError, match="format version is 2, but only 1 is supported"):
        read(b"%08x %b\n" % (zlib.crc32(payload), payload))


@pytest.mark.parametrize("payload", [b"{}", b"[]", b'{"revision":1,"changes":[["a","b","c"]]}', b"\xff"])
def test_a_complete_line_with_invalid_content_is_an_error(payload: bytes) -> None:
    line = b"%08x %b\n" % (zlib.crc32(payload), payload)
    with pytest.raises(CorruptRecordError, match=r"line at byte \d+ cannot be decoded"):
        read(encode_head(objects=0) + line)


def test_a_file_with_only_a_header_is_an_error() -> None:
    with pytest.raises(CorruptRecordError, match="it ends after its first line"):
        read(encode_head(objects=0) + b"00000000 {")


def test_a_truncated_snapshot_is_an_error() -> None:
    entries = [("", "pods", f"default/{number}", b"{}") for number in range(4)]
    lines = [encode_head(objects=4), encode_frame(9, entries[:2], {}), encode_frame(9, entries[2:], {})]
    assert len(read(b"".join(lines))[0]) == 2
    with pytest.raises(CorruptRecordError, match="2 objects are missing from byte"):
        read(b"".join(lines[:2]) + lines[2][:-1])
