"""Logging that is restored after each test, and what it has written."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from trioperator._logs import ObjectRef

REF: ObjectRef = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "name": "w",
    "uid": "0000",
    "namespace": "ns",
}


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Restore the logging of the process."""
    loggers: list[logging.Logger] = [
        logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)
    ]
    levels = {logger: logger.level for logger in (logging.root, *loggers)}
    handlers = logging.root.handlers[:]
    yield
    logging.root.handlers[:] = handlers
    for logger, level in levels.items():
        logger.setLevel(level)
    for other in logging.root.manager.loggerDict.values():
        if isinstance(other, logging.Logger) and other not in levels:
            other.setLevel(logging.NOTSET)


class Stream:
    """Everything that was written to stderr."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._text = ""

    def getvalue(self) -> str:
        self._text += self._capsys.readouterr().err
        return self._text


@pytest.fixture
def stream(capsys: pytest.CaptureFixture[str]) -> Stream:
    return Stream(capsys)


def read_json(stream: Stream) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]
