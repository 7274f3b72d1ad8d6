"""Data file of a cluster: a log of changes, which is rewritten from the objects when it has grown.

Every acknowledged write is in the file: changes are batched, then written and synced before their responses are sent.
Changes that arrive meanwhile share the next batch. The file has the newest objects and the revision counter, but no
history.

The module does not interpret objects. Disk I/O runs in a thread.
"""

from __future__ import annotations

import contextlib
import errno
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

_log: Final = logging.getLogger(__name__)

_GROWTH: Final = 8 * 1024 * 1024  # bytes of changes until the file is rewritten; more if the objects take more
_BATCH: Final = 500  # objects in one frame of a rewritten file
_COPY: Final = ".new"  # suffix of the rewritten file until it replaces the old one
_MODE: Final = 0o600
_FLAGS: Final = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW

_sync: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)  # cheaper, where available

_Name: TypeAlias = tuple[str, str, str]  # group, plural, key


class DataFile:
    """An open data file, locked against other processes.

    ``objects`` (JSON by group, plural name and key), ``facts`` and ``revision`` are its content, with pending changes.
    """

    def __init__(self, path: str, descriptor: int, *, growth: int = _GROWTH) -> None:
        self.path = path
        self.objects: dict[_Name, bytes] = {}
        self.facts: dict[str, str] = {}
        self.revision = 0
        self._descriptor = descriptor
        self._growth = growth
        self._base_size = 0  # bytes of the file when it was last rewritten
        self._size = 0
        self._changes: dict[_Name, bytes | None] = {}
        self._new_facts: dict[str, str] = {}
        self._noted = 0  # number of changes so far
        self._flushed = 0  # number of changes in the file
        self._failure: DataFileError | None = None
        self._is_writing = False
        self._written = trio.lowlevel.ParkingLot()
        self._limiter = trio.CapacityLimiter(1)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, growth: int = _GROWTH) -> DataFile:
        """Open and read the file, or create it. Only its owner may read it afterwards. Blocks on disk I/O.

        A write that a killed process has left incomplete is dropped with a warning. Raises ConfigError if the file
        cannot be opened, is not a data file, is corrupt, is in use, or is a symbolic link.
        """
        real = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(path))), os.path.basename(path))
        try:
            descriptor = _open_locked(real)
        except OSError as error:
            raise ConfigError(f"The data file {real} cannot be opened: {error.strerror}.") from None
        found = cls(real, descriptor, growth=growth)
        try:
            if os.fstat(descriptor).st_size:
                found._read()
            else:
                found._rewrite(0, [], {})
            os.fchmod(found._descriptor, _MODE)
        except OSError as error:
            found.close()
            raise ConfigError(f"The data file {real} cannot be used: {error.strerror}.") from None
        except CorruptRecordError as error:
            found.close()
            raise ConfigError(
                f"The data file {real} is corrupt, or not a data file of a cluster: {error}. It is not modified."
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
        self._base_size = sum(map(len, self.objects.values()))
        rest = os.fstat(self._descriptor).st_size - end
        if rest:
            _log.warning("The last write to %s is incomplete: dropped %d bytes at its end.", self.path, rest)
            os.ftruncate(self._descriptor, end)
            os.fsync(self._descriptor)

    # -- changes and writing --------------------------------------------------------------------------------------

    def observe(self, table: Table, change: Change) -> None:
        """Queue a change: it is in the file when :meth:`flush` returns."""
        name = (*table.resource, change.key)
        if change.new is None:
            self._changes[name] = None
            self.objects.pop(name, None)
        else:
            self._changes[name] = self.objects[name] = change.new.raw
        self.revision = change.revision
        self._noted += 1

    def set_fact(self, name: str, value: str) -> None:
        """Queue a named value that belongs to the cluster, as :meth:`observe` queues a change."""
        self.facts[name] = self._new_facts[name] = value
        self._noted += 1

    async def flush(self) -> None:
        """Wait until all changes so far are written and synced.

        Raises DataFileError if the file cannot be written, now and from then on.
        """
        wanted = self._noted
        while self._flushed < wanted:
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
            # Not cancellable: it takes no longer than the disk does.
            await trio.to_thread.run_sync(write, limiter=self._limiter)
            self._flushed = noted
        except OSError as error:
            # After a failed sync the content of the disk is unknown: a later success would mean nothing.
            self._failure = DataFileError(f"The data file {self.path} cannot be written: {error.strerror}.")
            raise self._failure from error
        finally:
            if self._flushed < noted:
                self._changes = {**changes, **self._changes}
                self._new_facts = {**facts, **self._new_facts}
            self._is_writing = False
            self._written.unpark_all()

    def _plan(self, changes: dict[_Name, bytes | None], facts: dict[str, str]) -> Callable[[], None]:
        """Return the function to run in a thread; it uses no state that changes meanwhile."""
        revision = self.revision
        if self._size - self._base_size > max(self._growth, self._base_size):
            objects, all_facts = list(self.objects.items()), dict(self.facts)
            return lambda: self._rewrite(revision, objects, all_facts)
        return lambda: self._append(
            frames.encode_frame(revision, ((*name, content) for name, content in changes.items()), facts)
        )

    def _append(self, frame: bytes) -> None:
        os.lseek(self._descriptor, self._size, os.SEEK_SET)
        _write_all(self._descriptor, [frame])
        _sync(self._descriptor)
        self._size += len(frame)

    def _rewrite(self, revision: int, objects: list[tuple[_Name, bytes]], facts: dict[str, str]) -> None:
        """Write the objects to a new file, and replace the current one by it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path + _COPY)  # of a process that was killed; or a link, which would lead elsewhere
        copy = os.open(self.path + _COPY, _FLAGS | os.O_EXCL, _MODE)
        try:
            fcntl.flock(copy, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = _write_all(copy, _file_content(revision, objects, facts))
            os.fsync(copy)
            os.rename(self.path + _COPY, self.path)
            _sync_folder(self.path)
        except OSError:
            os.close(copy)
            raise
        os.close(self._descriptor)
        self._descriptor = copy
        self._size = self._base_size = size

    def close(self) -> None:
        """Close the file. Changes that are not flushed are lost."""
        os.close(self._descriptor)


def _file_content(revision: int, objects: list[tuple[_Name, bytes]], facts: dict[str, str]) -> Iterator[bytes]:
    yield frames.encode_head(objects=len(objects))
    yield frames.encode_frame(revision, (), facts)
    for at in range(0, len(objects), _BATCH):
        batch = objects[at : at + _BATCH]
        yield frames.encode_frame(revision, ((*name, content) for name, content in batch), {})


def _open_locked(path: str) -> int:
    """Open and lock the file; try again if it was replaced in between."""
    while True:
        try:
            descriptor = os.open(path, _FLAGS, _MODE)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed") from None
            raise
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(0, "it is not a regular file")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
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
