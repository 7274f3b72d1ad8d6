"""Announcements that the state of an operator may have changed, for those who watch it live.

Nothing is kept for nobody: without a watcher, an announcement is a loop over an empty collection.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from trioperator._concurrency.pulse import Pulse
from trioperator._kube.objects import RawObject
from trioperator._runtime.watching.reflector import Observer


class Changes:
    """A signal for any number of watchers. Announcements add up until a watcher waits again."""

    def __init__(self) -> None:
        self._watchers: dict[int, Pulse] = {}

    def announce(self) -> None:
        """Wake all watchers. Never waits."""
        for pulse in self._watchers.values():
            pulse.set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[Pulse]:
        """Yield a pulse that is set by each announcement within the block."""
        pulse = Pulse()
        self._watchers[id(pulse)] = pulse
        try:
            yield pulse
        finally:
            del self._watchers[id(pulse)]

    def observe(self, inner: Observer) -> AnnouncingObserver:
        """Return an observer of a watch that passes on to *inner* what it sees, and announces it."""
        return AnnouncingObserver(inner, self)


class AnnouncingObserver:
    """Observer of a watch that announces each watch event, and each complete list."""

    def __init__(self, inner: Observer, changes: Changes) -> None:
        self._inner = inner
        self._changes = changes

    def observe(self, type: str | None, obj: RawObject) -> str:
        """See :meth:`ObjectCache.observe`."""
        key = self._inner.observe(type, obj)
        self._changes.announce()
        return key

    def replace(self, listed: Collection[str]) -> None:
        """See :meth:`ObjectCache.replace`."""
        self._inner.replace(listed)
        self._changes.announce()
