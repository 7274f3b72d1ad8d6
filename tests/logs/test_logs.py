"""Tests for :mod:`trioperator.logs`."""

from __future__ import annotations

import inspect
import io
import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import structlog

from trioperator.errors import ConfigError
from trioperator.logs import LogFormat, Logger, ObjectRef, configure, get_logger, object_logger, trim_traceback

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
    """Return what was written to stderr."""

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


class TestLogger:
    def test_its_name_is_below_that_of_the_project(self) -> None:
        assert get_logger("mine").name == "trioperator.mine"
        assert get_logger("trioperator.kube.client").name == "trioperator.kube.client"
        assert get_logger("trioperator").name == "trioperator"
        assert get_logger("trioperators").name == "trioperator.trioperators"
        assert object_logger(REF).name == "trioperator.objects"

    def test_arguments_are_interpolated(self, caplog: pytest.LogCaptureFixture) -> None:
        get_logger("x").warning("%s is %d", "one", 1)
        get_logger("x").warning("%(a)s", {"a": 5})
        get_logger("x").warning("100%")
        assert caplog.messages == ["one is 1", "5", "100%"]

    def test_key_values_are_logged_with_any_set_up(self, caplog: pytest.LogCaptureFixture) -> None:
        get_logger("x").bind(a=1).warning("%d%%", 5, b="two words", c="word")
        get_logger("x").warning(key="only")
        assert caplog.messages == ["5% a=1 b='two words' c=word", "key=only"]
        record: Any = caplog.records[0]
        assert record.event_message == "5%"
        assert record.event_fields == {"a": 1, "b": "two words", "c": "word"}

    @pytest.mark.parametrize(
        "key",
        sorted(
            {*vars(logging.makeLogRecord({})), "event", "extra_", "level", "logger", "message", "method_name", "self"}
            - {"exc_info", "stack_info"}  # which have a meaning
        ),
    )
    @pytest.mark.parametrize("log_format", LogFormat)
    def test_no_key_breaks_a_record(self, stream: Stream, key: str, log_format: LogFormat) -> None:
        configure(log_format=log_format)
        get_logger("x").info("the message", **{key: "the value"})
        object_logger(REF).info("the message", extra={key: "the value"})
        assert stream.getvalue().count("the message") == 2
        assert stream.getvalue().count("the value") == 2

    def test_the_object_is_bound_to_the_record(self, caplog: pytest.LogCaptureFixture) -> None:
        logger = object_logger(REF)
        for each in (logger, logger.bind(a=1).unbind("a"), logger.new(), logger.bind(a=1).new()):
            each.warning("seen")
        assert caplog.messages == ["seen"] * 4
        assert [getattr(record, "k8s_ref", None) for record in caplog.records] == [REF] * 4

    def test_new_leaves_the_logger_alone(self, caplog: pytest.LogCaptureFixture) -> None:
        logger = object_logger(REF).bind(a=1)
        logger.new(b=2).warning("new")
        logger.warning("old")
        assert caplog.messages == ["new b=2", "old a=1"]

    @pytest.mark.parametrize(
        ("method", "level"),
        [
            ("debug", "DEBUG"),
            ("info", "INFO"),
            ("warning", "WARNING"),
            ("warn", "WARNING"),
            ("error", "ERROR"),
            ("exception", "ERROR"),
            ("critical", "CRITICAL"),
            ("fatal", "CRITICAL"),
        ],
    )
    def test_each_method_has_its_level_and_records_its_caller(
        self, caplog: pytest.LogCaptureFixture, method: str, level: str
    ) -> None:
        caplog.set_level(logging.DEBUG)
        frame = inspect.currentframe()
        assert frame is not None
        getattr(object_logger(REF), method)("m")
        line = frame.f_lineno - 1
        [record] = caplog.records
        assert record.levelname == level
        assert (record.pathname, record.lineno) == (__file__, line)
        assert record.funcName == "test_each_method_has_its_level_and_records_its_caller"

    def test_log_accepts_any_level(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        get_logger("x").log(35, "m %d", 1)
        assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(35, "m 1")]

    def test_a_disabled_level_does_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        class Loud:
            def __str__(self) -> str:
                raise AssertionError("it is looked at")

        caplog.set_level(logging.WARNING)
        logger = object_logger(REF)
        assert not logger.isEnabledFor(logging.INFO)
        assert logger.isEnabledFor(logging.WARNING)
        logger.debug("%s", Loud(), key=Loud())
        logger.info("%s", Loud(), key=Loud())
        logger.log(logging.INFO, "%s", Loud(), key=Loud())
        assert not caplog.records

    def test_exceptions_are_accepted_in_all_forms(self, caplog: pytest.LogCaptureFixture) -> None:
        error = ValueError("bad")
        logger = get_logger("x")
        logger.error("given", exc_info=error)
        try:
            raise error
        except ValueError:
            logger.exception("handled")
            logger.error("true", exc_info=True)
        assert [record.exc_info and record.exc_info[1] for record in caplog.records] == [error] * 3

    def test_structlogs_context_is_included(self, caplog: pytest.LogCaptureFixture) -> None:
        with structlog.contextvars.bound_contextvars(request="r1"):
            get_logger("x").warning("m")
        get_logger("x").warning("m")
        assert caplog.messages == ["m request=r1", "m"]

    def test_structlogs_configuration_is_neither_used_nor_changed(self, caplog: pytest.LogCaptureFixture) -> None:
        configured = structlog.is_configured()
        structlog.configure(processors=[])
        try:
            configure(debug=True)
            get_logger("x").warning("m")
            assert caplog.messages == ["m"]
            assert structlog.get_config()["processors"] == []
        finally:
            structlog.reset_defaults()
        assert structlog.is_configured() is configured

    def test_it_is_hashable_and_has_a_repr(self) -> None:
        logger = object_logger(REF)
        assert {logger: 1}[logger] == 1
        assert logger != object_logger(REF)
        assert "trioperator.objects" in repr(logger)


