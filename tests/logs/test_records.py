"""Tests for :mod:`trioperator._logs.records`."""

from __future__ import annotations

import asyncio
import functools
import logging
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from trioperator._logs import object_logger
from trioperator._logs.records import RECORD_KEYS, interpolate, represent


class Silent:
    """An object without a text."""

    def __str__(self) -> str:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("message", "args", "expected"),
    [
        ("plain", (), "plain"),
        ("100%", (), "100%"),
        ("%s is %d", ("one", 1), "one is 1"),
        ("%(a)s", ({"a": 5},), "5"),
        ("%s", ({},), "{}"),  # as in the standard library: only a mapping with keys is one for names
        ("%s", ({"a": 5},), "{'a': 5}"),
        (5, (), "5"),
        ("%d", ("text",), "%d (arguments that do not match: 'text')"),
        ("no place", (1, 2), "no place (arguments that do not match: 1, 2)"),
        ("%s", (Silent(),), "%s (arguments that do not match: <Silent>)"),
        (Silent(), (), "<Silent>"),
    ],
)
def test_messages_are_interpolated_whatever_they_are(message: object, args: tuple[Any, ...], expected: str) -> None:
    assert interpolate(message, args) == expected


def test_a_value_is_represented_even_if_it_raises() -> None:
    assert represent("x") == "'x'"
    assert represent(Silent()) == "<Silent>"


def test_all_attributes_of_records_are_reserved() -> None:
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "%s", ("x",), None)
    record.getMessage()
    logging.Formatter("%(asctime)s %(message)s").format(record)
    assert vars(record).keys() <= RECORD_KEYS
    assert {"k8s_ref", "event_message", "event_fields"} <= RECORD_KEYS
    assert "extra" not in RECORD_KEYS


class Keeper(logging.Handler):
    """A handler that keeps records."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    keeper, logger = Keeper(), logging.getLogger("trioperator.objects")
    logger.addHandler(keeper)
    yield keeper
    logger.removeHandler(keeper)


def log_twice(*args: object, between: Callable[[], object] = lambda: None) -> None:
    """Log the same line twice: the second record is made from the first one."""
    logger = object_logger({"name": "one"})
    for number in range(2):
        if number:
            between()
        logger.warning("%s is logged.", *args)


TIMES = {"created", "msecs", "relativeCreated"}


@pytest.mark.parametrize("args", [(5,), ({"a": 1},), ({},), ()])
def test_the_next_record_of_a_line_is_as_the_first_one(keeper: Keeper, args: tuple[object, ...]) -> None:
    log_twice(*args)
    first, second = keeper.kept
    assert type(second) is logging.LogRecord
    assert {key: value for key, value in vars(first).items() if key not in TIMES} == {
        key: value for key, value in vars(second).items() if key not in TIMES
    }
    assert list(vars(first)) == list(vars(second))


def test_each_record_has_its_own_time(keeper: Keeper) -> None:
    log_twice("It", between=lambda: time.sleep(0.01))
    first, second = keeper.kept
    other = logging.makeLogRecord({})
    assert 0.01 <= second.created - first.created < 10
    assert second.msecs == int(second.created % 1 * 1000 + 1e-4)
    started = [record.created - record.relativeCreated / 1000 for record in (second, other)]
    assert started[0] == pytest.approx(started[1], abs=1e-4)


def test_each_record_names_its_thread(keeper: Keeper) -> None:
    logger = object_logger({"name": "one"})

    def log() -> None:
        logger.warning("It is logged.")

    log()
    thread = threading.Thread(target=log, name="another")
    thread.start()
    thread.join()
    assert [record.threadName for record in keeper.kept] == [threading.current_thread().name, "another"]
    assert keeper.kept[1].thread == thread.ident


def test_the_next_record_of_a_line_has_the_objects_own_attributes(keeper: Keeper) -> None:
    for name in ("one", "two"):
        object_logger({"name": name}, local=name == "one").warning("It is logged.")
    assert [record.__dict__["k8s_ref"] for record in keeper.kept] == [{"name": "one"}, {"name": "two"}]
    assert [hasattr(record, "k8s_skip") for record in keeper.kept] == [True, False]


def test_a_process_and_a_level_that_were_renamed_have_their_names(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: logging.addLevelName(logging.WARNING, "WARNING"))

    def rename() -> None:
        logging.addLevelName(logging.WARNING, "odd")
        monkeypatch.setattr(multiprocessing.current_process(), "name", "worker")

    log_twice("It", between=rename)
    assert (keeper.kept[1].levelname, keeper.kept[1].processName) == ("odd", "worker")


async def test_a_record_of_an_asyncio_task_has_its_name(keeper: Keeper) -> None:
    logger = object_logger({"name": "one"})

    def log() -> None:
        logger.warning("It is logged.")

    async def run() -> None:
        log()

    async def main() -> None:
        await asyncio.create_task(run(), name="mine")

    log()
    await trio.to_thread.run_sync(asyncio.run, main())
    names = [getattr(record, "taskName", None) for record in keeper.kept]
    assert names == [None, "mine" if sys.version_info >= (3, 12) else None]


def test_a_wrapper_around_the_standard_librarys_method_sees_each_record(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = logging.Logger.makeRecord

    @functools.wraps(make)
    def wrapper(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        record.trace = "7"
        return record

    log_twice("It", between=lambda: monkeypatch.setattr(logging.Logger, "makeRecord", wrapper))
    assert [getattr(record, "trace", None) for record in keeper.kept] == [None, "7"]


def test_a_loggers_own_method_sees_each_record(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    logger, made = logging.getLogger("trioperator.objects"), list[object]()

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made.append(args)
        return logging.Logger.makeRecord(logger, *args, **kwargs)

    log_twice("It", between=lambda: monkeypatch.setattr(logger, "makeRecord", make, raising=False))
    assert len(made) == 1
    assert len(keeper.kept) == 2


class TracedRecord(logging.LogRecord):
    """A record of a tracing library."""


def test_a_factory_of_records_makes_each_record(keeper: Keeper, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(functools.partial(logging.setLogRecordFactory, logging.getLogRecordFactory()))
    log_twice("It", between=lambda: logging.setLogRecordFactory(TracedRecord))
    assert [type(record) for record in keeper.kept] == [logging.LogRecord, TracedRecord]


@pytest.mark.parametrize(
    ("flag", "attribute"),
    [("logThreads", "threadName"), ("logProcesses", "process"), ("logMultiprocessing", "processName")],
)
def test_a_record_lacks_what_is_switched_off(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, flag: str, attribute: str
) -> None:
    log_twice("It", between=lambda: monkeypatch.setattr(logging, flag, False))
    assert getattr(keeper.kept[0], attribute) is not None
    assert getattr(keeper.kept[1], attribute) is None
