"""Clocks: wall time, real or virtual where Trio's clock is, and a clock for Trio that suspension does not stop."""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import functools
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import trio
import trio.lowlevel

# Seconds by which two clocks may differ without one of them having been set.
_PRECISION: Final = 0.01

_start: Final[contextvars.ContextVar[float | None]] = contextvars.ContextVar("trioperator-start", default=None)


#: A time on Trio's clock, the same as steady time, and by how many seconds wall time is ahead of that.
Moment: TypeAlias = tuple[float, datetime.datetime, float]


class Clocks:
    """The wall times at which Trio's clock stood at zero, as floats, computed once per run.

    ``steady`` is that for steady time, ``virtual`` that for wall time, which is None where the clock is real. ``now``
    is Trio's clock.
    """

    __slots__ = ("now", "steady", "virtual")

    def __init__(self) -> None:
        self.now = find_clock()
        is_mock = hasattr(trio.lowlevel.current_clock(), "autojump_threshold")  # trio.testing is slow to import
        start = _start.get() if is_mock else None
        self.steady = (time.time() if start is None else start) - self.now()
        self.virtual = self.steady if is_mock else None

    def find_moment(self) -> Moment:
        """Return what the time is now on all clocks, which takes half as long as to look at one after another."""
        now, steady = self.now(), self.steady
        shift = (time.time() - now if self.virtual is None else self.virtual) - steady
        moment = datetime.datetime.fromtimestamp(steady + now, datetime.UTC)
        return now, moment, 0.0 if -_PRECISION < shift < _PRECISION else round(shift, 6)


def find_clock() -> Callable[[], float]:
    """Return Trio's clock in this run, for who reads it often: to ask Trio for the time takes four times as long."""
    return trio.lowlevel.current_clock().current_time


_clocks: Final[trio.lowlevel.RunVar[Clocks]] = trio.lowlevel.RunVar("trioperator-clocks")


@contextlib.contextmanager
def wall_starts_at(start: datetime.datetime) -> Iterator[None]:
    """Start the wall time of runs with a mock clock in this context at *start*, which is aware, instead of now."""
    token = _start.set(start.timestamp())
    try:
        yield
    finally:
        _start.reset(token)


def wall_now() -> datetime.datetime:
    """Return the wall time, aware, in UTC. Trio must be running.

    It is the time of the system, which may be set while the operator runs, or jump when a suspended machine is resumed.
    Under a mock clock it is the real time of the first call in this run, plus what has passed on that clock since.
    """
    clocks = find_clocks()
    epoch = clocks.virtual
    return datetime.datetime.fromtimestamp(time.time() if epoch is None else epoch + clocks.now(), datetime.UTC)


def steady_now() -> datetime.datetime:
    """Return the time on Trio's clock as wall time: that at the first call in this run, plus what has passed since.

    Unlike wall time, it is never set: what is due at such a time is due after the seconds that were meant. Trio must be
    running.
    """
    try:
        clocks = _clocks.get()  # without one call more: this is called several times per reconcile
    except LookupError:
        clocks = find_clocks()
    return datetime.datetime.fromtimestamp(clocks.steady + clocks.now(), datetime.UTC)


def find_wall_shift() -> float:
    """Return by how many seconds wall time is ahead of steady time now: 0 unless it was set."""
    return find_clocks().find_moment()[2]


@contextlib.contextmanager
def rewound_wall(to: datetime.datetime) -> Iterator[None]:
    """Set the wall time of a run with a mock clock to *to* in the block; it goes on after it as if nothing had been."""
    clocks = find_clocks()
    before, clocks.virtual = clocks.virtual, to.timestamp() - clocks.now()
    try:
        yield
    finally:
        clocks.virtual = before


def find_clocks() -> Clocks:
    """Return the clocks of this run."""
    try:
        return _clocks.get()
    except LookupError:
        clocks = Clocks()
        _clocks.set(clocks)
        return clocks


class BootClock(trio.abc.Clock):
    """A clock for ``trio.run()`` by *now*, in seconds: monotonic, and running while the machine is suspended."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.current_time = now  # type: ignore[method-assign]  # without one call more: Trio asks for it all the time

    def start_clock(self) -> None:
        """Do nothing: it runs."""

    def current_time(self) -> float:
        """Return the time."""
        return self._now()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return how long to wait for *deadline*, if the machine is not suspended meanwhile."""
        return deadline - self._now()


def make_clock() -> BootClock | None:
    """Return a clock for the runs of operators; None for Trio's own, where the system has no other.

    Trio's stands still while the machine is suspended. A lease, whose limits are on this clock, would go on after that,
    though others hold it.
    """
    boot: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    try:
        if boot is None or time.clock_gettime(boot) <= 0:
            return None
    except OSError:  # some sandboxes have not all clocks
        return None
    return BootClock(functools.partial(time.clock_gettime, boot))
