"""Kopf's loggers as parents of ours: operators set the levels, filters and handlers of ``kopf.objects`` by name."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Final

import trioperator
from trioperator._handling.handlers.handler import Activity

# Names of corresponding loggers, below "kopf" and below "trioperator".
_SHARED: Final = ("", ".objects", ".activities", *(f".activities.{activity}" for activity in Activity))

# Where our files are, and where they seem to be: beside those of Kopf.
_PACKAGE: Final = f"{pathlib.Path(trioperator.__file__).parent}{os.sep}"
_AS_KOPF: Final = f"{pathlib.Path(_PACKAGE).with_name('kopf')}{os.sep}"


def follow_loggers() -> Callable[[], None]:
    """Let our loggers inherit levels, handlers and filters from Kopf's. Return a function that undoes it."""
    undo = [_follow(logging.getLogger(f"trioperator{name}"), logging.getLogger(f"kopf{name}")) for name in _SHARED]

    def undo_all() -> None:
        for each in undo:
            each()

    return undo_all


def _follow(logger: logging.Logger, leader: logging.Logger) -> Callable[[], None]:
    before = logger.parent
    if before is leader:
        return lambda: None

    def pass_filters(record: logging.LogRecord) -> bool:
        if not leader.filters:
            return not leader.disabled
        with _as_of_kopf(record):
            return not leader.disabled and bool(leader.filter(record))

    def undo() -> None:
        _set_parent(logger, before)
        logger.removeFilter(pass_filters)

    _set_parent(logger, leader)
    logger.addFilter(pass_filters)
    return undo


@contextlib.contextmanager
def _as_of_kopf(record: logging.LogRecord) -> Iterator[None]:
    """Show messages of the framework as coming from Kopf's files: filters look for ``/kopf/`` in their paths."""
    before = record.pathname
    if not before.startswith(_PACKAGE):
        yield
        return
    record.pathname = f"{_AS_KOPF}{before.removeprefix(_PACKAGE)}"
    try:
        yield
    finally:
        record.pathname = before


def _set_parent(logger: logging.Logger, parent: logging.Logger | None) -> None:
    logger.parent = parent
    logger.setLevel(logger.level)  # forgets what is enabled, which is cached
