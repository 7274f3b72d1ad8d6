"""Follow-ups of writes: what the control plane does by itself once an object has changed.

Real controllers do it some time later. Here it is done before the response to the write is sent, which makes tests
deterministic: there is nothing to wait for. No task and no time is involved.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

_log: Final = logging.getLogger(__name__)

FollowUp: TypeAlias = Callable[[], None]


class FollowUps:
    """Queue of follow-ups, in the order of the changes that caused them."""

    def __init__(self) -> None:
        self.is_prompt = True  # deferrable follow-ups are run like all others
        self._queue: deque[FollowUp] = deque()
        self._deferred: deque[FollowUp] = deque()
        self._is_running = False

    def add(self, followup: FollowUp) -> None:
        """Run the follow-up after those that are queued already."""
        self._queue.append(followup)

    def defer(self, followup: FollowUp) -> None:
        """Run the follow-up like the others, or, unless :attr:`is_prompt`, when :meth:`run_deferred` is called."""
        (self._queue if self.is_prompt else self._deferred).append(followup)

    def run(self) -> None:
        """Run all queued follow-ups, and those that they cause."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._queue:
                followup = self._queue.popleft()
                try:
                    followup()
                except Exception:  # noqa: BLE001 -- like a controller: the write is done, whatever becomes of this
                    _log.exception("The embedded API server failed to follow up a write.")
        finally:
            self._is_running = False

    def run_deferred(self) -> None:
        """Run the follow-ups that were deferred, and those that they cause."""
        while self._deferred:
            self._queue.extend(self._deferred)
            self._deferred.clear()
            self.run()
