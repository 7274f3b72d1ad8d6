"""Waiting for changes of source files, by watchfiles."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

import trio

from trioperator.errors import ConfigError

# Milliseconds: changes that follow each other within a step are taken together, for at most the first of these times.
_DEBOUNCE, _STEP = 1000, 50
# Milliseconds between polls, if polling is forced because changes are not reported: for example, on shared folders.
_POLL_DELAY: Final = 300
# Environment variable of watchfiles that forces polling.
_FORCE_POLLING: Final = "WATCHFILES_FORCE_POLLING"


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """State of files at some time, to find out whether any has changed since."""

    time: int
    stamps: Mapping[str, tuple[int, int]]

    @classmethod
    def take(cls, paths: Iterable[str]) -> Snapshot:
        """Return a snapshot of the modification times and sizes of files."""
        return cls(time.time_ns(), {path: _stamp(path) for path in paths})

    def find_changed(self, paths: Iterable[str]) -> str | None:
        """Return a file that has changed since, or None. Files that are not in the snapshot count if they are newer."""
        for path in sorted(paths):
            stamp = _stamp(path)
            if stamp != self.stamps[path] if path in self.stamps else stamp[0] > self.time:
                return path
        return None


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def check_installed() -> None:
    """Raise ConfigError if watchfiles is not installed."""
    try:
        import watchfiles  # noqa: F401 -- just to see whether it is there
    except ImportError:
        raise ConfigError("--reload needs the package watchfiles: pip install 'trioperator[reload]'.") from None


async def wait_for_change(known: Collection[str], roots: Iterable[str], before: Snapshot, *, new: bool = False) -> str:
    """Wait until one of the *known* files has changed since the snapshot *before*, and return it.

    With *new*, the other Python files in their directories and in the *roots* count, too.
    """
    from watchfiles._rust_notify import RustNotify  # documented; unlike awatch(), it says when it has begun

    polling = os.environ.get(_FORCE_POLLING, "").lower() not in ("", "false", "disable", "disabled")
    directories = sorted(filter(os.path.isdir, {*map(os.path.dirname, known), *roots}))
    with RustNotify(directories, False, polling, _POLL_DELAY, False, True) as notifier:
        changed = before.find_changed({*known, *_list_sources(directories)} if new else known)
        while changed is None:
            paths = await _watch(notifier.watch)
            changed = min((path for path in paths if path in known or (new and path.endswith(".py"))), default=None)
    return changed


def _list_sources(directories: Iterable[str]) -> Iterator[str]:
    for directory in directories:
        yield from (entry.path for entry in os.scandir(directory) if entry.name.endswith(".py"))


async def _watch(watch: Callable[[int, int, int, threading.Event], set[tuple[int, str]] | str]) -> set[str]:
    """Return the paths of the next changes, which are waited for in a thread; it ends with the task."""
    ended = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_set_when_cancelled, ended, name="end of the thread")
        found = await trio.to_thread.run_sync(watch, _DEBOUNCE, _STEP, 0, ended, limiter=trio.CapacityLimiter(1))
        nursery.cancel_scope.cancel(reason="files have changed")
    return set() if isinstance(found, str) else {path for _, path in found}


async def _set_when_cancelled(event: threading.Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        event.set()
