"""Context variables for helpers: the current cause and the recorder of events in handlers, and what is being loaded.

The context of a sync handler is copied to its thread.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from trioperator._logs.context import current_cause as logged_cause
from trioperator._model.body import Body
from trioperator.settings.posting import PostingSettings


class HasBody(Protocol):
    """Cause of an object: anything with a body."""

    @property
    def body(self) -> Body: ...


# Defined in the logging, as log records of users' own loggers need it, too.
current_cause: Final[contextvars.ContextVar[HasBody]] = logged_cause


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


class Recorder(Protocol):
    """Recorder of Kubernetes Events, which are posted in the background."""

    @property
    def posting(self) -> PostingSettings:
        """The settings of events."""

    @property
    def waiting(self) -> int:
        """How many events wait for being posted."""

    def record(
        self,
        reference: Mapping[str, Any],
        *,
        type: str,
        reason: str,
        message: str,
        backoffs: Iterable[float] | float | None = None,
    ) -> None:
        """Record an event of the object with the reference, in any thread. Never waits, never raises."""


#: The recorder of the operator whose code runs.
current_recorder: Final[contextvars.ContextVar[Recorder]] = contextvars.ContextVar("trioperator-recorder")

#: The file or module that is being loaded for its handlers; None at all other times.
loaded_source: Final[contextvars.ContextVar[str | None]] = contextvars.ContextVar("trioperator-loaded", default=None)
