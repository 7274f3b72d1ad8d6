"""The object and the handler of the current task or thread, for loggers that are not bound to them."""

from __future__ import annotations

import contextvars
import logging
from typing import Any, Final

from trioperator._logs.records import to_text

#: The cause of the handler that runs: anything with a logger. See :mod:`trioperator._handling.arguments.context`.
current_cause: Final[contextvars.ContextVar[Any]] = contextvars.ContextVar("trioperator-cause")

#: The id of the handler that runs, for log records.
current_handler: Final[contextvars.ContextVar[str | None]] = contextvars.ContextVar("trioperator-handler", default=None)

_OWN: Final = "trioperator"
_OWN_PREFIX: Final = f"{_OWN}."


def add_current_object(record: logging.LogRecord) -> None:
    """Add the handler that runs, and the reference of its object, to a record of a user's own logger."""
    name = record.name if type(record.name) is str else to_text(record.name)
    if name == _OWN or name.startswith(_OWN_PREFIX):
        return
    handler = current_handler.get()
    if handler is not None and not hasattr(record, "k8s_handler"):
        record.k8s_handler = handler
    cause = current_cause.get(None)
    if cause is None or hasattr(record, "k8s_ref"):
        return
    ref = cause.logger.object_ref
    if ref is not None:
        record.k8s_ref = ref
