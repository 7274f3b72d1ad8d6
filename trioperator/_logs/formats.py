"""Formats of log records, and the logging set-up of the command line."""

from __future__ import annotations

import datetime
import enum
import functools
import logging
import os
import re
import sys
import textwrap
import time
from collections.abc import Mapping
from typing import Any, Final, TextIO

import msgspec

from trioperator._logs.context import add_current_object
from trioperator._logs.records import RECORD_KEYS, get_message, represent
from trioperator.errors import ConfigError


class LogFormat(enum.Enum):
    """Log formats of the command line. The values are format strings of the standard library, except for JSON."""

    PLAIN = "%(message)s"
    FULL = "[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s"
    JSON = "-json-"


def _get_prefix(record: logging.LogRecord) -> str:
    ref = getattr(record, "k8s_ref", None)
    if type(ref) is not dict and not isinstance(ref, Mapping):
        return ""
    namespace, name = ref.get("namespace"), ref.get("name") or ""
    return f"[{namespace}/{name}] " if namespace else f"[{name}] "


def _get_fields(record: logging.LogRecord) -> Mapping[str, Any]:
    """Return the key-value pairs of a record: of our loggers, or any extra attributes of others."""
    fields: Mapping[str, Any] | None = getattr(record, "event_fields", None)
    if fields is not None:
        return fields
    attributes = vars(record)
    return {key: attributes[key] for key in attributes if key not in RECORD_KEYS and not key.startswith("_")}


# Control characters, C1 and line separators among them: they could forge lines, or command a terminal.
# Characters of bidirectional text could show a line in another order.
_BIDIRECTIONAL: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_CONTROLS: Final = f"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029{_BIDIRECTIONAL}]"
_CONTROLS_IN_LINES: Final = f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{_BIDIRECTIONAL}]"


def escape_controls(text: str, controls: str = _CONTROLS) -> str:
    """Return the text with control characters as in Python's string literals, such as ``\\n`` and ``\\x1b``."""
    if text.isprintable():
        return text
    return re.sub(controls, lambda match: match.group().encode("unicode_escape").decode(), text)


def _indent(text: str) -> str:
    """Return a traceback that no message in it can break out of: each line is indented, and nothing else breaks it."""
    return textwrap.indent(escape_controls(text, _CONTROLS_IN_LINES), "  ", predicate=lambda line: True)


# The width of the logger's name in LogFormat.FULL.
_COLUMN: Final = 20


@functools.lru_cache(maxsize=256)
def _fit_name(name: str) -> str:
    """Return the last parts of a logger's name that fit into its column: the first ones say less."""
    while len(name) > _COLUMN and "." in name:
        name = name.partition(".")[2]
    return f"{name:<{_COLUMN}.{_COLUMN}}"


@functools.lru_cache(maxsize=256)
def _fit_level(name: str) -> str:
    return f"{name:<8.8}"


_RED, _YELLOW, _NO_COLOR = "\x1b[31m", "\x1b[33m", "\x1b[0m"


def _has_colors(stream: TextIO) -> bool:
    """Check whether to write in colours: to terminals, unless NO_COLOR is set, and with FORCE_COLOR to all streams."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    if os.name == "nt" or os.environ.get("TERM") == "dumb":  # not all consoles of Windows know escape sequences
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # there is no stream, or it is closed
        return False


class _TextFormatter(logging.Formatter):
    """Formatter for format strings of the standard library, with an optional prefix that names the object.

    A record is one line, as control characters are escaped. Tracebacks and stacks are indented below it. With
    *colors*, errors are red and warnings yellow.
    """

    def __init__(self, fmt: str, *, prefix: bool, colors: bool) -> None:
        super().__init__(fmt)
        self._prefix = prefix
        self._colors = colors
        self._uses_time = self.usesTime()
        self._second = -1
        self._clock = ""

    def format(self, record: logging.LogRecord) -> str:
        message = get_message(record)
        record.message = escape_controls(_get_prefix(record) + message if self._prefix else message)
        if self._uses_time:
            record.asctime = self.formatTime(record)
        text = self.formatMessage(record)
        if self._colors:
            text = _color(text, record.levelno)
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            text = f"{text}\n{_indent(record.exc_text)}"
        if record.stack_info:
            text = f"{text}\n{_indent(self.formatStack(record.stack_info))}"
        return text

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 -- as the standard library's
        second = int(record.created)
        if second != self._second:
            self._clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
            self._second = second
        return "%s,%03d" % (self._clock, record.msecs)  # noqa: UP031 -- a fifth faster


class _FullFormatter(_TextFormatter):
    """Formatter of LogFormat.FULL, three times as fast as by its format string. Long names of loggers are shortened."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- as the standard library's
        return f"[{record.asctime}] {_fit_name(record.name)} [{_fit_level(str(record.levelname))}] {record.message}"


def _color(text: str, level: int) -> str:
    if level < logging.WARNING:
        return text
    return f"{_YELLOW if level < logging.ERROR else _RED}{text}{_NO_COLOR}"


