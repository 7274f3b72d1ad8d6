"""Interruptions: the way to cancel one attempt of a handler, and nothing else, because there is news."""

from __future__ import annotations

import trio

__all__ = ["InterruptedAttempt", "Interruption"]


class InterruptedAttempt(Exception):
    """Say that an attempt was interrupted before it has ended."""


class Interruption:
    """Be asked to interrupt an attempt, now or while it runs: at its next checkpoint."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._scope: trio.CancelScope | None = None

    def interrupt(self, reason: str) -> None:
        """Cancel what runs in the scope at the moment, and what is entered later."""
        if self.reason is None:
            self.reason = reason
            if self._scope is not None:
                self._scope.cancel(reason=reason)

    def make_scope(self) -> trio.CancelScope:
        """Make the scope of what is to be interrupted from now on."""
        self._scope = trio.CancelScope()
        if self.reason is not None:
            self._scope.cancel(reason=self.reason)
        return self._scope

    def leave_scope(self) -> None:
        """Take note that nothing is in the scope any more, and that it does not matter how that has ended."""
        self._scope = None

    @property
    def cancelled_caught(self) -> bool:
        """Tell whether what was in the scope has ended because of the interruption."""
        return self._scope is not None and self._scope.cancelled_caught
