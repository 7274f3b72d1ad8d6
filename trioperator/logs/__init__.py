"""Logs: loggers that are bound to objects, and the formats in which they are printed.

Loggers are structlog's, put together here by hand: nobody's structlog configuration is used or changed. They end in
the standard library's logging, under names that begin with ``trioperator.``, so that any set-up of that works with
them; :func:`configure` is only the one of the command line. Formats and names of options are Kopf's ("Logging").

What a record carries besides the usual: ``k8s_ref``, the reference of the object; ``event_message`` and
``event_fields``, the message and its key-values apart, where there are any.
"""

from __future__ import annotations

from trioperator.logs.formats import LogFormat, configure
from trioperator.logs.loggers import Logger, ObjectRef, get_logger, object_logger, trim_traceback

__all__ = [
    "LogFormat",
    "Logger",
    "ObjectRef",
    "configure",
    "get_logger",
    "object_logger",
    "trim_traceback",
]
