"""Runs that go the same way each time: for tests of what depends on the order of things."""

from __future__ import annotations

import contextlib
import datetime
import random
from collections.abc import Iterator
from typing import Any, Final

import trio

from trioperator.clock import wall_begins
from trioperator.testing.autojump import pause_autojump_for_threads

__all__ = ["deterministic"]

_BEGIN: Final = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@contextlib.contextmanager
def deterministic(seed: int = 0) -> Iterator[None]:
    """Let runs of Trio that begin in the block go the same way each time, and another way with another seed.

    The seed decides in which order Trio runs the tasks that can run, and what the module ``random`` gives; the wall
    time of operators and clusters begins on the first of January 2024. It needs a mock clock, for real time is never
    the same. Threads and sockets are as quick as they are: handlers should be async.
    """
    # Trio keeps this for Hypothesis, and has no other name for it.
    scheduler: Any = trio._core._run
    flag, state, order = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, random.getstate(), scheduler._r.getstate()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r.seed(seed)
    random.seed(seed)
    pause_autojump_for_threads()
    try:
        with wall_begins(_BEGIN):
            yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = flag
        scheduler._r.setstate(order)
        random.setstate(state)
