"""The object that is being handled in the current task or thread, for loggers that are not bound to one."""

from __future__ import annotations

import contextvars
import logging
from typing import Any, Final

#: The cause of the handler that runs: anything with a logger. See :mod:`trioperator._handling.arguments.context`.
current_cause: Final[contextvars.ContextVar[Any]] = contextvars.ContextVar("trioperator-cause")

_OWN: Final = "trioperator"


def add_current_object(record: logging.LogRecord) -> None:
    """Add the reference of the object that is being handled to a record of a user's own logger."""
    cause = current_cause.get(None)
    if cause is None or hasattr(record, "k8s_ref") or record.name.partition(".")[0] == _OWN:
        return
    ref = cause.logger.object_ref
    if ref is not None:
        record.k8s_ref = ref
