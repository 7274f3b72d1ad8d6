"""Calls: attempts of the handlers of objects, and what these want stored."""

from __future__ import annotations

from trioperator.handling.cause import ObjectCause
from trioperator.handling.context import current_cause
from trioperator.handling.handler import ResourceHandler
from trioperator.handling.invoke import Attempt, Invoker
from trioperator.handling.outcome import Outcome
from trioperator.handling.settle import deliver_result
from trioperator.model.patch import Patch, merge_patches
from trioperator.runtime.table import Known
from trioperator.runtime.writer import collect

__all__ = ["Caller"]


class Caller:
    """Make attempts of handlers for objects: with their arguments, and with a patch of their own to fill."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker

    async def call(self, known: Known, cause: ObjectCause, *, handler: ResourceHandler, attempt: Attempt) -> Outcome:
        """Make one attempt, and collect what the handler wants stored: it is pending for the object then."""
        patch = Patch()
        token = current_cause.set(cause)
        try:
            kwargs = cause.kwargs_for(handler, patch)
            outcome = await self._invoker.invoke(handler, kwargs, attempt=attempt, logger=cause.logger)
        finally:
            current_cause.reset(token)
        wanted = deliver_result(outcome.result, handler_id=handler.id)
        if patch or wanted:
            collect(known, merge_patches(patch, wanted), patch.fns, by=str(handler), logger=cause.logger)
        return outcome
