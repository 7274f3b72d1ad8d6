"""Attributes and messages of log records, for loggers and formatters."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

# Reserved attributes of log records, which extra fields must not overwrite.
RECORD_KEYS: Final = frozenset(vars(logging.makeLogRecord({}))) | frozenset(
    {"asctime", "event_fields", "event_message", "k8s_handler", "k8s_ref", "k8s_skip", "message", "taskName"}
)


def get_message(record: logging.LogRecord) -> str:
    """Return the message of a record; with the arguments appended if they do not match."""
    message, args = record.msg, record.args
    try:
        if type(message) is str and type(record) is logging.LogRecord:  # as its own method does
            return message % args if args else message
        return record.getMessage()
    except Exception:  # noqa: BLE001 -- log the message even if its arguments do not match
        args = record.args if isinstance(record.args, tuple) else (record.args,)
        return interpolate(record.msg, args)


def interpolate(message: object, args: tuple[object, ...]) -> str:
    """Format a message as the standard library does; append the arguments if they do not match."""
    text = to_text(message)
    if not args:
        return text
    mapping = args[0] if len(args) == 1 and isinstance(args[0], Mapping) and args[0] else None
    try:
        return text % (args if mapping is None else mapping)
    except Exception:  # noqa: BLE001 -- they may raise anything
        return f"{text} (arguments that do not match: {', '.join(represent(arg) for arg in args)})"


def to_text(value: object) -> str:
    """Return the value as a string, or its repr if that raises."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 -- users' __str__ may raise
        return represent(value)


def represent(value: object) -> str:
    """Return the repr of a value, or its class if that raises."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 -- users' __repr__ may raise
        return f"<{type(value).__name__}>"