class TestTextFormats:
    @pytest.mark.parametrize(("prefix", "text"), [(True, "[ns/w] seen"), (None, "[ns/w] seen"), (False, "seen")])
    def test_plain(self, stream: Stream, prefix: bool | None, text: str) -> None:
        configure(log_format=LogFormat.PLAIN, log_prefix=prefix)
        object_logger(REF).info("seen")
        get_logger("x").info("no object")
        assert stream.getvalue() == f"{text}\nno object\n"

    def test_full(self, stream: Stream) -> None:
        configure()
        object_logger(REF).info("Handler %r succeeded.", "fn")
        get_logger("activities.startup").warning("m")
        one, two = stream.getvalue().splitlines()
        time = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]"
        assert re.fullmatch(time + r" trioperator\.objects  \[INFO    \] Handler 'fn' succeeded\.", one)
        assert re.fullmatch(time + r" trioperator\.activiti \[WARNING \] m", two)

    def test_the_time_is_that_of_the_standard_library(self, stream: Stream) -> None:
        configure(log_format="%(asctime)s")
        records = [
            logging.makeLogRecord({"created": 1700000000.0 + i / 3, "msecs": i * 1000 / 3 % 1000}) for i in range(9)
        ]
        for record in records:
            logging.root.handlers[-1].handle(record)
        assert stream.getvalue().split("\n")[:-1] == [logging.Formatter().formatTime(record) for record in records]

    def test_an_object_without_a_namespace(self, stream: Stream) -> None:
        configure(log_format=LogFormat.PLAIN, log_prefix=True)
        object_logger({**REF, "namespace": None}).info("seen")
        assert stream.getvalue() == "[w] seen\n"

    def test_percent_signs_of_objects_and_messages_are_kept(self, stream: Stream) -> None:
        configure(log_format=LogFormat.PLAIN, log_prefix=True)
        object_logger({**REF, "name": "%s"}).info("100% %s", "x%d", k="50%s")
        object_logger({**REF, "name": "%s"}).info("100%")
        assert stream.getvalue().splitlines()[1] == "[ns/%s] 100%"
        assert "[ns/%s] 100% %s" in stream.getvalue().splitlines()[0]

    def test_tracebacks_and_stacks_follow_the_message(self, stream: Stream) -> None:
        configure(log_format=LogFormat.PLAIN)
        try:
            raise ValueError("bad")
        except ValueError:
            get_logger("x").exception("m", stack_info=True)
        text = stream.getvalue()
        assert text.startswith("m\nTraceback (most recent call last):\n")
        assert "\nValueError: bad\nStack (most recent call last):\n" in text

    def test_custom_formats_are_accepted_and_invalid_ones_rejected(self, stream: Stream) -> None:
        configure(log_format="%(levelname)s: %(message)s", log_prefix=True)
        object_logger(REF).info("seen")
        assert stream.getvalue() == "INFO: [ns/w] seen\n"
        with pytest.raises(ConfigError, match="%\\(message"):
            configure(log_format="%(message")
        with pytest.raises(ConfigError, match="is invalid"):
            configure(log_format=5)  # type: ignore[arg-type]


