"""An operator without the ledger and the guard against contention, or with both, for callgrind.

The benchmark's operator imports this module where ``BENCH_COUNTED`` is set. With ``none``, nothing is on record, and no
writes are counted for the guard. With ``storm``, both are as they are, but the ledger finds the fields of no changes,
as in a storm; with ``fields`` it finds those of all: so little happens in a second under callgrind that its limit would
never be reached.
"""

from __future__ import annotations

import gc
from typing import Any, Final

from trioperator._runtime import ledger
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.ledger import Ledger
from trioperator._runtime.patching.contention_guard import ContentionGuard
from trioperator._runtime.reconciler.incoming import Incoming

_LEFT_OUT: Final = (
    *((Incoming, name) for name in ("note_event", "note_update", "note_request")),
    *((Ledger, name) for name in ("end", "called", "requested", "note_cause")),
    (ContentionGuard, "note_stored"),
)


def prepare(what: str) -> None:
    """Let this process be counted from now on. Callgrind collects no garbage: it is nobody's."""
    gc.disable()
    gc.enable = lambda: None
    if what == "none":
        _leave_out()
    else:
        ledger._MAX_CHANGES = {"fields": 1e6, "storm": 1e-9}[what]  # type: ignore[assignment, misc]


def _leave_out() -> None:
    for owner, name in _LEFT_OUT:
        setattr(owner, name, _do_nothing)
    run: Any = None

    def begin(self: Incoming, state: ObjectState) -> Any:
        self.forget(state)
        return run

    Incoming.begin = begin  # type: ignore[method-assign]


def _do_nothing(*_: object, **__: object) -> None:
    pass
