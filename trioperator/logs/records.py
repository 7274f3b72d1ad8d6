"""Attributes and messages of log records, for loggers and formatters."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

__all__ = ["RECORD_KEYS", "interpolate", "represent"]

# Reserved attributes of log records, which extra fields must not overwrite.
RECORD_KEYS: Final = frozenset(vars(logging.makeLogRecord({}))) | frozenset(
    {"asctime", "event_fields", "event_message", "k8s_ref", "message", "taskName"}
)


def interpolate(message: object, args: tuple[object, ...]) -> str:
    """Format a message as the standard library does; append the arguments if they do not match."""
    try:
        text = str(message)
    except Exception:  # noqa: BLE001 -- users' __str__ may raise
        text = represent(message)
    if not args:
        return text
    mapping = args[0] if len(args) == 1 and isinstance(args[0], Mapping) and args[0] else None
    try:
        return text % (args if mapping is None else mapping)
    except Exception:  # noqa: BLE001 -- they may raise anything
        return f"{text} (arguments that do not match: {', '.join(represent(arg) for arg in args)})"


def represent(value: object) -> str:
    """Return the repr of a value, or its class if that raises."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 -- users' __repr__ may raise
        return f"<{type(value).__name__}>"
