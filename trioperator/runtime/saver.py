"""Saving: putting on record how far the handlers of an object have come, no later than it is due."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator

import trio

from trioperator.errors import TrioperatorError
from trioperator.logs import Logger
from trioperator.model.body import Body
from trioperator.model.patch import Patch
from trioperator.runtime.records import Records
from trioperator.runtime.table import Known
from trioperator.runtime.writer import StaleError, Writer

__all__ = ["Saver", "Saving"]

# How long to wait with storing the progress beside a handler at work, after the API has failed.
_PUT_OFF = 5.0


class Saver:
    """Store the states of handlers that are ahead of the stored ones, together with what is pending for the object."""

    def __init__(self, *, writer: Writer, records: Records) -> None:
        self._writer = writer
        self._records = records

    async def save(self, known: Known, logger: Logger) -> None:
        """Store how far the handlers have come, if that is not on record yet, and what is pending."""
        unfinished = known.unfinished
        if known.body is None:
            return
        records = Patch()
        if unfinished is None or unfinished.save_at is None:
            await self._writer.store(known, records, logger)
            return
        save_at, unfinished.save_at = unfinished.save_at, None
        self._records.store(unfinished, body=Body(known.body), patch=records)
        try:
            await self._writer.store(known, records, logger)
        except BaseException:
            unfinished.save_at = save_at
            raise

    def conclude(self, known: Known, encoded: bytes, records: Patch, logger: Logger) -> None:
        """Remember that this essence is handled: on the object, or here where somebody takes that off the object."""
        assert known.body is not None
        if known.stripped is not None and known.handled is not None:
            known.stripped = encoded
        elif self._records.conclude(encoded, body=Body(known.body), patch=records):
            logger.warning(
                "The last-handled state is too big for annotations, and is kept as digests: of big fields it is"
                " known that they have changed, but not from what."
            )

    @contextlib.asynccontextmanager
    async def open_saving(self, known: Known, logger: Logger) -> AsyncIterator[Saving]:
        """Store beside handlers at work what is due: how those before them have ended, and what daemons want stored.

        What has begun to be stored is stored before the block is left.
        """
        async with trio.open_nursery() as nursery:
            saving = Saving(self, nursery, known, logger)
            yield saving
            saving.end()


class Saving:
    """Store what an object's handlers and daemons want stored, when it is due.

    The *nursery* is around all of the handlers.
    """

    def __init__(self, saver: Saver, nursery: trio.Nursery, known: Known, logger: Logger) -> None:
        self._saver = saver
        self.nursery = nursery
        self._known = known
        self._logger = logger
        self._serving = False
        self._ended = False

    def note(self) -> None:
        """Take note that there may be something to store. Nothing is begun for those who never have anything."""
        if self._serving:
            self._wake()
        elif self._known.background is not None or _due(self._known) < math.inf:
            self._serving = True
            self.nursery.start_soon(self._serve, name="saver")

    def end(self) -> None:
        """Begin to store nothing more."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._known.wake is not None:
            self._known.wake.set()

    async def _serve(self) -> None:
        not_before = -math.inf
        while not self._ended:
            self._known.wake = trio.Event()
            with trio.move_on_at(max(not_before, _due(self._known))):
                await self._known.wake.wait()
                continue
            try:
                await self._saver.save(self._known, self._logger)
            except (TrioperatorError, StaleError) as error:
                self._logger.debug("Storing the progress is put off: %s", error)
                not_before = trio.current_time() + _PUT_OFF
        self._known.wake = None


def _due(known: Known) -> float:
    """Tell when something is to be stored beside a handler at work: what daemons want stored is due at once."""
    if known.awaited:
        return -math.inf
    unfinished = known.unfinished
    return math.inf if unfinished is None or unfinished.save_at is None else unfinished.save_at
