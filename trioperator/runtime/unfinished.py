"""Unfinished causes: what is remembered of them in memory, until all their handlers have ended."""

from __future__ import annotations

import dataclasses

from trioperator.handling.handler import Reason
from trioperator.handling.handler_state import HandlerState

__all__ = ["Unfinished"]


@dataclasses.dataclass(slots=True, eq=False)
class Unfinished:
    """Remember a cause that has not ended: in this process, and ahead of what is stored on the object.

    ``save_at`` is set while states are ahead of the stored ones: they have to be stored by then (on Trio's clock).
    ``interruptions`` counts for handler ids how often in a row their calls were cancelled because of news.
    ``seen`` is the essence that the first handler to end well has seen, ``also_seen`` another one that a later one has:
    as soon as all have ended, what has changed since is handled once more, by all.
    """

    purpose: Reason
    states: dict[str, HandlerState] = dataclasses.field(default_factory=dict)
    save_at: float | None = None
    interruptions: dict[str, int] = dataclasses.field(default_factory=dict)
    seen: bytes | None = None
    also_seen: bytes | None = None

    def note_seen(self, encoded: bytes) -> None:
        """Note which essence a handler that has ended well had seen."""
        if self.seen is None:
            self.seen = encoded
        elif encoded != self.seen:
            self.also_seen = encoded

    def handled(self, encoded: bytes) -> bytes:
        """Tell which essence counts as handled where the present one is *encoded*: any other one that was seen."""
        return self.seen_beside(encoded) or encoded

    def seen_beside(self, encoded: bytes) -> bytes | None:
        """Give an essence that a handler has seen, other than the one which is *encoded*."""
        return next((seen for seen in (self.seen, self.also_seen) if seen not in (None, encoded)), None)
