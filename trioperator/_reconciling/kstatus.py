"""Status of objects for tools: whether it has been observed, and is as desired, as kstatus defines it.

https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md

Conditions are written where the schema of a custom kind has them, and nobody else sets them: neither its handlers nor
others. ``Ready`` and ``Applied`` are always there; ``Reconciling`` and ``Stalled`` only while they are true.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any, Final

import trio

from trioperator._handling.arguments.conditions import Conditions
from trioperator._handling.arguments.reconciling import ReconcileCause, ReconcileHandler
from trioperator._handling.handlers.handler import unwrap
from trioperator._kube.status_schemas import StatusSchemas
from trioperator._logs import Logger
from trioperator._model.patch import Patch
from trioperator._reconciling.schedules import HandlerSchedule, ObjectSchedule, Report, Reported
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.patching.patcher import Patcher
from trioperator._runtime.patching.pending import PendingPatches
from trioperator.errors import ApiError

#: The contributor of these conditions to the pending patch.
BY: Final = "the status of reconciling"
_FORBIDDEN: Final = 403
_PROGRESSING, _RETRYING, _FAILED, _RECONCILED = "Progressing", "Retrying", "Failed", "Reconciled"
# Our reasons by the types of conditions. With other reasons, these belong to somebody else.
_REASONS: Final = {
    "Ready": (_RECONCILED, _PROGRESSING, _RETRYING, _FAILED),
    "Reconciling": (_PROGRESSING, _RETRYING),
    "Stalled": (_FAILED,),
}
# Stands for all types: if a handler replaces the list of conditions as a whole, ours would be lost with each call.
_ALL: Final = "*"
_ORDER: Final = ("failed", "retrying", "progressing", "done")
_OUTLOOKS: Final = {"progressing": _PROGRESSING, "retrying": _RETRYING, "failed": _FAILED, "done": _RECONCILED}


class StatusReporter:
    """Writes the conditions of objects that have reconcile handlers, and which generation they are about."""

    def __init__(self, schemas: StatusSchemas, pending: PendingPatches) -> None:
        self._schemas = schemas
        self._pending = pending
        self._set_by_handlers: dict[ReconcileHandler, set[str]] = {}
        self._words: dict[Any, frozenset[str]] = {}

    def note(self, handler: ReconcileHandler, patch: Patch, conditions: Conditions) -> None:
        """Note which conditions a handler has set, so that they are left to it; all, if it replaces the list."""
        own = self._set_by_handlers.setdefault(handler, set())
        for each in (conditions, *(getattr(fn, "__self__", None) for fn in patch.fns)):
            if isinstance(each, Conditions):
                own.update(each.wanted_types)
        status = patch.get("status")
        found = status.get("conditions") if isinstance(status, Mapping) else None
        if isinstance(found, list | tuple):
            own.add(_ALL)

    async def report(self, state: ObjectState, cause: ReconcileCause, schedule: ObjectSchedule, digest: int) -> None:
        """Contribute what is to be written of the last calls to the pending patch, unless that is there already.

        Where conditions are forbidden, that is due again later. Raises TrioperatorError if the schema of the kind
        cannot be requested.
        """
        schedule.report_at = None
        generation = (cause.raw.get("metadata") or {}).get("generation")
        handlers = [handler for handler in schedule.handlers if handler.kstatus]
        report = _summarize([own for own in map(schedule.get, handlers) if own is not None], digest)
        if report is None or schedule.has_reported(generation, report, version=state.version):
            return
        resource = state.cache.kind.resource
        if await self._schemas.has_conditions(resource):
            self._pending.withdraw(state, BY)  # what is held may be the opposite, and outdated
            patch, body = Patch(), self._pending.preview(state, state.body or cause.raw)
            conditions = Conditions(body, patch)
            for name, wanted in _list_conditions(report):
                if not self._is_theirs(name, conditions.get(name), state, schedule):
                    _set(conditions, name, wanted)
            if self._schemas.has_observed_generation(resource) and generation is not None:
                _observe(patch, body, generation)
            if self._pending.contribute(state, patch, patch.fns, by=BY, logger=cause.logger):
                self._schemas.claim(resource)
        elif (until := self._schemas.find_retry(resource)) is not None:
            schedule.postpone_report(until)
            return
        schedule.reported = Reported(generation, report, state.version)

    async def store(self, state: ObjectState, patcher: Patcher, schedule: ObjectSchedule, logger: Logger) -> None:
        """Store what is pending for an object. Without the right to set conditions, none are set for a while."""
        resource, pending = state.cache.kind.resource, self._pending.get(state)
        has_conditions = pending is not None and any(each.by == BY for each in pending.contributions)
        try:
            await patcher.store(state, Patch(), logger)
        except ApiError as error:
            if error.status != _FORBIDDEN or not self._pending.withdraw(state, BY):
                raise
            log = logger.warning if self._schemas.deny(resource) else logger.debug
            until = self._schemas.find_retry(resource)
            assert until is not None
            seconds = until - trio.current_time()
            log("The conditions of reconciling cannot be set; the next try is in %g s. %s", seconds, error)
            schedule.postpone_report(until)
            await patcher.store(state, Patch(), logger)
        else:
            if schedule.reported is not None:
                schedule.reported = schedule.reported._replace(version=state.version)
            if has_conditions:
                self._schemas.permit(resource)

    def _is_theirs(
        self, type: str, present: Mapping[str, Any] | None, state: ObjectState, schedule: ObjectSchedule
    ) -> bool:
        """Check whether somebody else sets the conditions of a type: as seen, as handlers name it, or by its reason."""
        if present is not None and type in _REASONS and present.get("reason") not in _REASONS[type]:
            return True
        own = schedule.handlers
        set_by_own = set[str]().union(*(self._set_by_handlers.get(handler, ()) for handler in own))
        if type in set_by_own or _ALL in set_by_own or any(handler.condition == type for handler in own):
            return True
        handlers = state.cache.kind.handlers
        others = (*handlers.changes, *handlers.events, *handlers.spawning, *handlers.reconciles)
        return any(type in self._find_words(handler.fn) for handler in others)

    def _find_words(self, fn: Any) -> frozenset[str]:
        """Return the constant strings in the code of a function."""
        code = getattr(unwrap(fn), "__code__", None)
        if code not in self._words:
            self._words[code] = frozenset(_iterate_words(code))
        return self._words[code]


def _iterate_words(code: object) -> Iterator[str]:
    for constant in code.co_consts if isinstance(code, types.CodeType) else ():
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, types.CodeType):
            yield from _iterate_words(constant)


def _summarize(schedules: list[HandlerSchedule], digest: int) -> Report | None:
    """Return the worst report of an object's handlers; None as long as one of them is to be called for this state."""
    reports = [report for report in (own.find_report(digest) for own in schedules) if report is not None]
    if not reports or len(reports) != len(schedules):
        return None
    return min(reports, key=lambda report: _ORDER.index(report.outlook))


def _list_conditions(report: Report) -> Iterator[tuple[str, tuple[bool, str, str] | None]]:
    """Yield the conditions for a report: their types with status, reason and message; None for those to be removed."""
    why, message = _OUTLOOKS[report.outlook], report.message
    yield (
        "Applied",
        (report.is_applied, "Applied" if report.is_applied else report.reason, "" if report.is_applied else message),
    )
    yield "Ready", (report.outlook == "done", why, message)
    yield "Reconciling", (True, why, message) if report.outlook in ("progressing", "retrying") else None
    yield "Stalled", (True, why, message) if report.outlook == "failed" else None


def _set(conditions: Conditions, type: str, wanted: tuple[bool, str, str] | None) -> None:
    if wanted is None:
        conditions.remove(type)
    else:
        conditions.set(type, wanted[0], reason=wanted[1], message=wanted[2])


def _observe(patch: Patch, body: Mapping[str, Any], generation: int) -> None:
    """Write into a patch which generation the status is about, unless it is about that already."""

    def store(body: Any) -> None:
        body["status"] = {**(body.get("status") or {}), "observedGeneration": generation}

    if (body.get("status") or {}).get("observedGeneration") != generation:
        patch.fns.append(store)
