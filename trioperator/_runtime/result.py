"""The result of a reconcile: what the work queue does with the object next."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec


class Done(msgspec.Struct, frozen=True):
    """Nothing is left to do until the next watch event."""


class Again(msgspec.Struct, frozen=True):
    """The object has a newer state, usually by an own write: reconcile it again now.

    There is *progress* if a handler has ended for good: so that cannot go on forever.
    """

    progress: bool = False


class RequeueAt(msgspec.Struct, frozen=True):
    """The object is due at *time*, in seconds on Trio's clock, or at the next watch event if that is earlier."""

    time: float


Result: TypeAlias = Done | Again | RequeueAt

DONE: Final = Done()
AGAIN: Final = Again()
ONWARD: Final = Again(progress=True)


def earlier(one: Result, other: Result) -> Result:
    """Return the result of two parts of a reconcile, neither of which is to be repeated at once."""
    times = [result.time for result in (one, other) if isinstance(result, RequeueAt)]
    return RequeueAt(min(times)) if times else DONE
