"""Context variable with the current cause, for helpers that are called in a handler without an object: ``adopt()``.

The context of a sync handler is copied to its thread.
"""

from __future__ import annotations

import contextvars
from typing import Final, Protocol

from trioperator.model.body import Body

__all__ = ["HasBody", "current_body", "current_cause"]


class HasBody(Protocol):
    """Cause of an object: anything with a body."""

    @property
    def body(self) -> Body: ...


current_cause: Final[contextvars.ContextVar[HasBody]] = contextvars.ContextVar("trioperator-cause")


def current_body() -> Body:
    """Return the body of the object that is being handled.

    Raises LookupError outside of resource handlers.
    """
    try:
        return current_cause.get().body
    except LookupError:
        raise LookupError(
            "There is no current object outside of a resource handler: pass the owner explicitly."
        ) from None