class TestJson:
    def test_a_record_is_one_line(self, stream: Stream) -> None:
        configure(log_format=LogFormat.JSON, log_prefix=None)
        object_logger(REF).bind(a=1).info("two\nlines %d", 5, b=[2])
        [line] = stream.getvalue().splitlines()
        entry = json.loads(line)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", entry.pop("timestamp"))
        assert entry == {"message": "two\nlines 5", "object": dict(REF), "severity": "info", "a": 1, "b": [2]}

    def test_the_objects_key_and_the_prefix_are_options(self, stream: Stream) -> None:
        configure(log_format=LogFormat.JSON, log_prefix=True, log_refkey="k8s-obj")
        object_logger(REF).info("seen", object=1)
        [entry] = read_json(stream)
        assert entry["message"] == "[ns/w] seen"
        assert entry["k8s-obj"] == REF
        assert entry["object"] == 1

    @pytest.mark.parametrize(
        ("level", "severity"),
        [
            (5, "debug"),
            (10, "debug"),
            (20, "info"),
            (25, "warn"),
            (30, "warn"),
            (40, "error"),
            (50, "fatal"),
            (60, "fatal"),
        ],
    )
    def test_severities(self, stream: Stream, level: int, severity: str) -> None:
        configure(log_format=LogFormat.JSON, debug=True)
        logging.root.setLevel(1)
        get_logger("x").log(level, "m")
        assert [entry["severity"] for entry in read_json(stream)] == [severity]

    def test_records_of_other_loggers_are_printed(self, stream: Stream) -> None:
        configure(log_format=LogFormat.JSON)
        logging.getLogger("other").warning("m %d", 1, extra={"request": "r1", "severity": 5})
        [entry] = read_json(stream)
        assert entry["message"] == "m 1"
        assert entry["request"] == "r1"
        assert entry["severity"] == "warn"
        assert entry["severity_"] == 5
        assert set(entry) == {"message", "request", "severity", "severity_", "timestamp"}

    def test_exceptions_are_strings(self, stream: Stream) -> None:
        configure(log_format=LogFormat.JSON)
        try:
            raise ValueError("bad")
        except ValueError:
            get_logger("x").exception("m")
        [entry] = read_json(stream)
        assert entry["exc_info"].startswith("Traceback (most recent call last):\n")
        assert entry["exc_info"].endswith("ValueError: bad")

    def test_everything_can_be_a_value(self, stream: Stream) -> None:
        class View(Mapping[str, int]):
            def __getitem__(self, key: str) -> int:
                return 1

            def __iter__(self) -> Iterator[str]:
                return iter(["a"])

            def __len__(self) -> int:
                return 1

        class Rude:
            def __repr__(self) -> str:
                raise RuntimeError

        cycle: list[Any] = []
        cycle.append(cycle)
        configure(log_format=LogFormat.JSON)
        get_logger("x").info(
            "\U0001f600 ü", view=View(), rude=Rude(), cycle=cycle, half="\ud800", big=10**50, obj=object
        )
        [entry] = read_json(stream)
        assert stream.getvalue().isascii()
        assert entry["message"] == "\U0001f600 ü"
        assert entry["view"] == {"a": 1}
        assert entry["rude"] == "<Rude>"
        assert entry["cycle"] == "[[...]]"
        assert entry["half"] == "\\ud800"
        assert int(entry["big"]) == 10**50
        assert entry["obj"] == "<class 'object'>"


