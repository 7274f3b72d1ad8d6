"""Saving while handlers run: the progress of earlier handlers, and patches of daemons, when they are due."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Self

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._concurrency.pulse import Pulse
from trioperator._logs import Logger
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.patching.pending import PendingPatches
from trioperator._runtime.progress.progress import Progress
from trioperator.errors import NotFoundError

# Delays between attempts to store the progress while a handler runs, and the API server fails.
_BACKOFF: Final = Backoff(initial=5.0, maximum=5.0)


class Saver:
    """Storing of what is due of one object while its handlers run: they are called in its ``with`` block.

    Changes that have begun to be stored after that are stored when :meth:`wait` returns. No task is started for an
    object that never has anything to store, and no nursery is opened for it, which takes an eighth of the time of a
    reconcile: the *nursery* of the worker is the saver's, too, which fails with no error of the object.
    """

    def __init__(
        self, progress: Progress, pending: PendingPatches, *, state: ObjectState, nursery: trio.Nursery, logger: Logger
    ) -> None:
        self.nursery = nursery
        self._progress = progress
        self._pending = pending
        self._state = state
        self._logger = logger
        self._changed: Pulse | None = None  # this, and the next, from when the task is started
        self._ended: trio.Event | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Begin to store nothing more."""
        self._closed = True
        if self._changed is not None:
            self._changed.set()
            self._pending.unobserve(self._state, self)

    async def wait(self) -> None:
        """Wait until nothing is being stored, after the block. Not a checkpoint if nothing ever was."""
        if self._ended is not None:
            await self._ended.wait()

    def notify(self) -> None:
        """Check whether something is due, or will be."""
        if self._changed is not None:
            self._changed.set()
        elif self._pending.is_observed(self._state) or self._due() < math.inf:
            self._changed, self._ended = Pulse(), trio.Event()
            self._pending.observe(self._state, self)
            self.nursery.start_soon(self._serve, self._changed, self._ended, name="saver")

    def contributed(self, patch: Mapping[str, Any], *, opaque: bool) -> None:
        """Check whether something is due, as something was added to the pending patch."""
        self.notify()

    def stored(self, body: Mapping[str, Any], pending: Mapping[str, Any] | None) -> None:
        """Do nothing: the patch is stored."""

    async def _serve(self, changed: Pulse, ended: trio.Event) -> None:
        try:
            await self._save_when_due(changed)
        finally:
            ended.set()

    async def _save_when_due(self, changed: Pulse) -> None:
        failures, not_before = 0, -math.inf
        while not self._closed:
            with trio.move_on_at(max(not_before, self._due())):
                await changed.wait()
                continue
            try:
                await self._progress.save(self._state, self._logger)
                failures = 0
            except Exception as error:  # noqa: BLE001 -- raised again where the reconcile stores it
                if isinstance(error, NotFoundError) and self._state.cache.kind.retired:
                    self._pending.forget(self._state)  # no watch will say that it is gone
                failures += 1
                not_before = trio.current_time() + _BACKOFF.delay(failures)
                self._logger.debug("Storing the progress is delayed: %s", error)

    def _due(self) -> float:
        """Return when something is to be stored: at once if a daemon or a timer waits for it."""
        if self._pending.is_awaited(self._state):
            return -math.inf
        progress = self._progress.get(self._state)
        return math.inf if progress is None or progress.save_at is None else progress.save_at
