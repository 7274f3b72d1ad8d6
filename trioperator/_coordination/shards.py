"""Sharding: several replicas of an operator divide its objects, and each shard has a Lease that names its owner.

Each replica renews its session (one request for all of its shards), learns from it which others are alive, and takes
or releases shards until it owns its share. Others can take the shards of a replica when its session is over: some
seconds after the replica itself has given up everything. Releasing is in order: the shard is served to the end first.

If etcd was restored, leases name earlier owners: a shard may be owned twice then, or never again. So each replica reads
all leases when its session shows a restore, by which its record has gone back, and once in a minute. What it owns is
taken again if the lease names nobody who is alive, and is lost if it does; a lease that names it for nothing is
released. No shard is acquired, and no such lease released, before the others have noticed the restore, too, or have
lost their sessions: until then, the shard may have an owner whom the lease does not name.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.core_tasks import keep
from trioperator._concurrency.pulse import Pulse
from trioperator._coordination.lease import Lease
from trioperator._coordination.members import Member, choose_free, choose_surplus
from trioperator._coordination.session import Session
from trioperator._kube.api_client import ApiClient
from trioperator._logs import get_logger
from trioperator.errors import ConflictError, PausedError, TrioperatorError
from trioperator.settings import LeadershipSettings

_logger = get_logger("trioperator.coordination")

# Range of fractions of the retry period after which a session is renewed, so that a renewal is seen within the period.
_JITTER: Final = (0.8, 0.95)
# Seconds that leaving may take when the operator stops.
_LEAVE_TIMEOUT: Final = 2.0
# Seconds between two comparisons of all leases with the owned shards.
_CHECK_PERIOD: Final = 60.0
# Delays between attempts to release a lease.
_BACKOFF: Final = Backoff(initial=0.2, maximum=5.0, jitter=0.25)


class ShardOwnership:
    """The ownership of one shard, from its acquisition to its end.

    ``ending`` is set when no more of its objects are to be handled. Then what is being handled may be finished, unless
    the shard is ``lost``, too: another replica may own it in a few seconds. It ``is_served`` until all is finished.
    Writes are allowed until *valid_until*, on Trio's clock.
    """

    def __init__(self, shard: int, valid_until: Callable[[], float] = lambda: math.inf) -> None:
        self.shard = shard
        self.is_served = True
        self.ending = trio.Event()
        self.lost = trio.Event()
        self._valid_until = valid_until

    def end(self) -> None:
        """Request the end of the term: the shard is to be drained, and is released then."""
        self.ending.set()

    def lose(self) -> None:
        """End the term at once: what is being done for the shard is to be cancelled."""
        self.is_served = False
        self.lost.set()
        self.ending.set()

    def finish(self) -> None:
        """Note that nothing is done for the shard any more."""
        self.is_served = False

    def check_write(self) -> None:
        """Raise PausedError if the replica must no longer write to objects of the shard."""
        if self.lost.is_set() or trio.current_time() >= self._valid_until():
            raise PausedError(f"this replica has lost the shard {self.shard}")


class _Leases:
    """The leases of all shards, *by_shard*, and the requests for them, of which each has a *timeout*."""

    def __init__(self, client: ApiClient, settings: LeadershipSettings, *, namespace: str) -> None:
        self.timeout = max(1.0, settings.renew_deadline / 2)
        self.by_shard: dict[int, Lease] = {}
        self._client = client
        self._settings = settings
        self._namespace = namespace
        self._reading = trio.CancelScope()

    def join(self, identity: str) -> None:
        """Begin with leases for another identity, of which nothing is known."""
        settings = self._settings
        self.by_shard = {
            shard: Lease(
                self._client,
                namespace=self._namespace,
                name=f"{settings.name}-{shard}",
                identity=identity,
                duration=settings.lease_duration,
            )
            for shard in range(settings.shards)
        }

    def stop_reading(self) -> None:
        """Cancel what is being read."""
        self._reading.cancel(reason="the operator is stopping or paused")

    async def read(self, leases: Mapping[int, Lease]) -> dict[int, str]:
        """Return the holders of leases, as far as these can be read."""
        readable = dict[int, str]()
        with trio.CancelScope() as self._reading:
            async with trio.open_nursery() as reading:
                for shard, lease in leases.items():
                    reading.start_soon(self._read, lease, shard, readable)
        return readable

    async def _read(self, lease: Lease, shard: int, readable: dict[int, str]) -> None:
        try:
            with trio.fail_after(self.timeout):
                await lease.read()
        except (TrioperatorError, trio.TooSlowError) as error:
            _logger.debug("The %s cannot be read: %s", lease, str(error) or "no response in time")
        else:
            readable[shard] = lease.holder

    @staticmethod
    async def settle(lease: Lease) -> None:
        """Release a lease that was being acquired when all was cancelled."""
        try:
            await lease.settle()
            await lease.release()
        except TrioperatorError as error:
            _logger.debug("The %s cannot be released: %s", lease, error)

    async def release(self, lease: Lease) -> bool:
        """Release a lease; return whether that was possible."""
        try:
            with trio.fail_after(self.timeout):
                await lease.read()  # somebody may have changed a label
                await lease.release()
        except (TrioperatorError, trio.TooSlowError) as error:
            _logger.debug("The %s cannot be released: %s", lease, str(error) or "no response in time")
            return False
        return True


Serve: TypeAlias = Callable[[ShardOwnership], Awaitable[None]]


class Shards:
    """A replica's shards. *serve* handles the objects of a shard, from its acquisition until it is ending."""

    def __init__(self, client: ApiClient, *, settings: LeadershipSettings, identity: str, serve: Serve) -> None:
        self._settings = settings
        self._serve = serve
        namespace = settings.namespace or client.credentials.default_namespace
        member = Member(
            identity=settings.identity or identity,
            shards=-settings.shards,  # of ranges of hashes
            duration=float(math.ceil(settings.lease_duration)),
        )
        self._session = Session(
            client,
            namespace=namespace,
            name=f"{settings.name}-members",
            member=member,
            deadline=settings.renew_deadline,
        )
        self._leases = _Leases(client, settings, namespace=namespace)
        self._terms: dict[int, ShardOwnership] = {}
        self._changed = Pulse()
        self._is_stopping = False
        self._failed = False
        self._reported = 0
        self._unacquired: set[int] = set()  # shards whose leases could not be written, as is logged
        self._check_at = math.inf
        self._settled_at = -math.inf  # when all replicas have noticed a restore

    async def serve(self) -> None:
        """Own shards until :meth:`stop`, and until all of them are released then."""
        self._join()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep, "renew the session", self._keep_session, name="renew the session")
                while not self._is_stopping or self._terms:
                    self._release_surplus()
                    if not self._is_stopping and trio.current_time() >= self._check_at:
                        await self._check()
                    if not self._is_stopping and self._is_settled and len(self._terms) < self._session.share.size:
                        await self._acquire(nursery)
                    await self._changed.wait()
                nursery.cancel_scope.cancel(reason="all shards are released")
        finally:
            await self._leave()

    def stop(self) -> None:
        """Release all shards, and acquire no more."""
        self._is_stopping = True
        self._leases.stop_reading()
        self._release_surplus()  # now, though other shards may be being acquired
        self._changed.set()

    # The session.

    def _join(self) -> None:
        self._session.join()
        self._leases.join(self._session.identity)
        self._delay_check()

    @property
    def _is_settled(self) -> bool:
        """Whether the leases name who owns the shards: after a restore, all owners have to notice it first."""
        return trio.current_time() >= self._settled_at

    def _delay_check(self) -> None:
        self._check_at = trio.current_time() + _CHECK_PERIOD * random.uniform(*_JITTER)

    async def _keep_session(self) -> None:
        """Renew the session repeatedly; give up all shards when that was not possible in time.

        An attempt without a response is followed by the next one at once, which may have a connection that is alive.
        """
        due = trio.current_time()
        while True:
            begun = max(due, trio.current_time())
            with trio.move_on_at(self._session.valid_until):
                await trio.sleep_until(due)
                if trio.current_time() < self._session.valid_until:  # else the process was suspended
                    await self._renew()
            if trio.current_time() >= self._session.valid_until:
                self._lose_all()
            due = self._next_renewal(begun if self._failed else trio.current_time())

    async def _renew(self) -> None:
        try:
            await self._session.renew(timeout=self._leases.timeout)
        except (TrioperatorError, trio.TooSlowError) as error:
            log = _logger.debug if self._failed else _logger.warning
            log("The %s cannot be renewed: %s", self._session, str(error) or "no response in time")
            self._failed = True
            return
        self._failed = False
        if self._session.lease.has_gone_back:
            self._check_at = -math.inf
            self._settled_at = trio.current_time() + self._settings.lease_duration
        self._changed.set()
        if self._session.is_ranked and self._session.count != self._reported:
            self._reported = self._session.count
            text = "%d replicas share the %d shards. This one is %s, with a share of %d."
            name = self._session.identity
            _logger.info(text, self._reported, self._settings.shards, name, self._session.share.size)

    def _next_renewal(self, since: float) -> float:
        """Return when to renew the session: a while after *since*, or when another one expires if that is sooner."""
        now = trio.current_time()
        if self._session.is_joined and not self._session.is_ranked and not self._failed:
            return now
        due = since + self._settings.retry_period * random.uniform(*_JITTER)
        return min(due, self._session.next_expiry) if self._session.next_expiry > now else due

    def _lose_all(self) -> None:
        if self._terms:
            _logger.warning("All shards are lost: the %s could not be renewed in time.", self._session)
        for term in self._terms.values():
            term.lose()
        self._join()

    async def _leave(self) -> None:
        """Remove the replica's record, so that others need not wait until it expires, and release what it may hold."""
        with trio.move_on_after(_LEAVE_TIMEOUT, shield=True) as scope:
            async with trio.open_nursery() as nursery:
                for lease in self._leases.by_shard.values():
                    nursery.start_soon(self._leases.settle, lease)
                try:
                    await self._session.leave()
                except TrioperatorError as error:
                    _logger.warning("The replica's record stays in the %s until it ends: %s", self._session, error)
        if scope.cancelled_caught:
            _logger.warning("The replica's record stays in the %s until it ends: no response.", self._session)

    # The shards.

    def _release_surplus(self) -> None:
        """Begin to release what is more than the share."""
        size = 0 if self._is_stopping else self._session.share.size
        owned = [shard for shard, term in self._terms.items() if not term.ending.is_set()]
        for shard in choose_surplus(owned, size):
            _logger.info("Releasing the shard %d.", shard)
            self._terms[shard].end()

    async def _acquire(self, nursery: trio.Nursery) -> None:
        """Take shards that nobody owns, as far as the share goes."""
        leases = {shard: lease for shard, lease in self._leases.by_shard.items() if shard not in self._terms}
        identity, readable = self._session.identity, await self._leases.read(leases)
        if self._is_stopping:
            return
        share = self._session.share
        missing = share.size - len(self._terms)
        chosen = choose_free(readable, missing=missing, is_free=self._session.is_free, offset=share.offset)
        async with trio.open_nursery() as writing:
            for shard in chosen:
                writing.start_soon(self._take, leases[shard], shard, identity, nursery)

    async def _check(self) -> None:
        """Compare the leases with what is owned: they differ if etcd was restored, or somebody has written them."""
        self._delay_check()
        identity = self._session.identity
        readable = await self._leases.read(self._leases.by_shard)
        if self._is_stopping or self._session.identity != identity:
            return
        for shard in readable:
            lease, term = self._leases.by_shard[shard], self._terms.get(shard)
            if term is None and lease.holder == identity:
                if not self._is_settled:
                    self._check_at = min(self._check_at, self._settled_at)
                    continue
                _logger.info("The %s names this replica, which does not own the shard: it is released.", lease)
                await self._leases.release(lease)
            elif term is not None and term.is_served and lease.holder != identity:  # perhaps it is draining
                await self._reclaim(term, lease, lease.holder)

    async def _reclaim(self, term: ShardOwnership, lease: Lease, holder: str) -> None:
        """Write the lease of an owned shard again, unless somebody else may own the shard by it."""
        if self._session.is_free(holder):
            try:
                with trio.fail_after(self._leases.timeout):
                    await lease.write()
            except (TrioperatorError, trio.TooSlowError) as error:
                _logger.debug("The %s cannot be written: %s", lease, str(error) or "no response in time")
        elif self._session.is_alive(holder):
            _logger.warning("The shard %d is lost: the %s names %s.", term.shard, lease, holder)
            term.lose()

    async def _take(self, lease: Lease, shard: int, identity: str, nursery: trio.Nursery) -> None:
        """Acquire a lease, and begin its term unless the session was lost meanwhile."""
        try:
            with trio.fail_after(self._leases.timeout):
                await lease.write()
        except ConflictError:
            self._changed.set()  # another replica was faster: look for other shards at once
            return
        except (TrioperatorError, trio.TooSlowError) as error:
            log = _logger.debug if shard in self._unacquired else _logger.warning
            log("The %s cannot be acquired: %s", lease, str(error) or "no response in time")
            self._unacquired.add(shard)
            if self._session.identity == identity:
                self._begin_to_give_back(lease, shard, nursery)
            return
        self._unacquired.discard(shard)
        if self._session.identity == identity and trio.current_time() < self._session.valid_until:
            if self._is_stopping:
                self._begin_to_give_back(lease, shard, nursery)
                return
            term = self._begin_term(shard)
            nursery.start_soon(self._own, term, lease, name=f"shard {shard}")

    def _begin_to_give_back(self, lease: Lease, shard: int, nursery: trio.Nursery) -> None:
        term = self._begin_term(shard)
        term.end()
        term.finish()
        nursery.start_soon(self._give_back, term, lease, name=f"give back shard {shard}")

    def _begin_term(self, shard: int) -> ShardOwnership:
        term = self._terms[shard] = ShardOwnership(shard, lambda: self._session.valid_until)
        return term

    async def _own(self, term: ShardOwnership, lease: Lease) -> None:
        """Serve a shard until its term is over, and release it, unless it is lost."""
        _logger.info("This replica owns the shard %d of %d.", term.shard, self._settings.shards)
        released = False
        try:
            await self._serve(term)
            term.finish()
            await self._release(term, lease)
            released = True
        finally:
            if not released and not term.lost.is_set():  # cancelled
                with trio.move_on_after(_LEAVE_TIMEOUT, shield=True):
                    await self._leases.release(lease)
            del self._terms[term.shard]
            self._changed.set()

    async def _give_back(self, term: ShardOwnership, lease: Lease) -> None:
        """Release a lease that may be held though there was no response: else nobody would own the shard."""
        try:
            await self._release(term, lease)
        finally:
            del self._terms[term.shard]
            if self._is_stopping:  # else the next renewal is soon enough: at once, the same may go wrong again
                self._changed.set()

    async def _release(self, term: ShardOwnership, lease: Lease) -> None:
        """Release a lease. While it is not, nobody owns the shard: so it is tried again until the session is over."""
        failures = 0
        while not term.lost.is_set() and not await self._leases.release(lease):
            failures += 1
            await trio.sleep(_BACKOFF.delay(failures))
