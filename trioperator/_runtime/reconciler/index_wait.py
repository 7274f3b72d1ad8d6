"""Waiting until own writes are indexed: handlers that look up their own kind see the patches of others.

The response to a patch is the newest state of an object, and the watch brings it a little later, and with it the index.
"""

from __future__ import annotations

import trio

from trioperator._runtime.cache.object_state import ObjectState


class IndexWait:
    """Objects whose newest states are own writes that are not indexed yet, and how long that is waited for.

    If their watch is interrupted, it takes longer than that.
    """

    def __init__(self, *, timeout: float) -> None:
        self._timeout = timeout
        self._until: dict[ObjectState, tuple[int, float]] = {}

    def find(self, state: ObjectState) -> float | None:
        """Return until when, on Trio's clock, an object is to wait. It is queued when it is indexed before."""
        if state.seen_version >= state.version:  # what is seen is indexed
            self.forget(state)
            return None
        version, until = self._until.get(state, (-1, 0.0))
        if version != state.version:
            until = trio.current_time() + self._timeout
            self._until[state] = state.version, until
        return until if until > trio.current_time() else None

    def forget(self, state: ObjectState) -> None:
        """Forget an object."""
        self._until.pop(state, None)
