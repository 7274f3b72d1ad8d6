"""Loggers: structlog's on top of the standard library's."""

from __future__ import annotations

import logging
import types
from collections.abc import Mapping
from typing import Any, Final, TypedDict

from trioperator.logs._structlog import BoundLoggerBase, DropEvent, merge_contextvars
from trioperator.logs.records import RECORD_KEYS, interpolate, represent

__all__ = ["Logger", "ObjectRef", "get_logger", "object_logger", "trim_traceback"]


class ObjectRef(TypedDict):
    """Refer to an object in logs."""

    apiVersion: str
    kind: str
    name: str | None
    uid: str | None
    namespace: str | None


class Logger(BoundLoggerBase):
    """Log messages with ``%``-style arguments, with key-values, or with both.

    It is used as a logger of the standard library is, and like all structlog's it is immutable: ``bind()`` gives
    another one. What a disabled level costs is next to nothing.
    """

    _logger: logging.Logger

    def debug(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log what is of interest when looking for a mistake."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._emit(logging.DEBUG, event, args, fields)

    def info(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log what is going on."""
        if self._logger.isEnabledFor(logging.INFO):
            self._emit(logging.INFO, event, args, fields)

    def warning(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log what may turn out to be wrong."""
        if self._logger.isEnabledFor(logging.WARNING):
            self._emit(logging.WARNING, event, args, fields)

    def error(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log what went wrong."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._emit(logging.ERROR, event, args, fields)

    def exception(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log what went wrong, with the traceback of the exception that is being handled."""
        if self._logger.isEnabledFor(logging.ERROR):
            fields.setdefault("exc_info", True)
            self._emit(logging.ERROR, event, args, fields)

    def critical(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log what ends the operator."""
        if self._logger.isEnabledFor(logging.CRITICAL):
            self._emit(logging.CRITICAL, event, args, fields)

    def log(self, level: int, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log at any level."""
        if self._logger.isEnabledFor(level):
            self._emit(level, event, args, fields)

    warn = warning
    fatal = critical
    msg = info

    @property
    def name(self) -> str:
        """The name of the standard library's logger."""
        return self._logger.name

    @property
    def level(self) -> int:
        """The level of the standard library's logger itself."""
        return self._logger.level

    def setLevel(self, level: int | str) -> None:  # noqa: N802 -- as the standard library's
        """Set the level of the standard library's logger, and so of all that share it."""
        self._logger.setLevel(level)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        """Tell whether messages of the level go anywhere."""
        return self._logger.isEnabledFor(level)

    def getEffectiveLevel(self) -> int:  # noqa: N802
        """Tell from which level on messages go anywhere."""
        return self._logger.getEffectiveLevel()

    def hasHandlers(self) -> bool:  # noqa: N802
        """Tell whether anybody takes the messages."""
        return self._logger.hasHandlers()

    def new(self, **new_values: Any) -> Logger:
        """Give a logger with these key-values only; the object stays bound."""
        kept = {key: value for key, value in self._context.items() if key == "k8s_ref"}
        return Logger(self._logger, self._processors, {**kept, **new_values})

    def __repr__(self) -> str:
        return f"<Logger {self.name} {self._context!r}>"

    # structlog compares loggers by their key-values, and so has no hash; the standard library has both, by identity.
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def _emit(self, level: int, event: object, args: tuple[object, ...], fields: dict[str, Any]) -> None:
        if not _STRUCTLOG_KEYS.isdisjoint(fields):
            fields = {f"{key}_" if key in _STRUCTLOG_KEYS else key: value for key, value in fields.items()}
        if args:
            fields["positional_args"] = args
        fields["event"] = event
        try:
            (message, *rest), options = self._process_event(logging.getLevelName(level).lower(), None, fields)
        except DropEvent:
            return
        self._logger.log(level, message, *rest, **options)


# The stack from the caller on: one of the methods, _emit(), and then the standard library, which skips itself.
_OWN_FRAMES: Final = 2
# What structlog's processors know by name, so that a key-value cannot be called so.
_STRUCTLOG_KEYS: Final = frozenset({"event", "positional_args"})


def _to_logging_call(logger: Any, method: str, entry: Any) -> Any:
    """Turn an event dict into what the standard library's logger takes: structlog's last processor."""
    message: Any = entry.pop("event")
    message = "" if message is None else message
    args: tuple[object, ...] = entry.pop("positional_args", ())
    options: dict[str, Any] = {key: entry.pop(key) for key in ("exc_info", "stack_info") if key in entry}
    options["stacklevel"] = entry.pop("stacklevel", 1) + _OWN_FRAMES
    attributes: dict[str, Any] = {}
    if "extra" in entry:
        entry = {**(entry.pop("extra") or {}), **entry}
        attributes = {key: value for key, value in entry.items() if key not in RECORD_KEYS}
    if "k8s_ref" in entry:
        attributes["k8s_ref"] = entry.pop("k8s_ref")
    if entry:
        attributes["event_message"] = message = interpolate(message, args)
        attributes["event_fields"] = entry
        pairs = " ".join(f"{key}={value if _is_word(value) else represent(value)}" for key, value in entry.items())
        message, args = f"{message} {pairs}" if message else pairs, ()
    options["extra"] = attributes
    return (message, *args), options


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value) and not any(char.isspace() or char in "\"'=" for char in value)


_PROCESSORS: Final = (merge_contextvars, _to_logging_call)
_ROOT: Final = "trioperator"
_object_log: Final = logging.getLogger(f"{_ROOT}.objects")


def get_logger(name: str) -> Logger:
    """Make a logger of the given name, which is put under ``trioperator.`` if it is not there already."""
    if name != _ROOT and not name.startswith(f"{_ROOT}."):
        name = f"{_ROOT}.{name}"
    return Logger(logging.getLogger(name), _PROCESSORS, {})


def object_logger(ref: ObjectRef | Mapping[str, Any]) -> Logger:
    """Make a logger whose messages are about the object that *ref* refers to."""
    return Logger(_object_log, _PROCESSORS, {"k8s_ref": ref})


def trim_traceback(error: BaseException, user_code: types.CodeType | str) -> bool:
    """Let the traceback of *error* begin in the user's code: in that function, or in that file.

    Returns False, and changes nothing, where the traceback does not come by there.
    """
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if user_code in (code, code.co_filename):
            error.__traceback__ = traceback
            return True
        traceback = traceback.tb_next
    return False