class TestConfigure:
    @pytest.mark.parametrize(
        ("options", "level", "low_level"),
        [
            ({}, logging.INFO, logging.WARNING),
            ({"quiet": True}, logging.WARNING, logging.WARNING),
            ({"verbose": True}, logging.DEBUG, logging.WARNING),
            ({"debug": True}, logging.DEBUG, logging.DEBUG),
            ({"debug": True, "quiet": True}, logging.DEBUG, logging.DEBUG),
        ],
    )
    def test_levels(self, options: dict[str, Any], level: int, low_level: int) -> None:
        configure(debug=True)
        configure(**options)
        assert get_logger("x").getEffectiveLevel() == level
        assert logging.getLogger("users.module").getEffectiveLevel() == level
        for name in ("httpx", "httpcore.http11", "hypercorn.access", "trio.abc", "quart.app", "asyncio", "urllib3"):
            assert logging.getLogger(name).getEffectiveLevel() == low_level

    def test_a_second_call_replaces_the_first(self, stream: Stream) -> None:
        others = logging.root.handlers[:]
        configure(log_format=LogFormat.PLAIN)
        configure(log_format=LogFormat.PLAIN)
        get_logger("x").info("once")
        assert stream.getvalue() == "once\n"
        assert logging.root.handlers[:-1] == others

    def test_messages_with_wrong_arguments_are_logged(self, stream: Stream) -> None:
        class Rude:
            def __str__(self) -> str:
                raise RuntimeError

        logging.root.handlers.clear()  # pytest's own handler raises what it is to raise
        configure(log_format=LogFormat.PLAIN)
        get_logger("x").info("%d", "text")
        get_logger("x").info("%d", "text", key=1)
        get_logger("x").info("no place", 1)
        get_logger("x").info("%s", Rude())
        get_logger("x").info(Rude(), key=1)
        get_logger("x").info(Rude())
        lines = stream.getvalue().splitlines()
        assert lines[0] == "%d (arguments that do not match: 'text')"
        assert lines[1] == "%d (arguments that do not match: 'text') key=1"
        assert lines[2].startswith("no place (arguments")
        assert lines[3].startswith("%s (arguments that do not match: <")
        assert "Rude object" in lines[4]
        assert lines[4].endswith(" key=1")
        assert "Rude object" in lines[5]

    @pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("I/O operation on closed file")])
    def test_a_closed_pipe_does_no_harm(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        class Closed(io.StringIO):
            def write(self, text: str) -> int:
                raise error

        monkeypatch.setattr(sys, "stderr", Closed())
        configure()
        get_logger("x").info("lost")

    def test_characters_that_the_stream_does_not_have_are_escaped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding="ascii", errors="strict"))
        configure(log_format=LogFormat.PLAIN)
        get_logger("x").info("grün")
        assert raw.getvalue() == b"gr\\xfcn\n"

    def test_threads_do_not_mix_their_lines(self, stream: Stream) -> None:
        configure(log_format=LogFormat.PLAIN)
        logger = object_logger(REF)

        def log() -> None:
            for _ in range(50):
                logger.info("x" * 50)

        threads = [threading.Thread(target=log) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stream.getvalue().splitlines() == ["x" * 50] * 200


class TestTrimTraceback:
    def test_it_begins_in_the_function(self) -> None:
        def inner() -> None:
            raise ValueError

        def user() -> None:
            inner()

        with pytest.raises(ValueError) as caught:
            user()
        assert trim_traceback(caught.value, user.__code__)
        assert caught.value.__traceback__ is not None
        assert caught.value.__traceback__.tb_frame.f_code is user.__code__
        assert caught.value.__traceback__.tb_next is not None

    def test_it_begins_in_the_file(self) -> None:
        with pytest.raises(ValueError) as caught:
            exec(compile("def f(): raise ValueError\nf()", "/user.py", "exec"), {})
        assert trim_traceback(caught.value, "/user.py")
        assert caught.value.__traceback__ is not None
        assert caught.value.__traceback__.tb_frame.f_code.co_name == "<module>"

    def test_a_traceback_without_the_code_is_unchanged(self) -> None:
        with pytest.raises(ValueError) as caught:
            raise ValueError
        before = caught.value.__traceback__
        assert not trim_traceback(caught.value, "/elsewhere.py")
        assert caught.value.__traceback__ is before


def test_the_logger_has_the_type_of_the_annotations() -> None:
    assert isinstance(get_logger("x"), Logger)
    assert isinstance(object_logger(REF), structlog.BoundLoggerBase)
