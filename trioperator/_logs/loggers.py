"""Loggers of structlog on top of the standard library's logging."""

from __future__ import annotations

import contextlib
import logging
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypedDict

from trioperator._logs._structlog import BoundLoggerBase, DropEvent, bound_variables, merge_contextvars
from trioperator._logs.context import current_handler
from trioperator._logs.processors import users_processors
from trioperator._logs.records import RECORD_KEYS, interpolate, make_record, represent


class ObjectRef(TypedDict):
    """Reference to an object in logs."""

    apiVersion: str
    kind: str | None
    name: str | None
    uid: str | None
    namespace: str | None


class Logger(BoundLoggerBase):
    """Logger for messages with ``%``-style arguments, key-value pairs, or both.

    It is used like a logger of the standard library. Like all structlog loggers it is immutable: ``bind()`` returns a
    new one. Disabled levels cost next to nothing.
    """

    _logger: logging.Logger

    def debug(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log a message at the DEBUG level."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._emit(logging.DEBUG, event, args, fields)

    def info(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log a message at the INFO level."""
        if self._logger.isEnabledFor(logging.INFO):
            self._emit(logging.INFO, event, args, fields)

    def warning(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log a message at the WARNING level."""
        if self._logger.isEnabledFor(logging.WARNING):
            self._emit(logging.WARNING, event, args, fields)

    def error(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log a message at the ERROR level."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._emit(logging.ERROR, event, args, fields)

    def exception(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log a message at the ERROR level, with the traceback of the current exception."""
        if self._logger.isEnabledFor(logging.ERROR):
            fields.setdefault("exc_info", True)
            self._emit(logging.ERROR, event, args, fields)

    def critical(self, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log a message at the CRITICAL level."""
        if self._logger.isEnabledFor(logging.CRITICAL):
            self._emit(logging.CRITICAL, event, args, fields)

    def log(self, level: int, event: object = None, /, *args: object, **fields: Any) -> None:
        """Log a message at the given level."""
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

    @property
    def object_ref(self) -> ObjectRef | None:
        """The reference of the object that the logger is bound to, if it is."""
        return self._context.get("k8s_ref")

    def setLevel(self, level: int | str) -> None:  # noqa: N802 -- as the standard library's
        """Set the level of the standard library's logger, for all loggers of the same name."""
        self._logger.setLevel(level)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 -- as the standard library's
        """Return whether messages of the level are logged."""
        return self._logger.isEnabledFor(level)

    def getEffectiveLevel(self) -> int:  # noqa: N802 -- as the standard library's
        """Return the lowest level that is logged."""
        return self._logger.getEffectiveLevel()

    def hasHandlers(self) -> bool:  # noqa: N802 -- as the standard library's
        """Return whether any handlers are configured."""
        return self._logger.hasHandlers()

    def new(self, **new_values: Any) -> Logger:
        """Return a logger with only these key-value pairs, and the object if one is bound."""
        kept = {key: value for key, value in self._context.items() if key in _OBJECT_KEYS}
        return type(self)(self._logger, self._processors, {**kept, **new_values})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self._context!r}>"

    # By identity, as in the standard library; structlog compares key-value pairs, and has no hash.
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def _emit(self, level: int, event: object, args: tuple[object, ...], fields: dict[str, Any]) -> None:
        handler = current_handler.get()
        if not fields and event is not None and self._is_plain():
            # Logger.log() would look the level up again and search the stack: a fifth of the time of a record.
            logger, extra = self._logger, self._context
            if handler is not None:
                extra = {**extra, "k8s_handler": handler}
            logger.handle(make_record(logger, level, sys._getframe(_OWN_FRAMES), event, args, extra))
            return
        if not _STRUCTLOG_KEYS.isdisjoint(fields):
            fields = {f"{key}_" if key in _STRUCTLOG_KEYS else key: value for key, value in fields.items()}
        if args:
            fields["positional_args"] = args
        if handler is not None:
            fields["k8s_handler"] = handler
        fields["event"] = event
        try:
            (message, *rest), options = self._process_event(logging.getLevelName(level).lower(), None, fields)
        except DropEvent:
            return
        self._logger.log(level, message, *rest, **options)

    def _is_plain(self) -> bool:
        """Check whether processing would add nothing to a message: no pairs are bound, and no processors are set.

        Then structlog is passed by, which takes nearly half of the time of a log record.
        """
        return (
            self._processors is _PROCESSORS
            and not users_processors.chosen
            and self._context.keys() <= _OBJECT_KEY_SET
            and not (bound_variables and merge_contextvars(None, "", {}))
        )


# Frames between the caller and the standard library, which skips its own: one of the methods, and _emit().
_OWN_FRAMES: Final = 2
# Names that structlog's processors reserve: not available as keys.
_STRUCTLOG_KEYS: Final = frozenset({"event", "positional_args"})
# Keys that become attributes of records: the object that a logger is bound to, and the handler that runs. Those with
# k8s_skip are not posted as events.
_OBJECT_KEYS: Final = ("k8s_ref", "k8s_skip", "k8s_handler")
_OBJECT_KEY_SET: Final = frozenset(_OBJECT_KEYS)


def _to_logging_call(logger: Any, method: str, entry: Any) -> Any:
    """Convert an event dict to arguments of the standard library's logger: structlog's last processor."""
    message: Any = entry.pop("event", None)  # processors may have removed it
    message = "" if message is None else message
    args: tuple[object, ...] = entry.pop("positional_args", ())
    options: dict[str, Any] = {key: entry.pop(key) for key in ("exc_info", "stack_info") if key in entry}
    options["stacklevel"] = entry.pop("stacklevel", 1) + _OWN_FRAMES
    attributes: dict[str, Any] = {}
    if "extra" in entry:
        entry = {**(entry.pop("extra") or {}), **entry}
        attributes = {key: value for key, value in entry.items() if key not in RECORD_KEYS}
    for key in _OBJECT_KEYS:
        if key in entry:
            attributes[key] = entry.pop(key)
    if entry:
        attributes["event_message"] = message = interpolate(message, args)
        attributes["event_fields"] = entry
        pairs = " ".join(f"{key}={value if _is_word(value) else represent(value)}" for key, value in entry.items())
        message, args = f"{message} {pairs}" if message else pairs, ()
    options["extra"] = attributes
    return (message, *args), options


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value) and not any(char.isspace() or char in "\"'=" for char in value)


_PROCESSORS: Final = (merge_contextvars, users_processors.process, _to_logging_call)
_ROOT: Final = "trioperator"
_object_log: Final = logging.getLogger(f"{_ROOT}.objects")


def get_logger(name: str) -> Logger:
    """Return a logger with the given name, below ``trioperator.`` if it is not already."""
    if name != _ROOT and not name.startswith(f"{_ROOT}."):
        name = f"{_ROOT}.{name}"
    return Logger(logging.getLogger(name), _PROCESSORS, {})


class ObjectLogger(Logger):
    """Logger that is bound to an object, as handlers get it.

    Its messages are posted as Kubernetes Events of the object, depending on ``settings.posting``: see docs/events.md.
    *body* is the object; *settings* are ignored, as the running operator's apply.
    """

    def __init__(
        self,
        logger: logging.Logger = _object_log,
        processors: Any = _PROCESSORS,
        context: Any = None,
        /,
        *,
        body: Mapping[str, Any] | None = None,
        settings: object = None,
    ) -> None:
        if context is None:
            context = _make_context(body or {})
            if isinstance(self, LocalObjectLogger):
                context["k8s_skip"] = True
        # As structlog does: there are several loggers for each object that is handled.
        self._logger, self._processors, self._context = logger, processors, context


class LocalObjectLogger(ObjectLogger):
    """Logger that is bound to an object, and whose messages are not posted: for handlers that are called often."""


def _make_context(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata") or {}
    return {
        "k8s_ref": {
            "apiVersion": body.get("apiVersion"),
            "kind": body.get("kind"),
            "name": metadata.get("name"),
            "uid": metadata.get("uid"),
            "namespace": metadata.get("namespace"),
        }
    }


def object_logger(ref: ObjectRef | Mapping[str, Any], *, local: bool = False) -> ObjectLogger:
    """Return a logger that is bound to the object with the reference *ref*; *local* if nothing shall be posted."""
    if local:
        return LocalObjectLogger(_object_log, _PROCESSORS, {"k8s_ref": ref, "k8s_skip": True})
    return ObjectLogger(_object_log, _PROCESSORS, {"k8s_ref": ref})


@contextlib.contextmanager
def observing_objects(observe: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Call *observe* with each record of object loggers, in any thread, while the block runs."""

    def look(record: logging.LogRecord) -> bool:
        try:
            observe(record)
        except Exception:  # noqa: BLE001 -- what is logged is logged in any case
            get_logger("trioperator.logs.loggers").debug("A record could not be observed.", exc_info=True)
        return True

    _object_log.addFilter(look)  # not a handler: without any, the standard library prints warnings and errors
    try:
        yield
    finally:
        _object_log.removeFilter(look)


def describe_ref(ref: ObjectRef) -> str:
    """Return the kind, namespace and name of an object, such as ``KopfExample default/kopf-example-1``."""
    where = f"{ref['namespace']}/" if ref["namespace"] else ""
    return f"{ref['kind'] or 'object'} {where}{ref['name']}"


def trim_traceback(error: BaseException, user_code: types.CodeType | str) -> bool:
    """Cut the traceback of *error* so that it begins in *user_code*: a function's code, or a file name.

    Return False, and change nothing, if the traceback does not contain it.
    """
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if user_code in (code, code.co_filename):
            error.__traceback__ = traceback
            return True
        traceback = traceback.tb_next
    return False
