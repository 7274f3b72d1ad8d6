"""Interruptions: cancellation of a single attempt of a handler, because its object has changed (``on_change=``)."""

from __future__ import annotations

import trio


class InterruptedAttempt(Exception):
    """Raised when an attempt was interrupted before it has finished."""


class Interruption:
    """Request to interrupt an attempt at its next checkpoint."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._scope: trio.CancelScope | None = None

    def interrupt(self, reason: str) -> None:
        """Cancel the current scope and all later ones."""
        if self.reason is None:
            self.reason = reason
            if self._scope is not None:
                self._scope.cancel(reason=reason)

    def make_scope(self) -> trio.CancelScope:
        """Return a new scope, which replaces the previous one."""
        self._scope = trio.CancelScope()
        if self.reason is not None:
            self._scope.cancel(reason=self.reason)
        return self._scope

    def leave_scope(self) -> None:
        """Forget the scope: it has been left, and its outcome does not matter."""
        self._scope = None

    @property
    def cancelled_caught(self) -> bool:
        """Whether the scope has ended by this interruption."""
        return self._scope is not None and self._scope.cancelled_caught
