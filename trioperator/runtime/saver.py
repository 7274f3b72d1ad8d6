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

__all__ = ["Saver"]

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
    async def open_saving(self, known: Known, logger: Logger) -> AsyncIterator[None]:
        """Store beside a handler at work what is due: how the earlier ones have ended, and what daemons want stored.

        What has begun to be stored is stored before the block is left.
        """
        async with trio.open_nursery() as nursery:
            ended = trio.Event()
            nursery.start_soon(self._save_when_due, known, logger, ended, name="saver")
            yield
            ended.set()
            if known.wake is not None:
                known.wake.set()

    async def _save_when_due(self, known: Known, logger: Logger, ended: trio.Event) -> None:
        """Store how far the handlers have come when that is due, until the one at work has ended."""
        not_before = -math.inf
        while not ended.is_set():
            known.wake = trio.Event()
            with trio.move_on_at(max(not_before, _due(known))):
                await known.wake.wait()
                continue
            try:
                await self.save(known, logger)
            except (TrioperatorError, StaleError) as error:
                logger.debug("Storing the progress is put off: %s", error)
                not_before = trio.current_time() + _PUT_OFF
        known.wake = None


def _due(known: Known) -> float:
    """Tell when something is to be stored beside a handler at work: what daemons want stored is due at once."""
    if known.awaited:
        return -math.inf
    unfinished = known.unfinished
    return math.inf if unfinished is None or unfinished.save_at is None else unfinished.save_at
