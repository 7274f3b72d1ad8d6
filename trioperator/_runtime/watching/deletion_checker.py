"""The deletion checker: tells objects that are gone from those that have only left the selector of their watch.

A watch with a selector shows either as a deletion, and a list shows neither. So the server is asked, by a list of the
one name: with the selectors of the settings, but without what was inferred from handlers' filters. What it has is
passed on in the state that it is in. To all who read the watch, that is a change like any other, by which the object
stops to match their filters. Only what is gone is passed on as deleted. If it has what is required, it has come back,
or into another stream of the watch, which is going to show that.

Objects may also leave while nobody watches, and keep the finalizer and records of handlers in annotations, which nobody
else would remove. They are looked for when objects begin to be handled, by a list of the metadata of all; where
replicas divide the objects, of those in each shard that is acquired, as an object may leave while its shard moves.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import msgspec
import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.pulse import Pulse
from trioperator._handling.guard import unguarded
from trioperator._http.transport import Headers, find_date
from trioperator._kube.api_client import ApiClient
from trioperator._kube.objects import RawObject
from trioperator._logs import get_logger
from trioperator._model.body import Body
from trioperator._model.shard_ranges import ShardRanges
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.leaving import ENTERED, LEFT
from trioperator._runtime.watching.division import Division
from trioperator._runtime.watching.object_selector import ObjectSelector, Requirement
from trioperator._runtime.watching.paging import Pager
from trioperator._runtime.watching.targets import Target
from trioperator._runtime.watching.view import View
from trioperator.errors import ApiError, ForbiddenError, TrioperatorError

#: Media types of lists and watches with only the metadata of objects.
METADATA: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
)

_logger = get_logger("trioperator.runtime.watching")

# Number of concurrent requests.
_AT_ONCE: Final = 4
_BACKOFF: Final = Backoff(initial=0.5, maximum=30.0, jitter=0.25)
# Delays if listing all objects is forbidden, as with rights for some names only: that changes rarely.
_FORBIDDEN: Final = Backoff(initial=5.0, maximum=900.0, jitter=0.25)
# Status codes of servers that cannot select by names: their watches are trusted.
_UNSUPPORTED: Final = frozenset({400, 405, 422})
# Characters with a meaning in field selectors.
_SPECIAL: Final = re.compile(r"[\\,=]")


class _Metadata(msgspec.Struct, gc=False):
    annotations: dict[str, str] | None = None
    created: datetime.datetime | None = msgspec.field(name="creationTimestamp", default=None)
    finalizers: list[str] | None = None


class _Head(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode_head: Final = msgspec.json.Decoder(_Head).decode


class _Suspect(NamedTuple):
    """An object to ask for. It was shown as deleted by an *event*, is missing in a list, or was left as it is."""

    key: str
    namespace: str
    name: str
    event: RawObject | None = None
    is_missing: bool = False


class _Suspects:
    """The objects to ask for, by their keys, and the *queue* of them.

    What was missing in a list, and is gone, is kept until all that was missing there was asked for.
    """

    def __init__(self) -> None:
        self.by_key: dict[str, _Suspect] = {}
        self.queue = trio.open_memory_channel[_Suspect](math.inf)
        self._unasked: set[str] = set()  # those that are missing in a list, and were not asked for yet
        self._gone: set[str] = set()

    def add(self, suspect: _Suspect) -> None:
        """Add an object."""
        self.by_key[suspect.key] = suspect
        if suspect.is_missing:
            self._unasked.add(suspect.key)
        self.queue[0].send_nowait(suspect)

    def clear(self, key: str) -> bool:
        """Clear an object of a suspicion, if there is one: it was seen again, or was asked for."""
        self._unasked.discard(key)
        return self.by_key.pop(key, None) is not None

    def note_asked(self, suspect: _Suspect, *, is_gone: bool = False) -> None:
        """Note that an object was asked for, whatever the result is."""
        self._unasked.discard(suspect.key)
        if is_gone and suspect.is_missing:
            self._gone.add(suspect.key)

    def take_gone(self) -> set[str]:
        """Return what is gone, once everything was asked for; nothing until then."""
        if self._unasked:
            return set()
        gone, self._gone = self._gone, set()
        return gone


class DeletionChecker:
    """An observer between the reflector of a watch with an inferred selector, and its *view*.

    Requests are made with the configured selector only. An object is selected by the watch, too, if it meets any of
    the requirements. *ranges* are of the shards that are handled here: what has left before that was left to others.
    *division* is the watch's, if it has one.
    """

    def __init__(
        self,
        client: ApiClient,
        view: View,
        target: Target[Any],
        *,
        ranges: ShardRanges,
        division: Division | None = None,
    ) -> None:
        assert view.cache is not None
        self._client = client
        self._view = view
        self._cache: ObjectCache = view.cache
        self._configured = target.configured
        self._required: Collection[Requirement] = target.required
        self._division = division
        self._handled = ranges
        self._searched = ShardRanges()  # for what has left unseen
        self._changed = Pulse()
        self._listed_at: datetime.datetime | None = None  # by the server's clock
        self._is_rewound = False  # what has left may have been brought back since, and have left again
        self._suspects = _Suspects()

    def observe(self, type: str | None, obj: RawObject) -> str:
        """Take a watch event, or with type None an object of a list. Returns the object's key."""
        key = obj.key
        if type == "DELETED" and self._is_doubtful(key):
            self._suspects.add(_Suspect(key, obj.namespace, obj.name, obj))
            return key
        was_suspect = bool(self._suspects.by_key) and self._clear(key)
        return self._view.observe(self._find_type(type, obj, was_suspect=was_suspect), obj)

    def replace(self, listed: Collection[str]) -> None:
        """Take the keys of a complete list. Cached objects that are not listed are gone, or have left."""
        self._cache.recall(listed)
        missing = {key for key in self._cache.objects if key not in listed and self._is_doubtful(key)}
        self._view.replace({*listed, *missing})
        for key in missing - self._suspects.by_key.keys():
            state = self._cache.objects[key]
            if state not in self._cache.leaving or self._is_rewound:
                self._suspects.add(_Suspect(key, state.namespace or "", state.name, is_missing=True))
        self._is_rewound = False

    def rewind(self) -> None:
        """Take the next list as it is, and look for finalizers and records again: what was removed since is back."""
        self._view.rewind()
        self._is_rewound = True
        self._searched = ShardRanges()
        self._changed.set()

    def note_headers(self, headers: Headers) -> None:
        """Take the headers of a response to the reflector: the first list's say when it was."""
        if self._listed_at is None:
            self._listed_at = find_date(headers)

    def require(self, required: Collection[Requirement]) -> None:
        """Take what is required of objects from now on."""
        self._required = required

    def select(self, ranges: ShardRanges) -> None:
        """Take the ranges of the shards that are handled from now on."""
        self._handled = ranges
        self._searched &= ranges
        self._changed.set()

    async def serve(self, path: str) -> None:
        """Ask for what was shown as deleted, until cancelled, and look for what has left unseen."""
        async with trio.open_nursery() as nursery:
            for number in range(_AT_ONCE):
                nursery.start_soon(self._work, name=f"check deletions {number + 1}")
            await self._cache.listed.wait()
            while True:
                while missing := self._handled - self._searched:
                    if self._division is not None:
                        await self._division.wait_complete()
                    self._searched |= missing & self._handled
                    if self._cache.kind.handlers.needs_state:
                        await self._find_left(path, missing)
                await self._changed.wait()

    def _is_doubtful(self, key: str) -> bool:
        """Check whether it matters if an object is gone, or has left: not if it is only indexed or others handle it."""
        state, handlers = self._cache.objects.get(key), self._cache.kind.handlers
        if handlers.is_index_only or not self._cache.handles(key):
            return False
        return bool(handlers.events) if state is None else not state.deletion_handled

    def _is_own(self, obj: RawObject) -> bool:
        """Check whether an object is handled here: servers may ignore in which shards it has to be."""
        shards = self._configured.shards
        is_configured = not shards or ShardRanges.parse(shards).selects(uid=obj.key, namespace=obj.namespace)
        return is_configured and self._cache.handles(obj.key)

    def _find_type(self, type: str | None, obj: RawObject, *, was_suspect: bool) -> str | None:
        """Return the type of an event for those who read the watch."""
        if type != "ADDED":
            return type
        if obj.key in self._cache.objects:
            return "MODIFIED" if was_suspect else type  # nobody was told that it has left
        return ENTERED if self._is_old(obj) else type

    def _is_old(self, obj: RawObject) -> bool:
        """Check whether an object that is new to the watch existed before it: then it has entered the selector."""
        created = _read_metadata(obj).created
        return created is not None and self._listed_at is not None and created < self._listed_at

    def _clear(self, key: str) -> bool:
        """Clear an object of a suspicion, if there is one: it was seen again, or was asked for."""
        if not self._suspects.clear(key):
            return False
        self._remove_gone()
        return True

    async def _work(self) -> None:
        async for suspect in self._suspects.queue[1]:
            await self._check(suspect)

    async def _check(self, suspect: _Suspect) -> None:
        """Request an object until there is a response or it is seen again, and report what has happened to it."""
        for attempt in itertools.count(1):
            if self._suspects.by_key.get(suspect.key) is not suspect:
                return
            try:
                found = await self._find(suspect)
            except TrioperatorError as error:
                if not (isinstance(error, ApiError) and error.status in _UNSUPPORTED):
                    _logger.debug("Whether %s is deleted has to be asked again: %s", suspect.name, error)
                    self._suspects.note_asked(suspect)
                    self._remove_gone()
                    await trio.sleep(_BACKOFF.delay(attempt))
                    continue
                found = None
            if self._suspects.by_key.get(suspect.key) is suspect:
                self._judge(suspect, found)
            return

    async def _find(self, suspect: _Suspect) -> RawObject | None:
        """Return an object as the server has it; None if it is gone, or is another one of the same name."""
        name = _SPECIAL.sub(r"\\\g<0>", suspect.name)
        named = self._configured.join(ObjectSelector(fields=(f"metadata.name={name}",)))
        path = self._cache.kind.resource.get_path(suspect.namespace or None)
        page = await self._client.retrying(()).list_page(path, params=named.parameters)
        unreadable = (broken.identity for broken in page.broken if broken.identity is not None)
        return next((obj for obj in (*page.items, *unreadable) if obj.key == suspect.key), None)

    def _judge(self, suspect: _Suspect, found: RawObject | None) -> None:
        """Report what has happened to an object."""
        self._suspects.note_asked(suspect, is_gone=found is None)
        self._clear(suspect.key)
        if found is not None:
            if not self._is_selected(found):
                self._view.observe(LEFT, found)
        elif suspect.event is not None:
            self._view.observe("DELETED", suspect.event)

    def _is_selected(self, obj: RawObject) -> bool:
        """Check whether the watch will show an object in the state that the server has."""
        try:
            body = obj.decode()
        except (msgspec.MsgspecError, ValueError):
            return False
        return any(each.is_met(body) for each in self._required)

    def _remove_gone(self) -> None:
        """Remove what is gone, when everything was asked for: each time all keys are gone through."""
        if gone := self._suspects.take_gone():
            self._view.replace(self._view.list_keys() - gone)

    async def _find_left(self, path: str, ranges: ShardRanges) -> None:
        """Look for objects in some ranges that are not selected, and have the finalizer or records of handlers."""
        for attempt in itertools.count(1):
            try:
                await self._list_left(path, ranges)
            except TrioperatorError as error:
                is_forbidden = isinstance(error, ForbiddenError)
                log = _logger.info if is_forbidden and attempt == 1 else _logger.debug
                log("What has left %s unseen, and may have a finalizer, will be looked for again: %s", path, error)
                await trio.sleep((_FORBIDDEN if is_forbidden else _BACKOFF).delay(attempt))
            else:
                return

    async def _list_left(self, path: str, ranges: ShardRanges) -> None:
        token = ""
        is_divided = self._division is not None and not self._division.is_given_up
        configured = self._configured.join(ObjectSelector(shards=str(ranges) if is_divided else ""))
        client = self._client.selecting(configured.parameters, forms=METADATA).compressed()
        pager = Pager(client, path)
        while True:
            page = await pager.get(token)
            for obj in page.items:
                is_unseen = obj.key not in self._cache.objects and self._is_handled(_read_metadata(obj))
                if is_unseen and self._is_own(obj):
                    self._suspects.add(_Suspect(obj.key, obj.namespace, obj.name))
            token = page.next
            if not token:
                return

    def _is_handled(self, metadata: _Metadata) -> bool:
        """Check whether an object has our finalizer, or records of handlers that have not ended."""
        persistence = self._client.settings.persistence
        if persistence.finalizer in (metadata.finalizers or ()):
            return True
        storage, annotations = persistence.progress_storage, metadata.annotations
        if not annotations or unguarded(storage) is not storage:  # other storages do not say whether there are records
            return False
        return bool(storage.has_records(body=Body({"metadata": {"annotations": annotations}})))


def _read_metadata(obj: RawObject) -> _Metadata:
    """Return the metadata of an object; empty if it cannot be read."""
    try:
        return _decode_head(obj.raw).metadata
    except msgspec.MsgspecError:
        return _Metadata()
