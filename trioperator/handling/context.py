"""Which cause the present code is handling: the one thing that travels beside the arguments.

It is there for helpers that users call from inside a handler without naming the object, such as ``adopt()``.
It follows the handler into its thread.
"""

from __future__ import annotations

import contextvars
from typing import Final, Protocol

from trioperator.model.body import Body

__all__ = ["HasBody", "current_body", "current_cause"]


class HasBody(Protocol):
    """Be a cause of an object: something with a body."""

    @property
    def body(self) -> Body: ...


current_cause: Final[contextvars.ContextVar[HasBody]] = contextvars.ContextVar("trioperator-cause")


def current_body() -> Body:
    """Give the body of the object that is being handled.

    Raises LookupError outside of a handler of an object, with a text that says what to pass instead.
    """
    try:
        return current_cause.get().body
    except LookupError:
        raise LookupError(
            "There is no current object outside of a resource handler: pass the owner explicitly."
        ) from None
