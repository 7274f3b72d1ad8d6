"""An operator in which callgrind can tell the ledger and the guard against contention from all else.

The benchmark's operator imports this module where ``BENCH_COUNTED`` is set. With ``all``, it is the operator as it is.
Else each outermost call of theirs goes through a function of C, :data:`TOGGLE`, which nothing else uses often:
callgrind collects what is called by that, if it is told. With ``fields``, the ledger finds the fields of all changes,
with ``ledger`` of none: so little happens in a second under callgrind that its limit would never be reached.

With ``time``, it is no callgrind that counts, but a clock: the CPU time of those calls, less what reading the clock
takes, is written to the file ``BENCH_COUNTED_TO`` at the end.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import pathlib
import time
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
    """Let *what* be told apart in this process from now on. Callgrind collects no garbage: it is nobody's."""
    if what == "time":
        _time_entries()
        return
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


def _time_entries() -> None:
    """Add up the CPU time of the entries, and write it at the end, with what the measuring itself has taken."""
    clock = _Clock()
    inner, outer = clock.calibrate()
    for owner, name in _ENTRIES:
        setattr(owner, name, clock.wrap(getattr(owner, name)))

    def write() -> None:
        spent = {"ledger": clock.spent - clock.calls * inner, "measuring": clock.calls * outer}
        pathlib.Path(os.environ["BENCH_COUNTED_TO"]).write_text(json.dumps(spent))

    atexit.register(write)


class _Clock:
    """CPU time of the outermost calls of some functions of one thread, in nanoseconds."""

    def __init__(self) -> None:
        self.spent = self.calls = 0
        self._is_inside = False

    def wrap(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            if self._is_inside:
                return fn(*args, **options)
            self._is_inside = True
            began = time.thread_time_ns()
            try:
                return fn(*args, **options)
            finally:
                self.spent += time.thread_time_ns() - began
                self.calls += 1
                self._is_inside = False

        return wrapped

    def calibrate(self, rounds: int = 20_000) -> tuple[float, float]:
        """Return what a call takes that does nothing: as it is measured, and altogether."""
        wrapped, began = self.wrap(lambda: None), time.thread_time_ns()
        for _ in range(rounds):
            wrapped()
        taken = (time.thread_time_ns() - began) / rounds, self.spent / rounds
        self.spent = self.calls = 0
        return taken[1], taken[0]
