"""The reflector: lists, then watches, forever; what it sees goes to an observer without delay.

It ends only by cancellation. Whatever else happens (a dropped stream, half a line, an error of any code) is logged, and
the watch is restarted after a backoff. A stream that lasts for a while and then ends, breaks or is silent is no
trouble: load balancers do that to quiet kinds. After HTTP 410, or if the server does not have the resource version, it
lists again, and passes on what was listed, and so it does after each backoff where watches never bring anything.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Collection
from typing import Final, Protocol

import trio

from trioperator._concurrency.core_tasks import keep
from trioperator._kube.api_client import ApiClient
from trioperator._kube.error_response import is_version_too_large
from trioperator._kube.objects import BrokenObject, Page, RawObject
from trioperator._kube.watch import RawWatchEvent, Watch, ends_initial_events, longest_watch, open_watch
from trioperator._logs import get_logger
from trioperator._model.freed_memory import return_memory
from trioperator._model.shard_ranges import ShardRanges
from trioperator._runtime.watching.callbacks import Callbacks
from trioperator._runtime.watching.division import Division
from trioperator._runtime.watching.failures import TOO_SHORT, BrokenObjects, Failures, WatchStatus, is_blind
from trioperator._runtime.watching.paging import Pager
from trioperator._runtime.watching.position import Position
from trioperator.errors import ApiError, ConnectionLostError, ExpiredError, NotFoundError, TrioperatorError

_logger = get_logger("trioperator.runtime.reflector")

# Seconds: a stream that breaks later than this counts as no failure. Load balancers cut off idle ones after 50 or more.
_LONG_ENOUGH: Final = 30.0
# Number of listed objects after which freed memory, some megabytes, is returned to the system.
_MANY: Final = 1000
# Status codes of servers that cannot stream the first list, or not to this user.
_CANNOT_STREAM: Final = frozenset({400, 403, 405, 422})


class Observer(Protocol):
    """A receiver of what a reflector sees. It must neither wait nor raise."""

    def observe(self, type: str | None, obj: RawObject) -> str: ...
    def replace(self, listed: Collection[str]) -> None: ...


class Reflector:
    """List and watch of the collection at *path*. ``status`` says how it goes.

    *consequence* is a sentence for the log on what fails until then. If the operator *can_do_without*, missing rights
    are warned of once. *seen* is the newest resource version that was seen of the collection before.
    """

    def __init__(
        self,
        client: ApiClient,
        path: str,
        observer: Observer,
        *,
        consequence: str = "",
        can_do_without: bool = False,
        callbacks: Callbacks = Callbacks(),  # noqa: B008 -- it is immutable
        division: Division | None = None,
        seen: str = "",
    ) -> None:
        self.path = path
        self.status = WatchStatus()
        self._division = division
        self._observer = observer
        self._callbacks = callbacks
        self._pager = Pager(client, path)
        self._position = Position(seen=seen)
        self._failures = Failures(path, consequence=consequence, can_do_without=can_do_without)
        self._broken = BrokenObjects(path)
        self._can_stream = client.settings.watching.initial_streaming
        self._attempt = trio.CancelScope()
        self._stream = trio.CancelScope()

    @property
    def period(self) -> float:
        """Seconds that one request may take at most: no response for longer is no progress."""
        settings = self._pager.client.settings
        return max(longest_watch(settings.watching), settings.networking.request_timeout or 0.0)

    @property
    def newest(self) -> str:
        """The newest resource version that was seen; empty if none was."""
        return self._position.newest

    @property
    def selector(self) -> str:
        """The selectors of its requests; empty if it receives all objects."""
        texts = (*map(str, self._pager.client.options.selection.values()), str(self._division or ""))
        return ", ".join(filter(None, texts))

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """List and watch until cancelled. It has started when the first list is complete or has failed."""
        self.status.progressed()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, f"follow {self.path}", self._follow, name=f"follow {self.path}")
            await self.status.tried.wait()
            task_status.started()

    def restart(self, client: ApiClient) -> None:
        """List again at once, by another *client* perhaps: there are observers that have not seen a list."""
        self._pager = Pager(client, self.path)
        self._attempt.cancel(reason="everything is listed again")

    def select(self, ranges: ShardRanges) -> None:
        """Watch other ranges of objects, from where the watch is, if the server divides them."""
        if self._division is not None and self._division.select(ranges):
            self._stream.cancel(reason="other shards are watched")

    def give_up_division(self) -> None:
        """Receive all objects from now on."""
        if self._division is not None and not self._division.is_given_up:
            self._division.give_up()
            self._attempt.cancel(reason="all objects are received")

    def distrust(self) -> None:
        """List again at once, and take that list as it is: another one has shown that etcd was restored."""
        self._position.distrust()
        self._attempt.cancel(reason="etcd was restored")

    async def _follow(self) -> None:
        while True:
            self._failures.begin()
            with trio.CancelScope() as self._attempt:
                await self._try()
            if self._attempt.cancel_called:
                self._position.lose()

    async def _try(self) -> None:
        try:
            if self._position.version is not None:
                await self._check_version()
            await self._catch_up()
            with trio.CancelScope() as self._stream:
                await self._watch()
                self.status.count_restart("ended")
                await trio.sleep(self._pager.client.settings.watching.reconnect_backoff)
        except TrioperatorError as error:
            self.status.count_restart(f"http_{error.status}" if isinstance(error, ApiError) else "connection")
            was_good = self._failures.age >= _LONG_ENOUGH
            if was_good:
                self._failures.clear()
            if self._position.version is None and self._failures.age >= 0:
                self._can_stream = False  # a stream that broke before all objects had come may always do so
            if self._position.version is None and isinstance(error, ApiError) and error.status in _CANNOT_STREAM:
                await self._back_off(error, once_is_normal=self._can_stream)
                self._can_stream = False
            elif _needs_list(error):
                self._position.lose()
                await self._back_off(error, once_is_normal=True)
            elif was_good and isinstance(error, ConnectionLostError):
                await self._reopen(error)
            else:
                await self._back_off(error)

    async def _check_version(self) -> None:
        """List again if the server is older than what was seen, as after a restore of etcd: a watch would be silent.

        That is to be doubted if the server was not available for a while, or if a watch was silent. It is also checked
        if a watch ended before it has come to own writes: if they are lost, what others write next seems to be older.
        """
        written, since = self._callbacks.newest_written(), self._position.doubted_at
        if not self._position.is_before(written):
            if since is None:
                return
            if not self._pager.client.outage.claim_check(self.path, since=since):
                self._position.trust(trio.current_time())  # another watch checks it
                return
        self._position.doubt(math.nextafter(trio.current_time(), math.inf))  # again, if this fails
        page = await self._pager.client.list_page(self.path, limit=1)
        self._position.trust(trio.current_time())
        if self._position.is_restored(page.resource_version, written=written):
            self._go_back(page.resource_version)
            self._position.lose()

    async def _catch_up(self) -> None:
        """List what is not known well enough for a watch."""
        if self._division is None:
            if self._position.version is None and not (self._can_stream and self._position.is_new):
                await self._list()
            return
        while self._position.version is None or not self._division.is_complete:
            if self._position.version is None:
                await self._list()
            else:
                await self._list_missing(self._division)

    async def _list_missing(self, division: Division) -> None:
        """List the objects of shards that have been acquired, before the watch goes on with them from where it is."""
        version = self._position.version
        self._position.lose()  # after an error, all is listed
        params, token = division.begin_list(whole=False), ""
        while True:
            page = await self._pager.get(token, params)
            self._take(page, set())
            if division.is_given_up or self._position.is_restored(page.resource_version):
                return
            token = page.next
            if not token:
                break
        if page.resource_version.isdecimal():
            division.end_list(page.resource_version, whole=False)
            self._position.resume(version)

    async def _list(self) -> None:
        listed, division = set[str](), self._division
        params = None if division is None else division.begin_list(whole=True)
        page = await self._pager.get("", params)
        self._check_list(page)
        while True:
            self._take(page, listed)
            if params and division is not None and division.is_given_up:
                return  # it was not asked for all objects
            if not page.next:
                break
            try:
                page = await self._pager.get(page.next, params)
            except ExpiredError:
                # The pages take longer than the server keeps its history, so they would expire repeatedly.
                _logger.info("The list of %s expired between two pages, and is requested as a whole.", self.path)
                page = await self._pager.get_whole(params)
                listed.clear()
        self._observer.replace(listed)
        if division is not None:
            division.end_list(page.resource_version, whole=True)
        self._position.begin(page.resource_version, trio.current_time())
        self.status.tried.set()

    def _check_list(self, page: Page) -> None:
        """Prepare for a list that is older than what was seen, if it is."""
        if self._position.is_restored(page.resource_version):
            self._go_back(page.resource_version)
        if self._position.take_distrust():
            self._callbacks.rewind()

    def _go_back(self, version: str) -> None:
        """Accept the next list as it is, and make all others do so: the server is back at an earlier version."""
        text = "%s has gone back from version %s to %s, as if etcd was restored. All objects are taken as at a start."
        newest = max(self._position.newest, str(self._callbacks.newest_written()), key=int)
        _logger.warning(text, self.path, newest, version)
        self._position.distrust()
        self._callbacks.restored()

    def _take(self, page: Page, listed: set[str]) -> None:
        """Pass on the objects of a page, and add their keys to *listed*.

        An object that cannot be read is not passed on. But it exists, so it does not count as deleted. Of a page that
        shows that the server does not divide the objects, the rest is left: it may be older than what is wanted now.
        """
        self.status.progressed()
        division = None if self._division is None or self._division.is_given_up else self._division
        is_whole = self._division is None and self._pager.shards is None
        for obj in page.items:
            if is_whole or (self._selects(obj) and (division is None or division.is_listed(obj))):
                listed.add(self._observer.observe(None, obj))
            if division is not None and division.is_given_up:
                return
        for broken in page.broken:
            self._report(broken, listed)

    def _report(self, broken: BrokenObject, listed: set[str]) -> None:
        if broken.identity is None or self._selects(broken.identity):
            self._broken.report(broken)
        if broken.identity is not None:
            listed.add(broken.identity.key)

    def _selects(self, obj: RawObject) -> bool:
        """Check whether an object is in the shards that were asked for. Servers may send all of them.

        Where replicas divide the objects, that is known from then on, and all objects are listed.
        """
        if self._division is not None and not self._division.is_expected(obj):
            self._division.give_up()
            self._position.lose()
            return False
        return self._pager.shards is None or self._pager.shards.selects(uid=obj.key, namespace=obj.namespace)

    def _open_watch(self, listed: set[str]) -> contextlib.AbstractAsyncContextManager[Watch]:
        report = functools.partial(self._report, listed=listed)
        params = None if self._division is None else self._division.begin_watch()
        version = self._position.version
        return open_watch(self._pager.client, self.path, resource_version=version, params=params, report=report)

    async def _watch(self) -> None:
        """Watch until the stream ends. Without a version to start from, all objects come first."""
        quiet, listed = True, set[str]()
        async with self._open_watch(listed) as stream:
            self._failures.open(self.status.progressed())
            if self._position.version is not None:
                self._synced()
            async for line in stream:
                if self._position.version is None:
                    self._take_initial(line, listed)
                    continue
                version = line.object.resource_version
                is_older = self._position.is_restored(version)
                if line.type != "BOOKMARK":
                    self.status.count_event()
                    if self._selects(line.object) and not (self._division and self._division.is_old(line.object)):
                        self._observer.observe(line.type, line.object)
                    if self._position.version is None:
                        return
                elif is_older:
                    self._position.lose()
                    return
                else:
                    self.status.count_bookmark()
                if version and not is_older:  # else it is an event that has come twice
                    self._position.advance(version)
                if quiet:
                    quiet = False
                    self._failures.clear()
        self._end_watch(is_quiet=quiet)

    def _end_watch(self, *, is_quiet: bool) -> None:
        """Record the end of a stream. Raises ConnectionLostError if it ended too early to be useful."""
        if self._position.version is None:
            self._can_stream = False
            raise ConnectionLostError("the stream has ended before all objects have come")
        if is_quiet and self._failures.age < TOO_SHORT:
            raise ConnectionLostError("the server ended the stream at once")
        self._position.listen(trio.current_time(), is_quiet=is_quiet)

    def _take_initial(self, event: RawWatchEvent, listed: set[str]) -> None:
        """Pass on an event of a watch that brings all objects first, up to the bookmark after the last of them."""
        self.status.progressed()
        if event.type == "BOOKMARK":
            if not ends_initial_events(event):
                self._can_stream = False
                raise ConnectionLostError("the server does not say when all objects have come")
            self._observer.replace(listed)
            listed.clear()
            self._position.begin(event.object.resource_version, trio.current_time())
            self._synced()
        elif self._selects(event.object):
            key = self._observer.observe("DELETED" if event.type == "DELETED" else None, event.object)
            if event.type == "DELETED":
                listed.discard(key)
            else:
                listed.add(key)

    def _synced(self) -> None:
        self._failures.end(self.status)
        self._pager.client.outage.end()
        self.status.sync()
        self._callbacks.announce()
        if self._pager.take_count() >= _MANY:
            return_memory()

    async def _reopen(self, error: ConnectionLostError) -> None:
        """Wait before a stream that was good until it broke is opened again, with jitter as after failures."""
        _logger.debug("Watching %s goes on after the stream broke: %s", self.path, error)
        await trio.sleep(self._failures.shortest_delay())

    async def _back_off(self, error: TrioperatorError, *, once_is_normal: bool = False) -> None:
        failures = self._failures
        failures.add(is_blind=self._position.version is not None and is_blind(error, failures.age))
        if once_is_normal and failures.count == 1:
            _logger.info("%s is listed again: %s", self.path, error)
            delay = failures.delay(error, first=self._pager.client.settings.watching.reconnect_backoff)
        else:
            delay = failures.delay(error)
            if failures.are_long:
                self._position.doubt(trio.current_time())
                if isinstance(error, NotFoundError):
                    self._callbacks.unserved()
            is_listing = self._position.version is None
            failures.report(error, self.status, delay, is_listing=is_listing, outage=self._pager.client.outage)
            self._callbacks.announce()
            if is_listing and failures.are_lasting and self.status.is_refused:
                self._callbacks.refused(error)
            self.status.tried.set()
        if isinstance(error, ApiError):
            self.status.progressed(delay=delay)
        if failures.are_blind:
            self._position.lose()
        await trio.sleep(delay)


def _needs_list(error: TrioperatorError) -> bool:
    """Return whether the resource version of the watch is no longer of use."""
    return isinstance(error, ExpiredError) or (isinstance(error, ApiError) and is_version_too_large(error))
