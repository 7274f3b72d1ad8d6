"""Tests for :mod:`trioperator.kopf.loggers`: Kopf's names of loggers have an effect."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Iterator

import pytest

import trioperator
from trioperator._logs import get_logger, object_logger
from trioperator.kopf.loggers import follow_loggers

OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default", "uid": "1"}}


@pytest.fixture(autouse=True)
def followed() -> Iterator[None]:
    undo = follow_loggers()
    try:
        yield
    finally:
        undo()
        for name in ("kopf", "kopf.objects", "kopf.activities", "kopf.activities.startup"):
            logging.getLogger(name).setLevel(logging.NOTSET)


def log_everything() -> None:
    object_logger(OBJECT).info("of an object")
    get_logger("trioperator.activities.startup").info("of an activity")
    get_logger("trioperator.supervisor").info("of the framework")


@pytest.mark.parametrize(
    ("name", "silenced"),
    [
        ("kopf.objects", {"of an object"}),
        ("kopf.activities", {"of an activity"}),
        ("kopf.activities.startup", {"of an activity"}),
        ("kopf", {"of an object", "of an activity", "of the framework"}),
    ],
)
def test_the_levels_of_kopfs_loggers_have_an_effect(
    name: str, silenced: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log_everything()
    everything = set(caplog.messages)
    assert len(everything) == 3
    caplog.clear()
    logging.getLogger(name).setLevel(logging.WARNING)
    log_everything()
    assert everything - set(caplog.messages) == silenced


def test_the_filters_and_handlers_of_kopfs_loggers_have_an_effect(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    objects, seen = logging.getLogger("kopf.objects"), list[str]()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    def is_wanted(record: logging.LogRecord) -> bool:
        return "succeeded" not in record.getMessage()

    handler = Handler()
    objects.addFilter(is_wanted)
    objects.addHandler(handler)
    try:
        object_logger(OBJECT).info("Handler 'fn' succeeded.")
        object_logger(OBJECT).info("kept")
    finally:
        objects.removeFilter(is_wanted)
        objects.removeHandler(handler)
    assert caplog.messages == seen == ["kept"]


def test_filters_of_kopfs_loggers_find_the_messages_of_the_framework_by_their_path(
    caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path
) -> None:
    """An example of Kopf's documentation ("Log levels & filters")."""

    class ExcludeKopfInternals(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            return "/kopf/" not in record.pathname

    caplog.set_level(logging.INFO)
    internals = pathlib.Path(trioperator.__file__).parent / "_runtime" / "completion.py"
    of_the_framework, of_a_user = (
        logging.LogRecord("trioperator.objects", logging.INFO, str(path), 1, "from %s", (path.name,), None)
        for path in (internals, tmp_path / "app.py")
    )
    objects, exclude = logging.getLogger("kopf.objects"), ExcludeKopfInternals()
    objects.addFilter(exclude)
    try:
        for record in (of_the_framework, of_a_user):
            logging.getLogger("trioperator.objects").handle(record)
    finally:
        objects.removeFilter(exclude)
    assert caplog.messages == ["from app.py"]
    assert of_the_framework.pathname == str(internals)


def test_loggers_are_as_before_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    ours = [logging.getLogger(name) for name in ("trioperator", "trioperator.objects")]
    before = [(logger.parent, list(logger.filters)) for logger in ours]
    follow_loggers()()
    assert [(logger.parent, list(logger.filters)) for logger in ours] == before, "another one is in force already"
