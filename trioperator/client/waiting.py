"""Waiting for a state of one object."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import trio

from trioperator._kube.objects import RawObject
from trioperator.client.paging import Listing, make_selectors
from trioperator.client.watching import ObjectWatch

T = TypeVar("T")


async def wait_until(
    listing: Listing, name: str, check: Callable[[RawObject | None], T | None], *, timeout: float | None
) -> T | None:
    """Watch the object *name* of a collection until *check* returns something other than None, and return that.

    *check* is called with each state of the object, None while it does not exist. Returns None after *timeout* seconds.
    Raises as watches do, and what *check* raises.
    """
    watch = ObjectWatch(listing, make_selectors(None, None, name=name), decode=lambda obj: obj)
    checked = False
    try:
        with trio.move_on_after(math.inf if timeout is None else timeout):
            while True:
                await watch.advance()
                if watch.take() or (watch.is_listed and not checked):
                    checked = True
                    result = check(next(iter(watch.known), None))
                    if result is not None:
                        return result
        return None
    finally:
        await watch.aclose()
