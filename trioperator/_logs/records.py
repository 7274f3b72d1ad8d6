"""Attributes and messages of log records, for loggers and formatters."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import types
from collections.abc import Mapping
from typing import Any, Final

# Reserved attributes of log records, which extra fields must not overwrite.
RECORD_KEYS: Final = frozenset(vars(logging.makeLogRecord({}))) | frozenset(
    {"asctime", "event_fields", "event_message", "k8s_handler", "k8s_ref", "k8s_skip", "message", "taskName"}
)

# The attributes of the first record of each call in the code, by the code's id, the call's place, the level and the
# logger. The code is kept, so that its id remains its own.
_templates: Final[dict[tuple[int, int, int, str], tuple[types.CodeType, dict[str, Any]]]] = {}
_MAX_TEMPLATES: Final = 1000
_RECORD: Final = logging.LogRecord
_MAKE, _INITIALIZE = logging.Logger.makeRecord, logging.LogRecord.__init__
_is_original: Final = all(
    type(each) is types.FunctionType and each.__globals__ is vars(logging) for each in (_MAKE, _INITIALIZE)
)


def make_record(
    logger: logging.Logger, level: int, caller: types.FrameType, message: object, args: Any, extra: Mapping[str, Any]
) -> logging.LogRecord:
    """Return a new record, as :meth:`logging.Logger.makeRecord` does, from the first one of the same call.

    That method is called for each record if anybody has replaced it, or changed how records are made.
    """
    code = caller.f_code
    key = id(code), caller.f_lasti, level, logger.name
    known = _templates.get(key)
    if known is None or not _makes_standard_records(logger):
        place = code.co_filename, caller.f_lineno  # to find the line takes as long as all the rest
        made = logger.makeRecord(logger.name, level, *place, message, args, None, code.co_name, extra)
        if len(_templates) < _MAX_TEMPLATES and _makes_standard_records(logger):
            own = {name: value for name, value in vars(made).items() if name not in extra}
            _templates[key] = code, {**own, "msg": None, "args": ()}
        return made
    _, template = known
    if len(args) == 1 and isinstance(args[0], Mapping) and args[0]:
        args = args[0]
    now = time.time_ns()
    created = now / 1e9
    record = object.__new__(_RECORD)
    record.__dict__ = fields = template.copy()
    fields["msg"] = message
    fields["args"] = args
    fields["levelname"] = logging.getLevelName(level)
    fields["created"] = created
    fields["msecs"] = now % 1_000_000_000 // 1_000_000 + 0.0
    fields["relativeCreated"] += (created - template["created"]) * 1000
    fields["thread"] = threading.get_ident()
    fields["threadName"] = threading.current_thread().name
    fields["processName"] = _name_process()
    fields["process"] = os.getpid()
    fields.update(extra)
    return record


def _makes_standard_records(logger: logging.Logger) -> bool:
    """Check whether only what :func:`make_record` looks up differs between two records of a call."""
    return (
        _is_original
        and logging.getLogRecordFactory() is _RECORD
        and _RECORD.__init__ is _INITIALIZE
        and getattr(logger.makeRecord, "__func__", None) is _MAKE
        and logging.logThreads
        and logging.logProcesses
        and logging.logMultiprocessing
        and asyncio._get_running_loop() is None  # whose tasks have names
    )


def _name_process() -> str:
    find = getattr(sys.modules.get("multiprocessing"), "current_process", None)
    return "MainProcess" if find is None else str(find().name)


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
