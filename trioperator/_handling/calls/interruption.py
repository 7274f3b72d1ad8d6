"""Interruptions: cancellation of a single attempt of a handler, because its object has changed (``on_change=``)."""

from __future__ import annotations

import math

import trio


class InterruptedAttempt(Exception):
    """Raised when an attempt was interrupted before it has finished."""


class Interruption:
    """Request to interrupt an attempt at its next checkpoint, or later."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._at = math.inf
        self._scope: trio.CancelScope | None = None

    def interrupt(self, reason: str, *, at: float = -math.inf) -> None:
        """Cancel the current scope and all later ones, unless the attempt ends before this time on Trio's clock."""
        if at < self._at:
            self.reason, self._at = reason, at
            if self._scope is not None:
                self._limit(self._scope)

    def make_scope(self) -> trio.CancelScope:
        """Return a new scope, which replaces the previous one."""
        self._scope = trio.CancelScope()
        if self.reason is not None:
            self._limit(self._scope)
        return self._scope

    def _limit(self, scope: trio.CancelScope) -> None:
        if self._at == -math.inf:
            scope.cancel(reason=self.reason)
        else:
            scope.deadline = self._at

    def leave_scope(self) -> None:
        """Forget the scope: it has been left, and its outcome does not matter."""
        self._scope = None

    @property
    def cancelled_caught(self) -> bool:
        """Whether the scope has ended by this interruption."""
        return self._scope is not None and self._scope.cancelled_caught
