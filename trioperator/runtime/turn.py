"""Turns: what is done for one object when something has happened to it.

First every raw event, in order; then, for the newest state only: detect the cause, select the handlers, invoke them,
settle into one patch. The answer to a patch is the newest state, and is looked at again at once: nothing waits for an
echo.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import trio

from trioperator.clock import wall_now
from trioperator.errors import NotFoundError, TrioperatorError
from trioperator.handling.cause import ChangeCause, EventCause
from trioperator.handling.diffbase import DiffBaseStorage
from trioperator.handling.handler import Reason
from trioperator.handling.handler_state import HandlerState
from trioperator.handling.invoke import Attempt, Invoker
from trioperator.handling.lifecycles import Lifecycle, get_default_lifecycle
from trioperator.handling.progress import ProgressStorage
from trioperator.handling.registry import is_of_interest, must_block_deletion, select_event_handlers, select_handlers
from trioperator.handling.stopping import DaemonStoppingReason
from trioperator.logs import Logger
from trioperator.model.body import Body
from trioperator.model.finalizer import add_finalizer, has_finalizer, is_deleting, remove_finalizer
from trioperator.model.patch import Patch
from trioperator.runtime.background import Background
from trioperator.runtime.caller import Caller
from trioperator.runtime.detector import Change, Detector
from trioperator.runtime.indexing import Indexing
from trioperator.runtime.records import Records
from trioperator.runtime.rounds import TITLES, Rounds
from trioperator.runtime.saver import Saver
from trioperator.runtime.table import Known, Notice
from trioperator.runtime.writer import StaleError, Writer
from trioperator.settings import OperatorSettings

__all__ = ["TurnTaker"]

# How long a cancelled turn may take to put on record which handlers have ended: in seconds, and as a part of the grace.
_LAST_WRITE, _LAST_WRITE_SHARE = 1.0, 0.2
# After so many requests in a row for one object, somebody undoes what is done: then it rests for so many seconds.
_TOO_MANY, _REST = 10, 1.0


class TurnTaker:
    """Take the turns of objects: one after another for an object, many objects at a time.

    ``take`` never raises for what concerns one object only: such errors are logged, and the object is tried again
    later. Set ``stopping`` to have turns end after the handler at work.
    """

    def __init__(
        self,
        *,
        writer: Writer,
        invoker: Invoker,
        indexing: Indexing,
        background: Background,
        settings: OperatorSettings,
        progress: ProgressStorage,
        diffbase: DiffBaseStorage,
        lifecycle: Lifecycle | None = None,
    ) -> None:
        self._detector = Detector(progress=progress, diffbase=diffbase, finalizer=settings.persistence.finalizer)
        self._writer = writer
        self._indexing = indexing
        self._background = background
        self._settings = settings
        self._records = Records(progress=progress, diffbase=diffbase)
        self._caller = Caller(invoker)
        self._saver = Saver(writer=writer, records=self._records)
        self._rounds = Rounds(
            caller=self._caller,
            saver=self._saver,
            records=self._records,
            encode=self._detector.encode,
            settings=settings,
            lifecycle=get_default_lifecycle() if lifecycle is None else lifecycle,
        )
        self._finalizer = settings.persistence.finalizer

    @property
    def stopping(self) -> bool:
        """Tell whether turns end after the handler at work."""
        return self._rounds.stopping

    @stopping.setter
    def stopping(self, stopping: bool) -> None:
        self._rounds.stopping = stopping

    async def take(self, known: Known) -> float | None:
        """Do what there is to do for an object now; give the time on Trio's clock when there will be more."""
        try:
            due = await self._take(known)
        except NotFoundError as error:
            # The stream will say so, too, if it is true: servers say it also of kinds that they do not serve just now.
            return self._throttle(known, error)
        except Exception as error:  # noqa: BLE001 -- one object's trouble is not the others'
            return self._throttle(known, error)
        known.failures = 0
        known.not_before = None
        again = self._indexing.due(known)
        return due if again is None else again if due is None else min(due, again)

    async def _take(self, known: Known) -> float | None:
        for _ in range(_TOO_MANY):
            called, known.called = known.called, False
            for notice in known.take():
                try:
                    await self._absorb(known, notice)
                except (msgspec.MsgspecError, ValueError) as error:
                    known.make_logger().error("The object cannot be read, and this state is passed over: %r", error)
            await self._indexing.retry(known)
            if known.gone:
                self._background.stop(known, DaemonStoppingReason.RESOURCE_DELETED)
                return await self._attend_funeral(known)
            if called and known.body is None and known.background is not None:
                known.body = known.background.raw
            if self.stopping:
                await self._leave(known)
                return None
            if known.not_before is not None and trio.current_time() < known.not_before:
                return known.not_before
            if known.body is None:
                return None
            try:
                due = await self._consider(known)
            except StaleError as stale:
                known.renew(stale.body)
                due = None
            if not known.has_work:
                if due is not None:
                    return due
            elif known.unfinished is None or known.unfinished.save_at is None:
                return None  # there is news of it: it goes on when it is its turn again
        known.make_logger().warning("The object is changed again and again, and rests for %g s.", _REST)
        return trio.current_time() + _REST

    async def _leave(self, known: Known) -> None:
        """Put on record what is not yet, and leave all else to the next operator."""
        if known.body is not None:
            await self._saver.save(known, known.make_logger())
        known.body = None

    def _throttle(self, known: Known, error: Exception) -> float | None:
        logger = known.make_logger()
        known.failures += 1
        delays = list(itertools.islice(self._settings.queueing.error_delays, known.failures))
        delay = delays[-1] if delays else None
        fate = "It is handled again when it changes." if delay is None else f"It is tried again in {delay:g} seconds."
        if isinstance(error, NotFoundError) and known.failures == 1:
            logger.debug("The object is not found, and is gone as a rule: %s. %s", error, fate)
        elif isinstance(error, TrioperatorError):
            logger.error("The object could not be handled: %s. %s", error, fate)
        else:
            logger.error("The object could not be handled. %s", fate, exc_info=error)
        known.not_before = None if delay is None else trio.current_time() + delay
        return known.not_before

    # The first part of a turn: raw events.

    async def _absorb(self, known: Known, notice: Notice) -> None:
        handlers = known.table.kind.handlers
        body = await self._indexing.absorb(known, notice) if handlers.indices else None
        if handlers.events:
            body = notice.decode() if body is None else body
            await self._call_event_handlers(known, notice.type, body)
        if notice.type == "DELETED":
            known.gone = True
            known.body = notice.decode() if body is None else body
        elif notice.version > known.version and not known.gone:
            known.version = notice.version
            known.body = notice.decode() if body is None else body

    async def _call_event_handlers(self, known: Known, type: str | None, body: Mapping[str, Any]) -> None:
        cause = EventCause(
            resource=known.table.kind.resource,
            raw=body,
            get_memo=lambda: known.memo,
            logger=known.make_logger(),
            indices=known.table.indices,
            type=type,
        )
        for handler in select_event_handlers(known.table.kind.handlers, cause):
            attempt = Attempt(retry=0, started=wall_now())
            await self._caller.call(known, cause, handler=handler, attempt=attempt)

    # The second part: the newest state.

    async def _consider(self, known: Known) -> float | None:
        """Do the next thing for the newest state. Gives the due time of what cannot be done now."""
        handlers = known.table.kind.handlers
        held = bool(handlers.background) and self._background.match(known)
        if not handlers.changes:
            await self._rest_without_changes(known, held=held)
            return None
        change = self._detector.detect(known)
        cause = change.cause
        needed = held or must_block_deletion(handlers, cause)
        if await self._adjust_finalizer(known, cause.logger, needed=needed, finalized=change.finalized):
            return None
        if known.unfinished is None and not is_of_interest(handlers, cause):
            before = known.body
            await self._writer.store(known, Patch(), cause.logger)
            if known.body is before:
                known.body = None
        elif cause.reason in TITLES:
            return await self._handle(known, change)
        else:
            await self._rest(known, change)
        return None

    async def _adjust_finalizer(self, known: Known, logger: Logger, *, needed: bool, finalized: bool) -> bool:
        """Add or remove the finalizer where it is missing or not needed, and tell whether it was so."""
        assert known.body is not None
        if needed and not finalized and not is_deleting(known.body):
            logger.debug("Adding the finalizer, thus preventing the actual deletion.")
            await self._writer.store(known, Patch(), logger, lambda body: add_finalizer(body, self._finalizer))
        elif finalized and not needed:
            await self._release(known, Patch(), logger)
        else:
            return False
        return True

    async def _rest_without_changes(self, known: Known, *, held: bool) -> None:
        """Store what event handlers, daemons and timers want stored, where there are none of changes."""
        assert known.body is not None
        before, logger = known.body, known.make_logger()
        has_background = bool(known.table.kind.handlers.background)
        if has_background:
            finalized = has_finalizer(before, self._finalizer)
            if await self._adjust_finalizer(known, logger, needed=held, finalized=finalized):
                return
        await self._writer.store(known, Patch(), logger)
        if known.body is before or not has_background:
            known.body = None

    async def _rest(self, known: Known, change: Change) -> None:
        """Take note that there is nothing to handle, and clean up what an unfinished cause has left."""
        cause = change.cause
        if cause.reason is Reason.FREE:
            cause.logger.debug("Deletion, but we are done with it, and we do not care.")
        else:
            cause.logger.debug("Something has changed, but we are not interested (the essence is the same).")
        records = Patch()
        handled = change.encoded
        if known.unfinished is not None:
            self._records.purge(known, body=cause.body, patch=records)
            handled = known.unfinished.handled(handled)
        if handled == change.encoded and known.astray is not None:
            handled = known.astray
        if handled != change.encoded:
            # A change that was taken back: who has seen it has to see that, too.
            self._saver.conclude(known, handled, records, cause.logger)
        before = known.body
        await self._writer.store(known, records, cause.logger)
        known.unfinished = None
        known.handled = hash(handled)
        known.astray = None if handled == change.encoded else change.encoded
        if known.body is before and handled == change.encoded:
            known.body = None

    async def _handle(self, known: Known, change: Change) -> float | None:
        cause = change.cause
        selected = select_handlers(known.table.kind.handlers, cause)
        unfinished = self._rounds.resume(known, cause, selected)
        now = wall_now()
        if any(unfinished.states[handler.id].is_due(now) for handler in selected):
            version = (cause.raw.get("metadata") or {}).get("resourceVersion")
            cause.logger.debug("%s is in progress: version %s.", TITLES[cause.reason].capitalize(), version)
        completed = False
        try:
            await self._rounds.run(known, change, selected)
            completed = True
        finally:
            if not completed:  # cancelled: what has ended has to be on record
                limit = min(_LAST_WRITE, self._settings.process.grace * _LAST_WRITE_SHARE)
                with trio.move_on_after(limit, shield=True), contextlib.suppress(TrioperatorError, StaleError):
                    await self._saver.save(known, cause.logger)
        if known.body is None:
            return None
        states = [unfinished.states[handler.id] for handler in selected]
        ended = all(state.finished for state in states)
        waits_for_daemons = ended and cause.reason is Reason.DELETE and self._background.holds(known)
        if ended and not waits_for_daemons:
            await self._conclude(known, change, states)
            return None
        if known.has_newer():
            return None  # what is not saved yet goes with what comes next
        before = known.body
        await self._saver.save(known, cause.logger)
        if known.body is not before or self.stopping:
            return None  # the answer may hold what others have changed: look again
        if waits_for_daemons:
            known.body = None  # it goes on when the last one has ended
            return None
        now = wall_now()
        wait = min(state.wait(now) for state in states if not state.finished)
        return trio.current_time() + wait if wait > 0 else None

    async def _conclude(self, known: Known, change: Change, states: Sequence[HandlerState]) -> None:
        """Put on record that a cause has been handled."""
        cause, unfinished = change.cause, known.unfinished
        assert unfinished is not None
        if states:
            succeeded = sum(state.success for state in states)
            title = TITLES[cause.reason].capitalize()
            cause.logger.info("%s is processed: %d succeeded; %d failed.", title, succeeded, len(states) - succeeded)
        assert known.body is not None
        records = Patch()
        self._records.purge(known, body=Body(known.body), patch=records)
        if cause.reason is Reason.DELETE:
            await self._release(known, records, cause.logger)
            known.unfinished = None
            return
        # Not cause.new: a handler may have changed what it was given.
        encoded = unfinished.handled(change.encoded)
        self._saver.conclude(known, encoded, records, cause.logger)
        before = known.body
        await self._writer.store(known, records, cause.logger)
        known.unfinished = None
        known.initial = False
        known.handled = hash(encoded)
        known.astray = unfinished.seen_beside(encoded)
        if known.body is before:
            known.body = None
        cause.logger.debug("Handling cycle is finished, waiting for new changes.")

    async def _release(self, known: Known, records: Patch, logger: Logger) -> None:
        logger.debug("Removing the finalizer, thus allowing the actual deletion.")
        await self._writer.store(known, records, logger, lambda body: remove_finalizer(body, self._finalizer))
        if known.body is not None and is_deleting(known.body):
            known.released = True
            known.forget_state()

    # The end of an object.

    async def _attend_funeral(self, known: Known) -> float | None:
        """Call the optional delete handlers of an object that is no more, if they had no occasion before."""
        handlers = known.table.kind.handlers
        logger = known.make_logger()
        if handlers.delete_notices and not known.released and known.body is not None:
            essence = self._detector.reduce(known, Body(known.body))
            cause = ChangeCause(
                resource=known.table.kind.resource,
                raw=known.body,
                get_memo=lambda: known.memo,
                logger=logger,
                indices=known.table.indices,
                reason=Reason.DELETE,
                initial=False,
                old=essence,
                new=essence,
            )
            selected = [handler for handler in select_handlers(handlers, cause) if handler.is_delete_notice]
            unfinished = self._rounds.resume(known, cause, selected)
            unfinished.save_at = None
            await self._rounds.run_last(known, cause, selected)
            now = wall_now()
            waiting = [unfinished.states[handler.id] for handler in selected]
            waits = [state.wait(now) for state in waiting if not state.finished]
            if waits:
                return trio.current_time() + min(waits)
        if handlers.changes:
            logger.debug("Deleted, really deleted, and we are notified.")
        known.forget_state()
        return None
