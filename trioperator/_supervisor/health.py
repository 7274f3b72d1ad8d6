"""Results of the probes: whether a restart would help (liveness), and whether the operator has begun (readiness).

The texts are public: they contain no messages of errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trioperator._concurrency.core_tasks import CoreTasks
from trioperator._endpoints.health import Check, HealthReport
from trioperator._runtime.watching.readiness import describe_unwatched
from trioperator._runtime.watching.reflector import Reflector
from trioperator._supervisor.shutdown import Shutdown
from trioperator._telemetry.inspector import Inspector

if TYPE_CHECKING:
    from trioperator._webhooks.service import Admission

# Periods without progress after which a watch counts as dead.
_PERIODS = 2
# At most this many problems of a ready operator are logged and shown by probes.
_MAX_PROBLEMS = 20


class Health:
    """The health of an operator. Nothing is done for it but on request."""

    def __init__(self, parts: Inspector, stop: Shutdown, core: CoreTasks) -> None:
        self._parts = parts
        self._stop = stop
        self._core = core
        self._admission: Admission | None = None
        self._ready = False

    def update_admission(self, admission: Admission | None) -> None:
        """Take the webhooks of the operator, if it has any: they begin when it has logged in."""
        self._admission = admission

    @property
    def problems(self) -> Sequence[str]:
        """The things that a ready operator does not handle, in one sentence each."""
        problems = () if self._parts.manager is None else self._parts.manager.problems
        problems += () if self._admission is None else self._admission.problems
        more = len(problems) - _MAX_PROBLEMS
        return problems if more <= 0 else (*problems[:_MAX_PROBLEMS], f"And {more} more.")

    def report(self) -> HealthReport:
        """Return what the probes say now."""
        return HealthReport(live=tuple(self._check_liveness()), ready=tuple(self._check_readiness()))

    def _check_liveness(self) -> Iterator[Check]:
        """Yield the checks that a restart would help, if they fail. A stopping operator is given its time."""
        stopping = self._stop.requested.is_set()
        for name, ended in self._core.report().items():
            yield Check(f"task {name}", "it has ended" if ended else "", fatal=not stopping)
        for name, reflector in self._reflectors():
            idle = reflector.status.idle
            stalled = idle > _PERIODS * reflector.period
            problem = f"it has made no progress for {idle:.0f} seconds" if stalled else ""
            yield Check(f"watch {name}", problem, fatal=not stopping)

    def _check_readiness(self) -> Iterator[Check]:
        """Yield the checks of what has to be done until the operator is ready. It stays so until it stops."""
        if self._stop.requested.is_set():
            yield Check("shutdown", "the operator is stopping")
            return
        waiting = [] if self._ready else [name for name, reflector in self._reflectors() if not _is_listed(reflector)]
        has_started, reasons = self._parts.ready, self._parts.pauses.reasons
        self._ready = self._ready or (has_started and not waiting)
        yield Check("startup", "" if has_started else "the operator is starting")
        if reasons:
            yield Check("active", f"it stands by {' and '.join(reasons)}", fatal=False)
        for name, reflector in self._reflectors():
            problem = " ".join(describe_unwatched("it", reflector)).rstrip(".")
            if reflector.status.is_synced and reflector.status.trouble is not None:
                problem = "its watch is interrupted"
            yield Check(f"watch {name}", problem, fatal=name in waiting)
        for problem in () if self._admission is None else self._admission.managed_problems:
            yield Check("webhooks", problem.rstrip("."))
        for problem in () if self._parts.manager is None else self._parts.manager.unserved_problems():
            yield Check("handlers", problem.rstrip("."), fatal=False)

    def _reflectors(self) -> Iterator[tuple[str, Reflector]]:
        return iter(()) if self._parts.watches is None else self._parts.watches.reflectors()


def _is_listed(reflector: Reflector) -> bool:
    """Check whether the operator need not wait for a first list: it is complete, or the server does not allow it.

    If objects cannot be converted, it must not wait either: Services pass reviews on to ready pods only, and perhaps
    this is the one that converts them.
    """
    return reflector.status.is_synced or reflector.status.is_refused or reflector.status.is_unconverted
