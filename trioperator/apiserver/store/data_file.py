"""Data file of a cluster: a SQLite database with the newest objects and the revision counter, but no history.

Every acknowledged write is in the file: changes are batched, then committed before their responses are sent. Changes
that arrive meanwhile share the next commit.

The module does not interpret objects. Disk I/O runs in a thread, for which mock clocks wait.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import stat
from typing import Final, TypeAlias

import msgspec
import trio

from trioperator._concurrency.threads import run_in_thread
from trioperator.errors import ConfigError, DataFileError

from .storage import Change, Table

_APPLICATION: Final = 0x74726F63  # identifies the file, with the version of its format
_VERSION: Final = 1
_MODE: Final = 0o600
_TABLES: Final = (
    "CREATE TABLE objects (resource_group, plural, key, content BLOB, PRIMARY KEY (resource_group, plural, key))",
    "CREATE TABLE facts (name PRIMARY KEY, value)",
)
_REVISION: Final = "revision"  # the fact that has it

_Name: TypeAlias = tuple[str, str, str]  # group, plural, key


class _Batch(msgspec.Struct):
    """What is committed together: the new contents of objects, None for those that are gone, and facts."""

    changes: dict[_Name, bytes | None] = {}
    facts: dict[str, str] = {}

    def followed_by(self, later: _Batch) -> _Batch:
        """Return both in one."""
        return _Batch({**self.changes, **later.changes}, {**self.facts, **later.facts})


class DataFile:
    """An open data file, locked against other processes.

    ``objects`` (JSON by group, plural name and key), ``facts`` and ``revision`` are its content, with pending changes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.objects: dict[_Name, bytes] = {}
        self.facts: dict[str, str] = {}
        self.revision = 0
        self._database: sqlite3.Connection | None = None
        self._pending = _Batch()
        self._noted = 0  # number of changes so far
        self._flushed = 0  # number of changes in the file
        self._failure: DataFileError | None = None
        self._is_writing = False
        self._written = trio.lowlevel.ParkingLot()
        self._limiter = trio.CapacityLimiter(1)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> DataFile:
        """Open and read the file, or create it. Only its owner may read it afterwards. Blocks on disk I/O.

        Raises ConfigError if the file cannot be opened, is not a data file, is corrupt, is in use, or is a symbolic
        link.
        """
        real = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(path))), os.path.basename(path))
        found = cls(real)
        try:
            _create(real)
            found._open()
            os.chmod(real, _MODE)
        except OSError as error:
            found.close()
            raise ConfigError(f"The data file {real} cannot be opened: {error.strerror}.") from None
        except sqlite3.OperationalError as error:
            found.close()
            problem = "another process is using it" if "locked" in str(error) else str(error)
            raise ConfigError(f"The data file {real} cannot be opened: {problem}.") from None
        except sqlite3.DatabaseError as error:
            found.close()
            raise ConfigError(f"The data file {real} is corrupt, or not a data file of a cluster: {error}.") from None
        return found

    def _open(self) -> None:
        database = self._database = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA locking_mode = EXCLUSIVE")  # needs no other file, and lasts until it is closed
        kind = [database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        is_new = kind == [0, 0] and not database.execute("SELECT 1 FROM sqlite_master").fetchone()
        if not is_new and kind != [_APPLICATION, _VERSION]:
            raise sqlite3.DatabaseError("it is a database of something else")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN EXCLUSIVE")
        if is_new:
            database.execute(f"PRAGMA application_id = {_APPLICATION}")
            database.execute(f"PRAGMA user_version = {_VERSION}")
            for table in _TABLES:
                database.execute(table)
        database.execute("COMMIT")
        [[found]] = database.execute("PRAGMA quick_check(1)")
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        rows = database.execute("SELECT * FROM objects")
        self.objects = {(group, plural, key): content for group, plural, key, content in rows}
        self.facts = dict(database.execute("SELECT * FROM facts"))
        self.revision = int(self.facts.pop(_REVISION, 0))

    def observe(self, table: Table, change: Change) -> None:
        """Queue a change: it is in the file when :meth:`flush` returns."""
        name = (*table.resource, change.key)
        if change.new is None:
            self._pending.changes[name] = None
            self.objects.pop(name, None)
        else:
            self._pending.changes[name] = self.objects[name] = change.new.raw
        self.revision = change.revision
        self._noted += 1

    def set_fact(self, name: str, value: str) -> None:
        """Queue a named value that belongs to the cluster, as :meth:`observe` queues a change."""
        self.facts[name] = self._pending.facts[name] = value
        self._noted += 1

    async def flush(self) -> None:
        """Wait until all changes so far are committed.

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
        noted, batch, self._pending = self._noted, self._pending, _Batch()
        batch.facts[_REVISION] = str(self.revision)
        self._is_writing = True
        try:
            # Not cancellable: it takes no longer than the disk does.
            commit = functools.partial(self._commit, batch)
            await run_in_thread(commit, limiter=self._limiter, abandon_on_cancel=False)
            self._flushed = noted
        except sqlite3.Error as error:
            # After a failed sync the content of the disk is unknown: a later success would mean nothing.
            self._failure = DataFileError(f"The data file {self.path} cannot be written: {error}.")
            raise self._failure from error
        finally:
            if self._flushed < noted:  # it was cancelled before it began
                self._pending = batch.followed_by(self._pending)
            self._is_writing = False
            self._written.unpark_all()

    def _commit(self, batch: _Batch) -> None:
        assert self._database is not None
        run = self._database.executemany
        self._database.execute("BEGIN")
        stored = [(*name, raw) for name, raw in batch.changes.items() if raw is not None]
        run("REPLACE INTO objects VALUES (?, ?, ?, ?)", stored)
        gone = [name for name, raw in batch.changes.items() if raw is None]
        run("DELETE FROM objects WHERE (resource_group, plural, key) = (?, ?, ?)", gone)
        run("REPLACE INTO facts VALUES (?, ?)", list(batch.facts.items()))
        self._database.execute("COMMIT")

    def close(self) -> None:
        """Close the file. Changes that are not flushed are lost."""
        if self._database is not None:
            self._database.close()


def _create(path: str) -> None:
    """Create the file if there is none, for its owner only. Raises OSError if something else has its name."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE))
        return
    # It is not opened here: to close it again would release the lock of another user in this process.
    if stat.S_ISLNK(mode):
        raise OSError(0, "it is a symbolic link, which is not followed")
    if not stat.S_ISREG(mode):
        raise OSError(0, "it is not a regular file")
