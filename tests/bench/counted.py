"""An operator in which callgrind can tell the ledger and the guard against contention from all else.

The benchmark's operator imports this module where ``BENCH_COUNTED`` is set. With ``all``, it is the operator as it is.
Else each outermost call of theirs goes through a function of C, :data:`TOGGLE`, which nothing else uses often:
callgrind collects what is called by that, if it is told. With ``fields``, the ledger finds the fields of all changes,
with ``ledger`` of none: so little happens in a second under callgrind that its limit would never be reached.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any, Final

from trioperator._runtime import ledger
from trioperator._runtime.incoming import Incoming
from trioperator._runtime.ledger import Ledger
from trioperator._runtime.patching.contention_guard import ContentionGuard

TOGGLE: Final = "functools_reduce"
_ENTRIES: Final = (
    *((Incoming, name) for name in ("begin", "note_event", "note_update", "note_request")),
    *((Ledger, name) for name in ("end", "called", "requested", "note_cause")),
    *((ContentionGuard, name) for name in ("split", "note_stored", "observe", "settle", "join")),
)


def prepare(what: str) -> None:
    """Let *what* be told apart in this process from now on. Garbage is nobody's in particular: it is not collected."""
    gc.disable()
    gc.enable = lambda: None
    if what == "all":
        return
    ledger._MAX_CHANGES = {"fields": 1_000_000, "ledger": 0}[what]  # type: ignore[misc]
    is_inside = [False]
    for owner, name in _ENTRIES:
        setattr(owner, name, _wrap(getattr(owner, name), is_inside))


def _wrap(fn: Callable[..., Any], is_inside: list[bool]) -> Callable[..., Any]:
    def run(_: Any, given: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        return fn(*given[0], **given[1])

    def wrapped(*args: Any, **options: Any) -> Any:
        if is_inside[0]:
            return fn(*args, **options)
        is_inside[0] = True
        try:
            return functools.reduce(run, ((args, options),), None)
        finally:
            is_inside[0] = False

    return wrapped
