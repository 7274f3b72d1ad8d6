"""Resource versions as numbers that grow, so that it can be told which state of an object is newer.

As a rule they are numbers. Opaque ones, of aggregated APIs, are numbered by their arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import trio

from trioperator._runtime.cache.watch_event import WatchEvent


def _do_nothing() -> None:
    pass


class Versioned(Protocol):
    """An object with its newest known version."""

    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def events(self) -> Collection[WatchEvent] | None: ...


class Versions:
    """Versions of the objects of one cache. After an own write, its opaque version is expected to come by the watch.

    That is waited for during *consistency_timeout* in seconds. ``are_opaque`` is whether any version was no number.
    ``echoes`` are watch events of own writes that were dropped. ``on_restored`` is called when etcd was restored.
    """

    def __init__(self, *, consistency_timeout: float) -> None:
        self._consistency_timeout = consistency_timeout
        self._expected: dict[str, tuple[str, float]] = {}  # the version, and until when, by the uid of the object
        self._seen: dict[str, str] = {}  # the newest opaque version, by the uid
        self._count = 0
        self.are_opaque = False
        self.echoes = 0
        self._written = -1
        self.on_restored: Callable[[], None] = _do_nothing

    def number(self, state: Versioned, type: str | None, text: str) -> int:
        """Return the version of a watch event, or with type None the version of an object of a list."""
        if self._expected and state.uid in self._expected:
            expected, until = self._expected[state.uid]
            if text != expected and type is not None and trio.current_time() < until:
                return state.version
            del self._expected[state.uid]
            if text == expected:
                return state.version
        try:
            return int(text)
        except ValueError:
            self._seen[state.uid] = text
            return self._next()

    def number_written(self, state: Versioned, text: str) -> int:
        """Return the version that an own write has led to."""
        try:
            version = int(text)
        except ValueError:
            # Opaque versions cannot be compared: until the watch brings this very one, its events are older.
            for event in state.events or ():
                if event.object is not None and event.object.resource_version == text:
                    return event.version  # it came before the response
            if self._seen.get(state.uid) == text:
                return state.version  # it has changed nothing
            self._seen[state.uid] = text
            self._expected[state.uid] = text, trio.current_time() + self._consistency_timeout
            return self._next()
        self._written = max(self._written, version)
        return version

    def count_echoes(self, number: int) -> None:
        """Count watch events of own writes that were dropped."""
        self.echoes += number

    def report_restores(self, listener: Callable[[], None]) -> None:
        """Call the listener when the response to a write shows that etcd was restored."""
        self.on_restored = listener

    def is_expected(self, uid: str) -> bool:
        """Check whether the version of an own write of an object is expected to come by the watch."""
        return uid in self._expected

    def newest_written(self) -> int:
        """Return the newest version that own writes have led to; -1 if there were none, or they are opaque."""
        return self._written

    def forget_written(self) -> None:
        """Forget the versions of own writes, as etcd was restored."""
        self._written = -1

    def forget(self, uid: str) -> None:
        """Expect no version for an object: it is gone, or the next state counts whatever it is."""
        self._expected.pop(uid, None)
        self._seen.pop(uid, None)

    def number_list(self, text: str) -> int:
        """Return the version of a list: where versions are opaque, the newest arrival's."""
        try:
            return int(text)
        except ValueError:
            return self._count

    def _next(self) -> int:
        self._count += 1
        self.are_opaque = True
        return self._count