class _JsonFormatter(logging.Formatter):
    """Print records as JSON, each in a line of ASCII."""

    def __init__(self, *, prefix: bool, refkey: str) -> None:
        super().__init__()
        self._prefix = prefix
        self._refkey = refkey
        self._taken = frozenset({"message", "severity", "timestamp", "logger", "exc_info", "stack_info", refkey})

    def format(self, record: logging.LogRecord) -> str:
        message: str | None = getattr(record, "event_message", None)
        message = get_message(record) if message is None else message
        created = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        entry: dict[str, Any] = {"message": _get_prefix(record) + message if self._prefix else message}
        if hasattr(record, "k8s_ref"):
            entry[self._refkey] = record.k8s_ref
        entry["severity"] = _get_severity(record.levelno)
        entry["timestamp"] = created.isoformat(timespec="microseconds")
        entry["logger"] = record.name
        handler = getattr(record, "k8s_handler", None)
        if handler is not None:
            entry.setdefault("handler", handler)  # not in place of the object, nor of a field of the user's
        for key, value in _get_fields(record).items():
            entry[f"{key}_" if key in self._taken else key] = value
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            entry["exc_info"] = record.exc_text
        if record.stack_info:
            entry["stack_info"] = self.formatStack(record.stack_info)
        return _encode(entry)


def _get_severity(level: int) -> str:
    if level <= logging.DEBUG:
        return "debug"
    if level <= logging.INFO:
        return "info"
    if level <= logging.WARNING:
        return "warn"
    return "error" if level <= logging.ERROR else "fatal"


def _encode(entry: Mapping[str, Any]) -> str:
    try:
        text = msgspec.json.encode(entry, enc_hook=_simplify).decode()
    except Exception:  # noqa: BLE001 -- lone surrogates, huge numbers, cycles: anything may be logged
        text = msgspec.json.encode({_to_utf8(key): _to_plain(value) for key, value in entry.items()}).decode()
    return text if text.isascii() else "".join(char if char < "\x80" else _escape(char) for char in text)


def _simplify(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else represent(value)


def _to_plain(value: object) -> object:
    """Return the value encoded as JSON, or as a string if it cannot be encoded."""
    try:
        return msgspec.Raw(msgspec.json.encode(value, enc_hook=_simplify))
    except Exception:  # noqa: BLE001 -- see _encode()
        return _to_utf8(value if isinstance(value, str) else represent(value))


def _to_utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _escape(char: str) -> str:
    """Return the JSON escape of a character, as the stream may have any encoding."""
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


class _Handler(logging.Handler):
    """Handler that writes records to a stream. Failures to write are ignored."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def handle(self, record: logging.LogRecord) -> bool | logging.LogRecord:  # type: ignore[override]  # which depends on the Python
        if self.filters or self.lock is None:
            return super().handle(record)
        with self.lock:  # as by its methods, of which each is a call
            self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        if "k8s_ref" not in record.__dict__ or "k8s_handler" not in record.__dict__:
            add_current_object(record)
        try:
            text = self.format(record) + "\n"
        except Exception:  # noqa: BLE001 -- as in the standard library: errors in logging do not propagate
            self.handleError(record)
            return
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                self._stream.write(text.encode("ascii", "backslashreplace").decode())
            self._stream.flush()
        except (OSError, ValueError):  # a closed pipe or file: nowhere to report it
            pass


# Libraries whose messages are useful only for debugging.
_LOW_LEVEL: Final = ("asyncio", "concurrent", "trio")
# Libraries that log requests, headers, bodies or credentials: from WARNING on, always.
_TALKATIVE: Final = (
    "aiohttp",
    "azure",
    "boto3",
    "botocore",
    "google",
    "grpc",
    "h11",
    "h2",
    "hpack",
    "httpcore",
    "httpx",
    "hypercorn",
    "kr8s",
    "kubernetes",
    "kubernetes_asyncio",
    "lightkube",
    "openai",
    "pykube",
    "pymongo",
    "requests",
    "requests_oauthlib",
    "s3transfer",
    "urllib3",
    "websockets",
    "wsproto",
)


def configure(
    debug: bool | None = None,
    verbose: bool | None = None,
    quiet: bool | None = None,
    log_format: LogFormat | str = LogFormat.FULL,
    log_prefix: bool | None = False,
    log_refkey: str | None = None,
) -> None:
    """Log the whole process to stderr, as the command line does. A second call replaces the first.

    - *debug*: log at the DEBUG level, also Trio and asyncio, which otherwise log from WARNING on
    - *verbose*: log at the DEBUG level; the default is INFO
    - *quiet*: log from WARNING on
    - *log_format*: a LogFormat, or a format string of the standard library; default: ``LogFormat.FULL``
    - *log_prefix*: begin messages with the object's name; None means True, except for JSON; default: False
    - *log_refkey*: the key of the object's reference in JSON; default: ``"object"``

    Raises ConfigError for an invalid format.

    ::

        trioperator.configure(verbose=True, log_format=trioperator.LogFormat.JSON)

    On a terminal, errors are red and warnings yellow, except in JSON; the environment variables NO_COLOR and
    FORCE_COLOR are respected. Libraries that log requests and bodies, such as httpx, log from WARNING on in any case.
    See docs/command.md.
    """
    handler = _Handler(sys.stderr)
    handler.setFormatter(
        _make_formatter(log_format, prefix=log_prefix, refkey=log_refkey, colors=_has_colors(sys.stderr))
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old, _Handler):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug or verbose else logging.WARNING if quiet else logging.INFO)
    for name in _LOW_LEVEL:
        logging.getLogger(name).setLevel(logging.NOTSET if debug else logging.WARNING)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)


def _make_formatter(
    log_format: LogFormat | str, *, prefix: bool | None, refkey: str | None, colors: bool
) -> logging.Formatter:
    if log_format is LogFormat.JSON:
        return _JsonFormatter(prefix=bool(prefix), refkey=refkey or "object")
    fmt = log_format.value if isinstance(log_format, LogFormat) else log_format
    try:
        make = _FullFormatter if log_format is LogFormat.FULL else _TextFormatter
        return make(fmt, prefix=prefix is None or prefix, colors=colors)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"The log format {log_format!r} is invalid: {error}.") from None
