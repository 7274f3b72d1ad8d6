"""The reflector: lists, then watches, for ever; what it sees goes to an observer without delay.

It ends only by cancellation. Whatever else happens (a dropped stream, half a line, an error of any code) is logged, and
the watch is restarted after a backoff. A stream that lasts for a while and then ends, breaks or is silent is no
trouble: load balancers do that to quiet kinds. After HTTP 410, or if the server does not have the resource version, it
lists again, and passes on what was listed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection
from typing import Final, Protocol

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.core_tasks import keep
from trioperator._kube.api_client import ApiClient, Page
from trioperator._kube.error_response import is_version_too_large
from trioperator._kube.objects import BrokenObject
from trioperator._kube.watch import RawObject, longest_watch, open_watch
from trioperator._logs import get_logger
from trioperator._runtime.watching.paging import Pager
from trioperator.errors import ApiError, ConnectionLostError, ExpiredError, ForbiddenError, TrioperatorError
from trioperator.settings import OperatorSettings

__all__ = ["Observer", "Reflector"]

# After errors; with jitter, so that a server that comes back is not overrun.
_BACKOFF: Final = Backoff(initial=0.5, maximum=30.0, jitter=0.25)
# After errors of a server that says when to try again, as one that starts does: it will be available soon.
_SOON: Final = Backoff(initial=0.5, maximum=5.0, jitter=0.25)
# By how much more than the server says, at most: it says the same to all watches.
_SPREAD: Final = 1.25
# A stream that ends sooner than that, in seconds, and has brought nothing, is an error too.
_TOO_SHORT = 1.0
# A stream that breaks later than that, in seconds, was a good one until then. Load balancers cut off idle streams after
# 50 seconds or more.
_LONG_ENOUGH = 30.0
# A watch that was quiet for longer, in seconds: there is a bookmark each minute, unless the server has gone back.
_SUSPICIOUS = 150.0
# How many objects that cannot be read are remembered, as they are reported once.
_MAX_REPORTED = 1000
# In the message of a server that cannot call a conversion webhook.
_CONVERSION: Final = "conversion webhook for "
# After this many failures, a first list counts as refused, if the server says that there is none to be had; and
# as unavailable (for minutes), whatever the errors are.
_REFUSED, _UNAVAILABLE = 3, 10


class Observer(Protocol):
    """A receiver of what a reflector sees. It must neither wait nor raise."""

    def observe(self, type: str | None, obj: RawObject) -> str: ...
    def replace(self, listed: Collection[str]) -> None: ...


class Reflector:
    """List and watch of the collection at *path*.

    ``tried`` is set when the first list is complete or has failed, ``unlistable`` when it was refused several times, or
    failed for minutes; ``trouble`` is the last request's error, if any; ``is_synced`` is whether it has ever watched.
    ``progressed_at`` is when the server last responded to it, on Trio's clock; ``received`` is the number of watch
    events, ``restarts`` those of watches that have ended, by reasons.
    *consequence* is a sentence for the log on what fails until then. If the operator *can_do_without*, missing rights
    are warned of once. *restored* is called when a list is older than what was seen, to let those :meth:`distrust` that
    may be too late to notice; *rewind* before a list that is to be taken as it is; *announce* when ``trouble`` may have
    changed.
    """

    def __init__(
        self,
        client: ApiClient,
        path: str,
        observer: Observer,
        *,
        settings: OperatorSettings,
        consequence: str = "",
        can_do_without: bool = False,
        rewind: Callable[[], None] = lambda: None,
        restored: Callable[[], None] = lambda: None,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self.path = path
        self._observer = observer
        self._settings = settings
        self._consequence = consequence
        self._can_do_without = can_do_without
        self._rewind = rewind
        self._restored = restored
        self._announce = announce
        self._logger = get_logger("trioperator.runtime.reflector")
        self._pager = Pager(client, path, settings=settings)
        self._reported: set[str] = set()
        self._version: str | None = None
        self._newest = ""  # of all versions so far
        self._doubted_at: float | None = None  # when the server began to be possibly not what it was
        self._is_distrusted = False
        self._failures = 0
        self._opened_at = float("inf")
        self._has_warned = False
        self.tried = trio.Event()
        self.unlistable = trio.Event()
        self.trouble: Exception | None = None
        self.is_synced = False
        self.progressed_at = math.inf
        self.received = 0
        self.restarts: dict[str, int] = {}
        self._attempt = trio.CancelScope()

    @property
    def is_refused(self) -> bool:
        """Whether the server does not serve the collection, or not to this user."""
        return self.trouble is not None and _is_refusal(self.trouble)

    @property
    def is_unconverted(self) -> bool:
        """Whether the server cannot convert the objects, as their conversion webhook does not answer."""
        trouble = self.trouble
        return isinstance(trouble, ApiError) and trouble.status == 500 and _CONVERSION in trouble.message

    @property
    def period(self) -> float:
        """Seconds that one request may take at most: no response for longer is no progress."""
        settings = self._settings
        return max(longest_watch(settings.watching), settings.networking.request_timeout or 0.0)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """List and watch until cancelled. It has started when the first list is complete or has failed."""
        self.progressed_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep, f"follow {self.path}", self._follow, name=f"follow {self.path}")
            await self.tried.wait()
            task_status.started()

    def restart(self, client: ApiClient) -> None:
        """List again at once, by another *client* perhaps: there are observers that have not seen a list."""
        self._client = client
        self._pager = Pager(client, self.path, settings=self._settings)
        self._attempt.cancel(reason="everything is listed again")

    def distrust(self) -> None:
        """List again at once, and take that list as it is: another one has shown that etcd was restored."""
        self._newest, self._is_distrusted = "", True
        self._attempt.cancel(reason="etcd was restored")

    async def _follow(self) -> None:
        while True:
            self._opened_at = float("inf")
            with trio.CancelScope() as self._attempt:
                await self._try()
            if self._attempt.cancel_called:
                self._version = None

    async def _try(self) -> None:
        try:
            if self._version is not None and self._doubted_at is not None:
                await self._check_version(self._doubted_at)
            if self._version is None:
                await self._list()
            await self._watch()
            self._count_restart("ended")
            await trio.sleep(self._settings.watching.reconnect_backoff)
        except TrioperatorError as error:
            self._count_restart(f"http_{error.status}" if isinstance(error, ApiError) else "connection")
            was_good = trio.current_time() - self._opened_at >= _LONG_ENOUGH
            if was_good:
                self._failures = 0
            if _needs_list(error):
                self._version = None
                await self._back_off(error, once_is_normal=True)
            elif was_good and isinstance(error, ConnectionLostError):
                await self._reopen(error)
            else:
                await self._back_off(error)

    def _count_restart(self, reason: str) -> None:
        if self.is_synced:
            self.restarts[reason] = self.restarts.get(reason, 0) + 1

    async def _check_version(self, since: float) -> None:
        """List again if the server is older than what was seen, as after a restore of etcd: a watch would be silent.

        That is to be doubted if the server was not available for a while, or if a watch was silent.
        """
        if not self._client.outage.claim_check(self.path, since=since):
            self._doubted_at = None  # another watch checks it
            return
        self._doubted_at = math.nextafter(trio.current_time(), math.inf)  # again, if this fails
        page = await self._client.list_page(self.path, limit=1, backoffs=())
        self._doubted_at = None
        if self._is_restored(page.resource_version):
            self._version = None

    def _is_restored(self, version: str) -> bool:
        """Check whether the version of a list is older than what was seen before."""
        return version.isdecimal() and self._newest.isdecimal() and 0 < int(version) < int(self._newest)

    async def _list(self) -> None:
        listed: set[str] = set()
        page = await self._pager.get("")
        if self._is_restored(page.resource_version):
            text = (
                "%s has gone back from version %s to %s, as if etcd was restored. All objects are taken as at a start."
            )
            self._logger.warning(text, self.path, self._newest, page.resource_version)
            self._is_distrusted = True
            self._restored()
        if self._is_distrusted:
            self._rewind()
        self._is_distrusted = False
        self._take(page, listed)
        while page.next:
            try:
                page = await self._pager.get(page.next)
            except ExpiredError:
                # The pages take longer than the server keeps its history, so they would expire again and again.
                self._logger.info("The list of %s expired between two pages, and is requested as a whole.", self.path)
                page = await self._pager.get_whole()
                listed.clear()
            self._take(page, listed)
        self._observer.replace(listed)
        self._version = self._newest = page.resource_version
        self._doubted_at = None
        self.tried.set()

    def _take(self, page: Page, listed: set[str]) -> None:
        """Pass on the objects of a page, and add their keys to *listed*.

        An object that cannot be read is not passed on. But it exists, so it does not count as deleted.
        """
        self.progressed_at = trio.current_time()
        for obj in page.items:
            listed.add(self._observer.observe(None, obj))
        for broken in page.broken:
            self._report_broken(broken)
            if broken.identity is not None:
                listed.add(broken.identity.key)

    def _report_broken(self, broken: BrokenObject) -> None:
        """Report an object that cannot be read: once, however often it is listed or changed."""
        if broken.identity is None:
            text = "%s has an object that cannot be read, and is passed over: %s."
            self._logger.warning(text, self.path, broken.problem)
        elif broken.identity.key not in self._reported:
            if len(self._reported) >= _MAX_REPORTED:
                self._reported.clear()
            self._reported.add(broken.identity.key)
            self._logger.warning(
                "%s cannot be read, and is passed over until it can: %s.", broken.identity, broken.problem
            )

    async def _watch(self) -> None:
        assert self._version is not None
        quiet = True
        watch = open_watch(self._client, self.path, resource_version=self._version, report=self._report_broken)
        async with watch as stream:
            self._opened_at = self.progressed_at = trio.current_time()
            self._synced()
            async for line in stream:
                version = line.object.resource_version
                is_older = self._is_restored(version)
                if line.type != "BOOKMARK":
                    self.received += 1
                    self._observer.observe(line.type, line.object)
                elif is_older:
                    self._version = None
                    return
                if version and not is_older:  # else it is an event that has come twice
                    self._version = self._newest = version
                if quiet:
                    quiet = False
                    self._failures = 0
        if quiet and trio.current_time() - self._opened_at < _TOO_SHORT:
            raise ConnectionLostError("the server ended the stream at once")
        if quiet and trio.current_time() - self._opened_at > _SUSPICIOUS:
            self._doubted_at = trio.current_time()

    def _synced(self) -> None:
        if self.trouble is not None:
            log = self._logger.info if self._has_warned else self._logger.debug
            log("Watching %s goes on." if self.is_synced else "Watching %s begins.", self.path)
        self.trouble, self._has_warned = None, False
        self._client.outage.end()
        self.is_synced = True
        self.tried.set()
        self._announce()

    async def _reopen(self, error: ConnectionLostError) -> None:
        """Wait before a stream that was good until it broke is opened again, with jitter as after failures."""
        self._logger.debug("Watching %s goes on after the stream broke: %s", self.path, error)
        await trio.sleep(_BACKOFF.delay(1))

    async def _back_off(self, error: TrioperatorError, *, once_is_normal: bool = False) -> None:
        self._failures += 1
        if isinstance(error, ApiError):
            self.progressed_at = trio.current_time()
        is_normal = once_is_normal and self._failures == 1
        delay = self._settings.watching.reconnect_backoff if is_normal else _BACKOFF.delay(self._failures)
        if isinstance(error, ApiError) and error.retry_after is not None:
            delay = max(_SOON.delay(self._failures), error.retry_after * random.uniform(1.0, _SPREAD))
        if is_normal:
            self._logger.info("%s is listed again: %s", self.path, error)
        else:
            before, self.trouble = self.trouble, error
            self._announce()
            if self._failures == _REFUSED:
                self._doubted_at = trio.current_time()
            self._report(error, delay, before=before)
            if self._failures >= (_REFUSED if _is_refusal(error) else _UNAVAILABLE):
                self.unlistable.set()
        self.tried.set()
        await trio.sleep(delay)

    def _report(self, error: TrioperatorError, delay: float, *, before: Exception | None) -> None:
        """Warn of an error: the first one may be a hiccup; what lasts is worth a warning, and then no flood of them."""
        is_notable = self._failures == 1 or self._failures % 10 == 0 or (self._failures == 3 and self.is_synced)
        if isinstance(error, ForbiddenError) and self._can_do_without:
            is_notable = not isinstance(before, ForbiddenError)
        if self.is_synced and isinstance(error, ConnectionLostError) and not self._client.outage.claim(self):
            is_notable = False  # another watch has warned of it, and does
        self._has_warned = self._has_warned or is_notable
        log = self._logger.warning if is_notable else self._logger.debug
        if self.is_synced:
            log("Watching %s is interrupted, and goes on in %.1f seconds: %s", self.path, delay, error)
            return
        verb = "list" if self._version is None else "watch"
        text = "Cannot %s %s, trying again in %.1f seconds: %s%s"
        log(text, verb, self.path, delay, str(error).rstrip("."), f". {self._consequence}" if self._consequence else "")


def _needs_list(error: TrioperatorError) -> bool:
    """Return whether the resource version of the watch is of no use any more."""
    return isinstance(error, ExpiredError) or (isinstance(error, ApiError) and is_version_too_large(error))


def _is_refusal(error: Exception) -> bool:
    """Return whether the server does not serve the kind, or not to this user."""
    return isinstance(error, ApiError) and error.status in (403, 404, 405)
