"""The file in which a cluster keeps its objects: a log of changes, begun anew from the objects when it has grown.

What has been answered is in the file: changes are gathered, and written and synced together before the answers leave.
Whoever comes while that is going on shares the next write. The file holds the newest objects and the revision counter;
history is not kept.

The module knows nothing of what objects mean. Everything that waits for the disk does so in a thread.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import trio

from trioperator.errors import ConfigError, DataFileError

from . import frames
from .frames import CorruptRecordError
from .storage import Change, Table

__all__ = ["DataFile"]

_log: Final = logging.getLogger(__name__)

_GROWTH: Final = 8 * 1024 * 1024  # bytes of changes before the file is begun anew; more if the objects take more
_PORTION: Final = 500  # objects in one frame of a file that is begun anew
_COPY: Final = ".new"  # what the file is called until it takes the place of the old one

_sync: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)  # not every system has the cheaper one

_Name: TypeAlias = tuple[str, str, str]  # group, plural, key


class DataFile:
    """An open data file, which no other process can open meanwhile.

    ``objects`` (JSON by group, plural name and key), ``facts`` and ``revision`` are its content, with what was noted.
    """

    def __init__(self, path: str, descriptor: int, *, growth: int = _GROWTH) -> None:
        self.path = path
        self.objects: dict[_Name, bytes] = {}
        self.facts: dict[str, str] = {}
        self.revision = 0
        self._descriptor = descriptor
        self._growth = growth
        self._basis = 0  # bytes of the objects that the file began with
        self._size = 0
        self._changes: dict[_Name, bytes | None] = {}
        self._new_facts: dict[str, str] = {}
        self._noted = 0  # so many changes were noted,
        self._kept = 0  # ... and of these so many are in the file
        self._failure: DataFileError | None = None
        self._is_writing = False
        self._written = trio.lowlevel.ParkingLot()
        self._limiter = trio.CapacityLimiter(1)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, growth: int = _GROWTH) -> DataFile:
        """Open and read the file, or make it, with rights for its owner only. It waits for the disk.

        A write that was not finished when a process was killed is dropped with a warning. Raises ConfigError if the
        file cannot be had, is none of ours, is damaged, or is in use.
        """
        real = os.path.realpath(path)
        try:
            descriptor = _open_locked(real)
        except OSError as error:
            raise ConfigError(f"The data file {real} cannot be opened: {error.strerror}.") from None
        found = cls(real, descriptor, growth=growth)
        try:
            if os.fstat(descriptor).st_size:
                found._read()
            else:
                found._begin_anew(0, [], {})
        except OSError as error:
            found.close()
            raise ConfigError(f"The data file {real} cannot be used: {error.strerror}.") from None
        except CorruptRecordError as error:
            found.close()
            raise ConfigError(
                f"The data file {real} is damaged, or is no data file of a cluster: {error}. It is left as it is."
            ) from None
        except ConfigError:
            found.close()
            raise
        return found

    def _read(self) -> None:
        end = 0
        with open(self._descriptor, "rb", closefd=False) as file:
            for frame, offset in frames.read_frames(file):
                for group, plural, key, raw in frame.changes:
                    content = frames.content_of(raw)
                    if content is None:
                        self.objects.pop((group, plural, key), None)
                    else:
                        self.objects[group, plural, key] = content
                self.facts.update(frame.facts)
                self.revision = frame.revision
                end = offset
        self._size = end
        self._basis = sum(map(len, self.objects.values()))
        rest = os.fstat(self._descriptor).st_size - end
        if rest:
            _log.warning("The last write to %s was not finished: %d bytes at its end are dropped.", self.path, rest)
            os.ftruncate(self._descriptor, end)
            os.fsync(self._descriptor)

    # -- noting and writing ---------------------------------------------------------------------------------------

    def observe(self, table: Table, change: Change) -> None:
        """Take a change: it is in the file when :meth:`flush` has returned."""
        name = (*table.resource, change.key)
        if change.new is None:
            self._changes[name] = None
            self.objects.pop(name, None)
        else:
            self._changes[name] = self.objects[name] = change.new.raw
        self.revision = change.revision
        self._noted += 1

    def note_fact(self, name: str, value: str) -> None:
        """Keep a text under a name, as :meth:`observe` keeps a change."""
        self.facts[name] = self._new_facts[name] = value
        self._noted += 1

    async def flush(self) -> None:
        """Wait until everything that was noted so far is in the file, and synced.

        Raises DataFileError if it cannot be written: there is nothing that could be promised from then on.
        """
        wanted = self._noted
        while self._kept < wanted:
            if self._failure is not None:
                raise self._failure
            if self._is_writing:
                await self._written.park()
            else:
                await self._write()

    async def _write(self) -> None:
        noted, changes, facts = self._noted, self._changes, self._new_facts
        write = self._plan(changes, facts)
        self._changes, self._new_facts = {}, {}
        self._is_writing = True
        try:
            # What has begun is waited for, also by who is cancelled: it takes no longer than the disk does.
            await trio.to_thread.run_sync(write, limiter=self._limiter)
            self._kept = noted
        except OSError as error:
            # After a failed sync nobody knows what is on the disk: another one that succeeds would mean nothing.
            self._failure = DataFileError(f"The data file {self.path} cannot be written: {error.strerror}.")
            raise self._failure from error
        finally:
            if self._kept < noted:
                self._changes = {**changes, **self._changes}
                self._new_facts = {**facts, **self._new_facts}
            self._is_writing = False
            self._written.unpark_all()

    def _plan(self, changes: dict[_Name, bytes | None], facts: dict[str, str]) -> Callable[[], None]:
        """Return what is to be done in a thread; it touches nothing that changes meanwhile."""
        revision = self.revision
        if self._size - self._basis > max(self._growth, self._basis):
            objects, all_facts = list(self.objects.items()), dict(self.facts)
            return lambda: self._begin_anew(revision, objects, all_facts)
        return lambda: self._append(
            frames.encode_frame(revision, ((*name, content) for name, content in changes.items()), facts)
        )

    def _append(self, frame: bytes) -> None:
        os.lseek(self._descriptor, self._size, os.SEEK_SET)
        _write_all(self._descriptor, [frame])
        _sync(self._descriptor)
        self._size += len(frame)

    def _begin_anew(self, revision: int, objects: list[tuple[_Name, bytes]], facts: dict[str, str]) -> None:
        """Write the objects to a file of their own, and put it in the place of the present one."""
        copy = os.open(self.path + _COPY, os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(copy, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = _write_all(copy, _whole_file(revision, objects, facts))
            os.fsync(copy)
            os.rename(self.path + _COPY, self.path)
            _sync_folder(self.path)
        except OSError:
            os.close(copy)
            raise
        os.close(self._descriptor)
        self._descriptor = copy
        self._size = self._basis = size

    def close(self) -> None:
        """Let go of the file. What was noted and not flushed is lost."""
        os.close(self._descriptor)


def _whole_file(revision: int, objects: list[tuple[_Name, bytes]], facts: dict[str, str]) -> Iterator[bytes]:
    yield frames.encode_head(objects=len(objects))
    yield frames.encode_frame(revision, (), facts)
    for at in range(0, len(objects), _PORTION):
        portion = objects[at : at + _PORTION]
        yield frames.encode_frame(revision, ((*name, content) for name, content in portion), {})


def _open_locked(path: str) -> int:
    """Open the file with a lock. It may have been put in place of another one meanwhile: then once more."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(0, "it is not a regular file")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise OSError(0, "another process is using it") from None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _write_all(descriptor: int, parts: list[bytes] | Iterator[bytes]) -> int:
    total = 0
    for part in parts:
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        total += len(part)
    return total


def _sync_folder(path: str) -> None:
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
