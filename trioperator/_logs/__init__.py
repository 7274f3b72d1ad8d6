"""Logging: loggers bound to objects, and the formats of the command line.

Loggers are structlog's, assembled here: the global structlog configuration is neither used nor changed. They log to the
standard library's logging under names that begin with ``trioperator.``, so any logging set-up works with them;
:func:`configure` is what the command line calls. Formats and names of options are Kopf's ("Logging").

Records have extra attributes: ``k8s_ref`` is the reference of the object, ``k8s_handler`` the id of the handler that
runs; ``event_message`` and ``event_fields`` are the message and its key-value pairs separately, if there are any.
"""

from __future__ import annotations

from trioperator._logs._structlog import bound_contextvars
from trioperator._logs.formats import LogFormat, configure
from trioperator._logs.loggers import (
    LocalObjectLogger,
    Logger,
    ObjectLogger,
    ObjectRef,
    describe_ref,
    get_logger,
    object_logger,
    observing_objects,
    trim_traceback,
)
from trioperator._logs.processors import Processor, set_log_processors
from trioperator._logs.records import get_message

__all__ = [
    "LocalObjectLogger",
    "LogFormat",
    "Logger",
    "ObjectLogger",
    "ObjectRef",
    "Processor",
    "bound_contextvars",
    "configure",
    "describe_ref",
    "get_logger",
    "get_message",
    "object_logger",
    "observing_objects",
    "set_log_processors",
    "trim_traceback",
]
