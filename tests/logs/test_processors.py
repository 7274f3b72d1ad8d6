"""Tests for :mod:`trioperator._logs.processors`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog

import trioperator
from tests.logs.conftest import REF, Stream, read_json
from trioperator._logs import LogFormat, configure, get_logger, object_logger, observing_objects
from trioperator.errors import ConfigError

Entry = MutableMapping[str, Any]


@pytest.fixture(autouse=True)
def without_processors() -> Iterator[None]:
    """Leave no processors behind."""
    yield
    trioperator.set_log_processors([])


def mask(logger: logging.Logger, level: str, event: Entry) -> Entry:
    if "password" in event:
        event["password"] = "***"
    return event


def test_processors_change_what_all_formats_show(stream: Stream) -> None:
    logger = object_logger(REF).bind(user="me")  # made before
    trioperator.set_log_processors([mask, structlog.processors.add_log_level])
    configure(log_format=LogFormat.JSON)
    logger.info("logged in", password="secret")
    get_logger("x").warning("no fields")
    first, second = read_json(stream)
    assert (first["message"], first["user"], first["password"], first["level"]) == ("logged in", "me", "***", "info")
    assert first["object"] == REF
    assert (second["message"], second["level"]) == ("no fields", "warning")
    configure(log_format=LogFormat.PLAIN)
    logger.info("again", password="secret")
    assert stream.getvalue().splitlines()[-1] == "again user=me password=*** level=info"


def test_processors_are_called_in_order_with_messages_and_arguments() -> None:
    seen: list[Any] = []

    def first(logger: logging.Logger, level: str, event: Entry) -> Entry:
        seen.append((logger.name, level, dict(event)))
        return {**event, "event": "other %s"}

    def second(logger: logging.Logger, level: str, event: Entry) -> Entry:
        seen.append(event["event"])
        return event

    trioperator.set_log_processors([first, second])
    with observing_objects(lambda record: seen.append(record.getMessage())):
        logging.getLogger("trioperator.objects").setLevel(logging.INFO)
        object_logger(REF).info("text %s", 5)
    entry = {"event": "text %s", "positional_args": (5,), "k8s_ref": REF}
    assert seen == [("trioperator.objects", "info", entry), "other %s", "other 5"]


def test_a_dropped_message_is_neither_printed_nor_posted(stream: Stream) -> None:
    def drop(logger: logging.Logger, level: str, event: Entry) -> Entry:
        if event["event"] == "noise":
            raise structlog.DropEvent
        return event

    configure(log_format=LogFormat.PLAIN)
    trioperator.set_log_processors([drop])
    seen: list[str] = []
    with observing_objects(lambda record: seen.append(record.getMessage())):
        object_logger(REF).info("noise")
        object_logger(REF).info("kept")
    assert seen == ["kept"]
    assert stream.getvalue() == "kept\n"


@pytest.mark.parametrize(
    "broken", [lambda *_: 1 / 0, lambda *_: None, lambda *_: "text", len], ids=["raises", "none", "str", "takes"]
)
def test_a_processor_that_fails_loses_no_message_and_is_reported_once(broken: Any, stream: Stream) -> None:
    configure(log_format=LogFormat.PLAIN)
    trioperator.set_log_processors([broken, mask])
    for number in range(3):
        get_logger("x").info("message %d", number, password="secret")
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("The log processor <")
    assert lines[1:] == [f"message {number} password=***" for number in range(3)]


def test_a_processor_may_remove_the_message(stream: Stream) -> None:
    configure(log_format=LogFormat.PLAIN)
    trioperator.set_log_processors([structlog.processors.EventRenamer("msg")])
    get_logger("x").info("text")
    assert stream.getvalue() == "msg=text\n"


def test_processors_are_functions() -> None:
    with pytest.raises(ConfigError, match="'mask' is not callable"):
        trioperator.set_log_processors(["mask"])  # type: ignore[list-item]
