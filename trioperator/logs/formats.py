"""Formats of log records, and the set-up of the command line that prints them."""

from __future__ import annotations

import datetime
import enum
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any, Final, TextIO

import msgspec

from trioperator.errors import ConfigError
from trioperator.logs.records import RECORD_KEYS, interpolate, represent

__all__ = ["LogFormat", "configure"]


class LogFormat(enum.Enum):
    """Name the formats of the command line. The values are those of the standard library's logging, but for JSON's."""

    PLAIN = "%(message)s"
    FULL = "[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s"
    JSON = "-json-"


def _get_message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 -- a message is not lost because its arguments do not fit
        args = record.args if isinstance(record.args, tuple) else (record.args,)
        return interpolate(record.msg, args)


def _get_prefix(record: logging.LogRecord) -> str:
    ref = getattr(record, "k8s_ref", None)
    if not isinstance(ref, Mapping):
        return ""
    namespace, name = ref.get("namespace"), ref.get("name") or ""
    return f"[{namespace}/{name}] " if namespace else f"[{name}] "


def _get_fields(record: logging.LogRecord) -> Mapping[str, Any]:
    """Give the key-values of a record: those of our loggers, and whatever others have set on it."""
    fields: Mapping[str, Any] | None = getattr(record, "event_fields", None)
    if fields is not None:
        return fields
    attributes = vars(record)
    return {key: attributes[key] for key in attributes if key not in RECORD_KEYS and not key.startswith("_")}


class _TextFormatter(logging.Formatter):
    """Print records by a format of the standard library's, with the object before the message if wanted."""

    def __init__(self, fmt: str, *, prefix: bool) -> None:
        super().__init__(fmt)
        self._prefix = prefix
        self._uses_time = self.usesTime()
        self._second = -1
        self._clock = ""

    def format(self, record: logging.LogRecord) -> str:
        message = _get_message(record)
        record.message = _get_prefix(record) + message if self._prefix else message
        if self._uses_time:
            record.asctime = self.formatTime(record)
        text = self.formatMessage(record)
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            text = f"{text}\n{record.exc_text}"
        if record.stack_info:
            text = f"{text}\n{self.formatStack(record.stack_info)}"
        return text

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        second = int(record.created)
        if second != self._second:
            self._clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
            self._second = second
        return f"{self._clock},{int(record.msecs):03d}"


class _JsonFormatter(logging.Formatter):
    """Print records as JSON, each in a line of ASCII."""

    def __init__(self, *, prefix: bool, refkey: str) -> None:
        super().__init__()
        self._prefix = prefix
        self._refkey = refkey
        self._taken = frozenset({"message", "severity", "timestamp", "exc_info", "stack_info", refkey})

    def format(self, record: logging.LogRecord) -> str:
        message: str | None = getattr(record, "event_message", None)
        message = _get_message(record) if message is None else message
        created = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        entry: dict[str, Any] = {"message": _get_prefix(record) + message if self._prefix else message}
        if hasattr(record, "k8s_ref"):
            entry[self._refkey] = record.k8s_ref
        entry["severity"] = _get_severity(record.levelno)
        entry["timestamp"] = created.isoformat(timespec="microseconds")
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
    except Exception:  # noqa: BLE001 -- lone surrogates, huge numbers, cycles: anything can be logged
        text = msgspec.json.encode({_to_utf8(key): _to_plain(value) for key, value in entry.items()}).decode()
    return text if text.isascii() else "".join(char if char < "\x80" else _escape(char) for char in text)


def _simplify(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else represent(value)


def _to_plain(value: object) -> object:
    """Give the value as text if it is the one that cannot be encoded."""
    try:
        return msgspec.Raw(msgspec.json.encode(value, enc_hook=_simplify))
    except Exception:  # noqa: BLE001
        return _to_utf8(value if isinstance(value, str) else represent(value))


def _to_utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _escape(char: str) -> str:
    """Escape a character in JSON. The stream may be of any encoding, and would escape it as Python does."""
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


class _Handler(logging.Handler):
    """Write records to a stream. Where it cannot be written to, the record is lost, and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record) + "\n"
        except Exception:  # noqa: BLE001 -- as the standard library does: a mistake in logging ends nothing
            self.handleError(record)
            return
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                self._stream.write(text.encode("ascii", "backslashreplace").decode())
            self._stream.flush()
        except (OSError, ValueError):  # a closed pipe, a closed file: there is nobody to be told
            pass


# Of interest only to those who look for a mistake below the operator; some of them print what passwords are in.
_LOW_LEVEL: Final = (
    "aiohttp",
    "asyncio",
    "h2",
    "hpack",
    "httpcore",
    "httpx",
    "hypercorn",
    "kubernetes",
    "pykube",
    "quart",
    "trio",
    "urllib3",
)


def configure(
    debug: bool | None = None,
    verbose: bool | None = None,
    quiet: bool | None = None,
    log_format: LogFormat | str = LogFormat.FULL,
    log_prefix: bool | None = False,
    log_refkey: str | None = None,
) -> None:
    """Print the logs of the whole process to stderr, as the command line does. A second call replaces the first.

    The level is DEBUG if *debug* or *verbose*, WARNING if *quiet*, else INFO; the libraries below the operator are
    heard at all levels only if *debug*, else from WARNING on. *log_format* may also be a format of the standard
    library's logging. With *log_prefix* messages begin with the object that they are about; None is True but for JSON,
    which has it under *log_refkey* (default: "object"). Raises ConfigError for a format that is none.
    """
    handler = _Handler(sys.stderr)
    handler.setFormatter(_make_formatter(log_format, prefix=log_prefix, refkey=log_refkey))
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old, _Handler):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug or verbose else logging.WARNING if quiet else logging.INFO)
    for name in _LOW_LEVEL:
        logging.getLogger(name).setLevel(logging.NOTSET if debug else logging.WARNING)


def _make_formatter(log_format: LogFormat | str, *, prefix: bool | None, refkey: str | None) -> logging.Formatter:
    if log_format is LogFormat.JSON:
        return _JsonFormatter(prefix=bool(prefix), refkey=refkey or "object")
    fmt = log_format.value if isinstance(log_format, LogFormat) else log_format
    try:
        return _TextFormatter(fmt, prefix=prefix is None or prefix)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"The log format {log_format!r} is not one: {error}.") from None
