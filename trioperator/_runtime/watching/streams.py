"""Two streams of one collection, with different selectors, as one: for handlers that require objects of either.

Theory of operation
===================

Each stream has *members*: the objects that its list or its events have shown, and that have not left it. An object is
passed on while it is a member of any stream, in versions that only grow: they order the events of both, as each stream
has the events of an object in their order, and is as late as it likes.

==================================================  ==================================================================
what a stream shows                                 what is passed on
==================================================  ==================================================================
an object that is a member of none                  an addition, unless it is older than the deletion that was passed
                                                    on last: then this stream is late, and will show that, too
a newer version of one that is a member of any      a change, also where the object has entered this stream
a version that is not newer                         nothing: the other stream has shown it
a deletion, of a member of the other, too           nothing: it has left this stream, or the other one will show that
a deletion of the last member                       the deletion; if a newer version is known, this stream is late, and
                                                    the object is missing in what would be listed now
a complete list                                     the members of all streams, once each of them has been listed
anything, after the other one has noticed that      nothing, until it lists what there is now
etcd was restored
==================================================  ==================================================================

An object that enters one stream by leaving the other may leave first. That looks like a deletion until the other stream
shows it, as leaving a selector always does, and is for the deletion checker to tell.

Objects without uids, or with opaque versions, cannot be ordered like that. And objects that are in both selections are
received twice: when both are listed, the server is asked how many objects there are, and if fewer are in none of the
selections than in both, all of them together are less. In either case, one stream takes the place of both.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

import trio

from trioperator._kube.api_client import ApiClient
from trioperator._kube.objects import RawObject
from trioperator._logs import get_logger
from trioperator._runtime.watching.reflector import Observer
from trioperator.errors import TrioperatorError

_logger = get_logger("trioperator.runtime.watching")

# Limit of the deleted objects that are remembered, for streams that are late.
_MAX_REMEMBERED: Final = 10_000


class RewindableObserver(Observer, Protocol):
    """An observer that can take a list that is older than what was seen."""

    def rewind(self) -> None: ...


class _Stream:
    """The observer of one of the streams."""

    def __init__(self, streams: Streams) -> None:
        self.members: set[str] = set()
        self.is_listed = False
        self.is_behind = False  # etcd was restored, and it has not begun to list what there is now
        self._streams = streams

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take a watch event, or with type None an object of a list. Returns the object's key."""
        return obj.key if self.is_behind else self._streams.observe(self, type, obj)

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list."""
        self.members, self.is_listed = set(listed), True
        self._streams.take_lists()

    def rewind(self) -> None:
        """Take the next list as it is, though it is older than what was seen."""
        if self.is_behind:
            self.is_behind = False  # the other stream has noticed it first
        else:
            self._streams.rewind(self)


class Streams:
    """Junction of two streams for an *observer*."""

    def __init__(self, observer: RewindableObserver) -> None:
        self.redundant = trio.Event()  # one stream of all objects is to take the place of both
        self.first = _Stream(self)
        self.second = _Stream(self)
        self._listed = trio.Event()
        self._observer = observer
        self._streams: tuple[_Stream, ...] = self.first, self.second
        self._versions: dict[str, int] = {}  # of members that were passed on
        self._deleted: dict[str, int] = {}  # the versions of deletions that were passed on, the latest one last

    async def compare(self, client: ApiClient, path: str) -> None:
        """Count the objects when both streams are listed, to find out whether all of them together are less."""
        await self._listed.wait()
        if not (overlap := len(self.first.members & self.second.members)):
            return
        try:
            page = await client.retrying(()).list_page(path, limit=1)
        except TrioperatorError as error:
            _logger.debug("The objects at %s cannot be counted, and remain in two streams: %s", path, error)
            return
        if page.next and page.remaining is None:
            return
        total = len(page.items) + len(page.broken) + (page.remaining or 0)
        if total - len(self._members) < overlap:
            self.redundant.set()

    def observe(self, stream: _Stream, type: str | None, obj: RawObject) -> str:
        """Take what a stream shows, and pass on what is new. Returns the object's key."""
        key = obj.key
        if not obj.uid or not obj.resource_version.isdecimal():
            self.redundant.set()
        version = int(obj.resource_version) if obj.resource_version.isdecimal() else 0
        if type == "DELETED":
            stream.members.discard(key)
            if not any(key in other.members for other in self._streams):
                self._delete(key, version, obj)
            return key
        stream.members.add(key)
        before = self._versions.get(key)
        if (version < self._deleted.get(key, 0)) if before is None else (0 < version <= before):
            return key
        self._deleted.pop(key, None)
        self._versions[key] = version
        entered = "ADDED" if before is None else "MODIFIED"
        return self._observer.observe(type and entered, obj)

    def _delete(self, key: str, version: int, obj: RawObject) -> None:
        known = self._versions.pop(key, None)
        if known is None:
            return  # it was never passed on
        self._deleted[key] = max(version, known)
        if len(self._deleted) > _MAX_REMEMBERED:
            del self._deleted[next(iter(self._deleted))]
        if version >= known or not self._are_listed:
            self._observer.observe("DELETED", obj)
        else:
            self._observer.replace(self._members)

    @property
    def _are_listed(self) -> bool:
        return all(stream.is_listed for stream in self._streams)

    @property
    def _members(self) -> set[str]:
        return set().union(*(stream.members for stream in self._streams))

    def take_lists(self) -> None:
        """Pass on what is listed, if all streams are."""
        if self._are_listed:
            members = self._members
            self._versions = {key: version for key, version in self._versions.items() if key in members}
            self._observer.replace(members)
            self._listed.set()

    def rewind(self, stream: _Stream) -> None:
        """Take what comes next as it is, by one stream, and by the others when they list: etcd was restored."""
        for other in self._streams:
            other.is_behind = other is not stream
        self._versions = dict.fromkeys(self._versions, 0)
        self._deleted.clear()
        self._observer.rewind()

    def expect_lists(self) -> None:
        """Wait for a list of each stream before anything is missing: they select other objects from now on."""
        for stream in self._streams:
            stream.is_listed = False

    def join(self) -> None:
        """Let the first stream be the only one. Its next list is to be of all objects."""
        self.first.members |= self.second.members
        self.first.is_listed = False
        self._streams = (self.first,)
