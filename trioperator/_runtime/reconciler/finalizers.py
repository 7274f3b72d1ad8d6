"""The finalizer of the operator on objects: added before anything needs it, removed as soon as nothing does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import trio

from trioperator._concurrency.backoff import Backoff
from trioperator._logs import Logger
from trioperator._model.finalizer import add_finalizer, has_finalizer, is_deleting, remove_finalizer
from trioperator._model.patch import Patch
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.patching.contention_guard import HeldError
from trioperator._runtime.patching.patcher import Patcher
from trioperator._runtime.patching.pending import PendingPatches
from trioperator._runtime.progress.progress import Progress
from trioperator._runtime.result import AGAIN, DONE, Result
from trioperator.errors import TrioperatorError

# Finalizers that operators have by default: those of this framework, and those for Kopf.
_DEFAULTS: Final = ("trioperator.dev/finalizer", "kopf.zalando.org/KopfFinalizerMarker")
# Limit of the finalizers that a message names: users who may write an object choose how many there are.
_MAX_NAMED: Final = 10
# Number of times that it is added to an object without a delay, the delays after that, and the seconds of rest after
# which it is added without a delay again.
_SEVERAL: Final = 3
_BACKOFF: Final = Backoff(initial=1.0, maximum=60.0)
_WINDOW: Final = 300.0
_REWRITTEN: Final = "an admission webhook or policy of others changes what is written"


class _Additions:
    """How often the finalizer was added to each object lately: others may remove it whenever they see it."""

    def __init__(self) -> None:
        self._recent: dict[ObjectState, tuple[int, float]] = {}  # numbers, and the last times; the oldest come first

    def check(self, state: ObjectState) -> None:
        """Raise HeldError if the finalizer was added to an object several times, and is to be added again later."""
        if state in self._recent:
            number, at = self._recent[state]
            due = at + _BACKOFF.delay(number - _SEVERAL)
            if due > trio.current_time():
                raise HeldError(due)

    def note(self, state: ObjectState) -> float:
        """Note that the finalizer was added to an object. Returns the seconds until it may be added again."""
        now = trio.current_time()
        number, _ = self._recent.pop(state, (0, now))
        self._recent[state] = number + 1, now
        while self._recent:
            oldest, (_, at) = next(iter(self._recent.items()))
            if at > now - _WINDOW:
                break
            del self._recent[oldest]
        return _BACKOFF.delay(number + 1 - _SEVERAL)

    def forget(self, state: ObjectState) -> None:
        """Forget an object."""
        self._recent.pop(state, None)


class Finalizers:
    """Adding and removing of the operator's finalizer, by conditional patches: others may change the list, too."""

    def __init__(self, name: str | None, *, patcher: Patcher, pending: PendingPatches, progress: Progress) -> None:
        self._name = name
        self._patcher = patcher
        self._pending = pending
        self._progress = progress
        self._additions = _Additions()

    async def add_early(self, state: ObjectState) -> Result | None:
        """Add the finalizer where all objects of a kind need it: before it is known what has happened to this one.

        Returns None if it is there already. To detect that takes a tenth of the time of a creation.
        """
        assert state.body is not None
        if has_finalizer(state.body, self._name) or not state.cache.kind.handlers.finalizes_all:
            return None
        return await self.adjust(state, state.make_logger(local=False), blocked=True, finalized=False)

    async def adjust(self, state: ObjectState, logger: Logger, *, blocked: bool, finalized: bool) -> Result | None:
        """Add the finalizer if deletion is to be *blocked*, remove it if not. Returns None if it is as it is to be.

        Pending changes of the object are stored in the same request. Raises TrioperatorError if the server has stored
        something else: to try again at once would never end. Raises HeldError if others remove it repeatedly.
        """
        assert state.body is not None
        if finalized and not blocked:
            return await self.remove(state, Patch(), logger)
        name = self._name  # if it is None, nothing is blocked
        if finalized or not blocked or name is None or is_deleting(state.body):  # servers reject new ones meanwhile
            return None
        self._additions.check(state)
        logger.debug("Adding the finalizer, thus preventing the actual deletion.")
        stored = await self._patcher.store(state, Patch(), logger, lambda body: add_finalizer(body, name))
        if stored is not None and not (has_finalizer(stored, name) or is_deleting(stored)):
            raise TrioperatorError(f"the server did not keep the finalizer {name}: {_REWRITTEN}")
        if delay := self._additions.note(state):
            text = "The finalizer %s is removed by others again and again: it is not added again for %g s."
            logger.warning(text, name, delay)
        return AGAIN

    async def remove(self, state: ObjectState, records: Patch, logger: Logger) -> Result:
        """Remove the finalizer, and store *records* in the same request.

        If the object is being deleted, that is the last thing that is done for it: it may be gone by now, and what
        comes later has no place to be stored. Raises as :meth:`adjust` does.
        """
        logger.debug("Removing the finalizer, thus allowing the actual deletion.")
        stored = await self._patcher.store(state, records, logger, lambda body: remove_finalizer(body, self._name))
        if stored is not None and has_finalizer(stored, self._name):
            raise TrioperatorError(f"the server did not remove the finalizer {self._name}: {_REWRITTEN}")
        self._additions.forget(state)
        if stored is None or not is_deleting(stored):
            return AGAIN
        _report_left(stored["metadata"].get("finalizers") or (), logger)
        state.mark_deletion_handled()
        self._progress.finish(state)
        self._pending.forget(state)
        return DONE

    def forget(self, state: ObjectState) -> None:
        """Forget an object that is gone, or is no longer handled."""
        self._additions.forget(state)

    def report_former(self, body: Mapping[str, Any], logger: Logger) -> None:
        """Log that a deletion waits for a finalizer that this operator may have had before it got another one."""
        found = body["metadata"].get("finalizers") or ()
        _report_left([name for name in _DEFAULTS if name in found and name != self._name], logger)


def _report_left(finalizers: Collection[str], logger: Logger) -> None:
    """Log which finalizers a deletion waits for: with one that nobody removes, it would never end, and nothing tell."""
    if finalizers:
        more = f" and {len(finalizers) - _MAX_NAMED} more" if len(finalizers) > _MAX_NAMED else ""
        names = ", ".join(list(finalizers)[:_MAX_NAMED]) + more
        logger.info("The object exists until others have removed their finalizers: %s.", names)
