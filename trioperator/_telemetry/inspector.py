"""The parts of a running operator, for those who only look at them: metrics and the live view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trioperator._coordination.lease import Lease
from trioperator._coordination.pauses import Pauses
from trioperator._handling.calls.invoke import Attempt, RunningCall
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._logs import describe_ref
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.ledger import Ledger
from trioperator._runtime.sharding import ShardRouter
from trioperator._runtime.watching.watch_manager import WatchManager
from trioperator._runtime.watching.watch_set import WatchSet
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    from trioperator._telemetry.instruments import Instruments


class Inspector:
    """Parts of one operator. The watches and the shards, with what is queued, are others after a pause."""

    def __init__(
        self,
        settings: OperatorSettings,
        pauses: Pauses,
        running: Mapping[Attempt, RunningCall],
        instruments: Instruments | None = None,
        registry: OperatorRegistry | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.settings = settings
        self.registry = OperatorRegistry() if registry is None else registry
        self.ledger = Ledger() if ledger is None else ledger
        self.pauses = pauses
        self.running = running
        self.instruments = instruments
        self.shards = ShardRouter(1)
        self.manager: WatchManager | None = None
        self.lease: Lease | None = None
        self.ready = False

    def update_lease(self, lease: Lease | None) -> None:
        """Take the lease by which the operator is elected, if it is: that begins when it has logged in."""
        self.lease = lease

    def replace(self, shards: ShardRouter, manager: WatchManager) -> None:
        """Take new parts."""
        self.shards, self.manager = shards, manager
        self._announce_change()

    @property
    def watches(self) -> WatchSet | None:
        """The watches of the operator."""
        return None if self.manager is None else self.manager.watches

    def find_state(self, uid: str) -> ObjectState | None:
        """Return the cached state of an object, if it is watched."""
        return None if self.watches is None else self.watches.find(uid)

    def requeue(self, uid: str) -> str | None:
        """Reconcile an object as if all that it waits for were due. Returns what was done; None if nothing."""
        state = self.find_state(uid)
        reconciler = None if state is None else self.shards.find_reconciler(state)
        if state is None or reconciler is None or not reconciler.events.expedite(state):
            return None
        return f"{describe_ref(state.ref)} is requeued"

    def cancel(self, uid: str) -> str | None:
        """Cancel the calls of handlers of an object, which are tried again. Returns what was done; None if nothing."""
        cancelled = []
        for attempt, call in list(self.running.items()):
            ref = call.logger.object_ref
            if ref is not None and ref["uid"] == uid and attempt.interruption is not None:
                attempt.interruption.interrupt("it was cancelled on request")
                cancelled.append(str(call))
        return f"{', '.join(cancelled)} is cancelled" if cancelled else None

    def announce(self) -> None:
        """Record that the operator is ready: it handles, or stands by to handle, what could be listed."""
        self.ready = True
        self._announce_change()

    def _announce_change(self) -> None:
        if self.instruments is not None:
            self.instruments.announce()
