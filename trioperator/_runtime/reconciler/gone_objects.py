"""Objects that are gone: the optional delete handlers are called for the last state that was seen of them."""

from __future__ import annotations

import trio

from trioperator._concurrency.clock import steady_now
from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.declaring.registry import select_matching
from trioperator._handling.handlers.handler import Reason
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.execution.execution import Execution, Executor, find_nursery
from trioperator._runtime.reconciler.takeover import Takeover
from trioperator._runtime.result import DONE, RequeueAt, Result


class GoneObjects:
    """Handling of objects that are gone. Nothing can be stored on them: what is left to do is lost with the process."""

    def __init__(self, executor: Executor, *, daemons: DaemonManager, takeover: Takeover) -> None:
        self._executor = executor
        self._daemons = daemons
        self._takeover = takeover

    async def handle(self, state: ObjectState) -> Result:
        """Stop what runs for an object, and call its optional delete handlers that are due."""
        self._daemons.stop(state, DaemonStoppingReason.RESOURCE_DELETED)
        handlers = state.cache.kind.last_handlers
        self._report_unfinished(state)
        if handlers.optional_deletes and state.body is not None and not self._is_handled(state):
            cause = self._executor.causes.make_deletion_cause(state)
            # A filter that fails would fail forever, as the object does not change any more.
            selected = select_matching(handlers.optional_deletes, cause)
            progress = self._executor.progress.begin(state, cause, selected)
            progress.plan_save(None)
            execution = Execution(self._executor, state, nursery=find_nursery())
            await execution.run(selected, cause)
            wait = progress.wait(selected, now=steady_now())
            if wait is not None:
                return RequeueAt(trio.current_time() + wait)
        if handlers.changes:
            state.make_logger().debug("Deleted, really deleted, and we are notified.")
        return DONE

    def _report_unfinished(self, state: ObjectState) -> None:
        """Warn of delete handlers that were to be called again: nothing but a look into the log would tell."""
        progress = self._executor.progress.get(state)
        if progress is None or progress.purpose is not Reason.DELETE or self._is_handled(state):
            return
        ended = {name for name, each in progress.states.items() if each.finished}
        waiting = [
            handler
            for handler in state.cache.kind.last_handlers.changes
            if handler.needs_finalizer and handler.id in progress.states and handler.id not in ended
        ]
        if waiting:
            text = "The object is gone before %s has finished: somebody has removed the finalizer %s."
            names = " and ".join(map(str, waiting))
            state.make_logger().warning(text, names, self._executor.settings.persistence.finalizer)

    def _is_handled(self, state: ObjectState) -> bool:
        """Check whether no handler is to be called: it was called before the end, or elsewhere, or there is no end."""
        return state.deletion_handled or self._takeover.was_gone(state) or _may_have_left(state)


def _may_have_left(state: ObjectState) -> bool:
    """Check whether an object that is gone may still exist, but no longer match the selectors of the settings."""
    is_deleted = bool(((state.body or {}).get("metadata") or {}).get("deletionTimestamp"))
    return state.cache.kind.selected and not is_deleted
