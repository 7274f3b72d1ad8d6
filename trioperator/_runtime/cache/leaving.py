"""Objects that leave the selector of their watch: they exist, but their watch shows them no more.

Such an object is reconciled once more, in the state that the server has: handlers' filters no longer match it, so
its daemons are stopped, and its finalizer is removed. Then it is forgotten, but for what is remembered of objects
during a pause, too: it may come back.
"""

from __future__ import annotations

from typing import Final, Protocol

from trioperator._runtime.cache.kind import Memory

#: Our own types of events: an object has left the selector; an object that is older than the operator has entered it.
LEFT: Final = "LEFT"
ENTERED: Final = "ENTERED"

# Limit of the objects that are remembered: it is unknown whether they still exist.
_MAX_REMEMBERED: Final = 10_000


class _State(Protocol):
    """The cached state of an object."""

    @property
    def uid(self) -> str: ...
    def remember(self) -> Memory: ...


class Leaving(set[_State]):
    """The objects of a cache that have left its selector and are not forgotten yet, and memories of earlier ones.

    *before* are memories of an operator that was paused.
    """

    def __init__(self, before: dict[str, Memory] | None = None) -> None:
        super().__init__()
        self._before = {} if before is None else before
        self._memories: dict[str, Memory] = {}

    def note(self, state: _State, *, has_left: bool) -> None:
        """Note whether an object has left, or has been seen since: it has come back, or is gone."""
        if has_left:
            self.add(state)
        else:
            self.discard(state)

    def forget(self, state: _State) -> None:
        """Forget an object for which nothing is left to do, and remember what matters if it comes back."""
        self.discard(state)
        self._memories[state.uid] = state.remember()
        if len(self._memories) > _MAX_REMEMBERED:
            del self._memories[next(iter(self._memories))]

    def take(self, uid: str) -> Memory | None:
        """Return what is remembered of an object that has come back, if it had left, or from before a pause."""
        if not (self._before or self._memories):  # as nearly always
            return None
        return self._before.pop(uid, None) or self._memories.pop(uid, None)

    def remember(self) -> dict[str, Memory]:
        """Return what is remembered of objects that have left."""
        return dict(self._memories)
