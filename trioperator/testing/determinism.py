"""Deterministic runs: the same order of tasks, the same random numbers and the same wall time in each run."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import random
from collections.abc import Iterator
from typing import Any, Final

import trio

from trioperator._concurrency.clock import wall_starts_at
from trioperator.testing.autojump import pause_autojump_for_threads

_START: Final = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)

# Trio shuffles the runnable tasks. There is no public way to seed that, but this one, which it keeps for Hypothesis.
_SCHEDULER: Final = "trio._core._run"
_SWITCH: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"  # sorts the tasks before they are shuffled
_RANDOM: Final = "_r"  # the random.Random that shuffles them


@contextlib.contextmanager
def deterministic(seed: int = 0) -> Iterator[None]:
    """Make runs of Trio in this context deterministic: each seed leads to another, but always the same course.

    ::

        with deterministic(seed=1):
            trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    The seed determines the order in which Trio runs tasks, and seeds the module ``random``. The wall time of operators
    and clusters starts at 1 January 2024 (UTC) in runs that start in this context. Use it with a mock clock, because
    real time is never the same, and with async handlers, because threads and sockets take real time.

    Raises RuntimeError if this version of Trio has another scheduler than expected.
    """
    scheduler = _find_scheduler()
    shuffler: random.Random = getattr(scheduler, _RANDOM)
    switch, order, state = getattr(scheduler, _SWITCH), shuffler.getstate(), random.getstate()
    setattr(scheduler, _SWITCH, True)
    shuffler.seed(seed)
    random.seed(seed)
    pause_autojump_for_threads()
    try:
        with wall_starts_at(_START):
            yield
    finally:
        setattr(scheduler, _SWITCH, switch)
        shuffler.setstate(order)
        random.setstate(state)


def _find_scheduler() -> Any:
    """Return Trio's module with the scheduler. Raises RuntimeError if it is not the one that can be seeded."""
    try:
        scheduler = importlib.import_module(_SCHEDULER)
        missing = [f"{_SCHEDULER}.{name}" for name in (_SWITCH, _RANDOM) if not hasattr(scheduler, name)]
    except ImportError:
        missing = [_SCHEDULER]
    if missing:
        raise RuntimeError(
            f"trioperator.testing.deterministic() cannot seed the scheduler of Trio {trio.__version__}, which has no"
            f" {' and no '.join(missing)}: use another version of Trio or of trioperator."
        )
    return scheduler
