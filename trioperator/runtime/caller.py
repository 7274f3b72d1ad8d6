"""Calls: attempts of the handlers of objects, and what these want stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trioperator.handling.cause import ObjectCause
from trioperator.handling.context import current_cause
from trioperator.handling.handler import ResourceHandler
from trioperator.handling.handler_state import deliver_result
from trioperator.handling.invoke import Attempt, Invoker
from trioperator.handling.outcome import Outcome
from trioperator.handling.subhandlers import Subhandlers, current_subhandlers
from trioperator.model.patch import Patch, PatchFn, merge_patches
from trioperator.runtime.table import Known
from trioperator.runtime.writer import collect

__all__ = ["Call", "Caller"]


class Call:
    """Be one attempt of a handler, with what it wants stored."""

    def __init__(self, known: Known, cause: ObjectCause, handler: ResourceHandler) -> None:
        self.known = known
        self.cause = cause
        self.handler = handler
        self.patch = Patch()
        self._collected = Patch()

    def collect(self) -> None:
        """Have pending for the object what the handler wants by now: what comes after that is collected later."""
        try:
            plain = msgspec.json.decode(msgspec.json.encode(self.patch))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return  # this is reported when all is collected
        self._collect(plain, self.patch.fns)
        self._collected = Patch(plain, fns=self.patch.fns)

    def conclude(self, result: Any) -> None:
        """Have pending for the object what the handler wants, with its *result*, but for what was collected before."""
        try:
            wanted = merge_patches(self.patch, deliver_result(result, handler_id=self.handler.id))
        except Exception as error:  # noqa: BLE001 -- somebody's mapping
            self.cause.logger.error(
                "%s has a result or a patch that cannot be read, and it is dropped: %r", self.handler, error
            )
            wanted = {}
        self._collect(wanted, self.patch.fns)

    def _collect(self, wanted: Mapping[str, Any], fns: Sequence[PatchFn]) -> None:
        wanted = _news(self._collected, wanted)
        fns = fns[len(self._collected.fns) :]
        if wanted or fns:
            collect(self.known, wanted, fns, by=str(self.handler), logger=self.cause.logger)


class Caller:
    """Make attempts of handlers for objects: with their arguments, and with a patch of their own to fill."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker

    async def call(self, known: Known, cause: ObjectCause, *, handler: ResourceHandler, attempt: Attempt) -> Outcome:
        """Make one attempt, and collect what the handler wants stored: it is pending for the object then."""
        return await self.make(Call(known, cause, handler), attempt)

    async def make(self, call: Call, attempt: Attempt, subhandlers: Subhandlers | None = None) -> Outcome:
        """Make one attempt of a handler that may have sub-handlers, which are a part of it.

        What an interrupted one wants stored is dropped.
        """
        cause, handler = call.cause, call.handler
        token = current_cause.set(cause)
        own_token = current_subhandlers.set(subhandlers)
        if subhandlers is not None:
            subhandlers.begin()
            attempt = dataclasses.replace(attempt, after=subhandlers.conclude)
        try:
            outcome = await self._invoker.invoke(
                handler,
                cause.kwargs_for(handler, call.patch),
                attempt=attempt,
                logger=cause.logger,
            )
        finally:
            current_subhandlers.reset(own_token)
            current_cause.reset(token)
        if not outcome.interrupted:
            call.conclude(outcome.result)
        return outcome


def _news(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a merge patch says now and has not said before."""
    news: dict[str, Any] = {}
    for key, value in after.items():
        if isinstance(value, Mapping) and isinstance(before.get(key), Mapping):
            inner = _news(before[key], value)
            if inner:
                news[key] = inner
        elif key not in before or before[key] != value:
            news[key] = value
    return news
