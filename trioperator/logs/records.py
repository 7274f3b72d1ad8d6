"""What is known of log records, by those who make them and by those who print them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

__all__ = ["RECORD_KEYS", "interpolate", "represent"]

# The attributes that a record has of itself: not all of them can be set, and none should be.
RECORD_KEYS: Final = frozenset(vars(logging.makeLogRecord({}))) | frozenset(
    {"asctime", "event_fields", "event_message", "k8s_ref", "message", "taskName"}
)


def interpolate(message: object, args: tuple[object, ...]) -> str:
    """Fill the arguments in as the standard library does; where they do not fit, put them behind the message."""
    try:
        text = str(message)
    except Exception:  # noqa: BLE001 -- somebody's __str__
        text = represent(message)
    if not args:
        return text
    mapping = args[0] if len(args) == 1 and isinstance(args[0], Mapping) and args[0] else None
    try:
        return text % (args if mapping is None else mapping)
    except Exception:  # noqa: BLE001 -- they may raise anything
        return f"{text} (with arguments that do not fit: {', '.join(represent(arg) for arg in args)})"


def represent(value: object) -> str:
    """Give the value's own representation, or its class if that fails."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 -- somebody's __repr__
        return f"<{type(value).__name__}>"
