"""Waiting for a state of one object."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from trioperator._kube.objects import RawObject
from trioperator.client.paging import Listing, make_selectors
from trioperator.client.watching import ObjectWatch

T = TypeVar("T")

# When the object is read once more before the timeout is over: seconds at most, and as a share of the timeout.
_LAST_LOOK: Final = 5.0
_LAST_LOOK_SHARE: Final = 0.1


async def wait_until(
    listing: Listing, name: str, check: Callable[[RawObject | None], T | None], *, timeout: float | None
) -> T | None:
    """Watch the object *name* of a collection until *check* returns something other than None, and return that.

    *check* is called with each state of the object, None while it does not exist. Returns None after *timeout* seconds.
    Shortly before that, the object is read once more: a watch may have gone deaf, which takes longer to notice. Raises
    as watches do, and what *check* raises.
    """
    watch = ObjectWatch(listing, make_selectors(None, None, name=name), decode=lambda obj: obj)
    seconds = math.inf if timeout is None else timeout
    end, checked = trio.current_time() + seconds, False
    last_look = end - min(_LAST_LOOK, _LAST_LOOK_SHARE * seconds)
    try:
        with trio.move_on_at(end):
            while True:
                with trio.move_on_at(last_look if watch.is_listed else end) as listening:
                    await watch.advance()
                if listening.cancelled_caught:
                    last_look = end
                    await watch.restart()
                if watch.take() or (watch.is_listed and not checked):
                    checked = True
                    result = check(next(iter(watch.known), None))
                    if result is not None:
                        return result
        return None
    finally:
        await watch.aclose()
