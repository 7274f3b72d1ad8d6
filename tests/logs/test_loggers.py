"""Tests for :mod:`trioperator._logs.loggers`."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest
import structlog

from tests.logs.conftest import REF, Stream
from trioperator._logs import (
    LocalObjectLogger,
    LogFormat,
    Logger,
    ObjectLogger,
    configure,
    get_logger,
    object_logger,
    observing_objects,
    set_log_processors,
    trim_traceback,
)


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

    @pytest.mark.parametrize("logger", [get_logger("x"), object_logger(REF), object_logger(REF, local=True)])
    @pytest.mark.parametrize(
        "args", [("plain",), ("%s is %d", "one", 1), ("%(a)s", {"a": 5}), (5,), ("100%",), (None,)]
    )
    def test_records_are_the_same_with_and_without_processors(
        self, caplog: pytest.LogCaptureFixture, logger: Logger, args: tuple[Any, ...]
    ) -> None:
        for processors in [], [lambda _logger, _level, event: event]:
            set_log_processors(processors)
            logger.warning(*args)
        set_log_processors([])
        passing = {"created", "msecs", "relativeCreated"}
        records = [
            {key: value for key, value in vars(record).items() if key not in passing} for record in caplog.records
        ]
        assert len(records) == 2
        assert records[0] == records[1]

    def test_pairs_of_the_context_are_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        with structlog.contextvars.bound_contextvars(request=7):
            object_logger(REF).warning("with")
        object_logger(REF).warning("without")
        assert caplog.messages == ["with request=7", "without"]

    def test_pairs_that_a_handler_binds_are_logged_after_messages_without_any(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        object_logger(REF).warning("seen")
        with structlog.contextvars.bound_contextvars(never_bound_before=7):
            object_logger(REF).warning("seen")
        object_logger(REF).warning("seen")
        assert caplog.messages == ["seen", "seen never_bound_before=7", "seen"]

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


class TestObjectLogger:
    BODY = {  # noqa: RUF012 -- never changed
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "ns", "uid": "u-1", "labels": {}},
    }

    def test_it_is_bound_to_its_object(self, caplog: pytest.LogCaptureFixture) -> None:
        logger = ObjectLogger(body=self.BODY, settings=object())
        assert isinstance(logger, Logger)
        assert logger.name == "trioperator.objects"
        logger.bind(a=1).warning("text")
        record: Any = caplog.records[0]
        assert record.getMessage() == "text a=1"
        assert record.k8s_ref == {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "name": "w",
            "namespace": "ns",
            "uid": "u-1",
        }

    @pytest.mark.parametrize("derive", [lambda log: log, lambda log: log.bind(a=1), lambda log: log.bind(a=1).new()])
    @pytest.mark.parametrize(
        "make", [lambda body: LocalObjectLogger(body=body), lambda _: object_logger(REF, local=True)]
    )
    def test_a_local_one_marks_its_records(self, caplog: pytest.LogCaptureFixture, make: Any, derive: Any) -> None:
        logger = derive(make(self.BODY))
        assert isinstance(logger, LocalObjectLogger)
        assert isinstance(logger, ObjectLogger)
        logger.warning("text")
        assert caplog.records[0].k8s_skip is True  # type: ignore[attr-defined]  # of our records
        assert "k8s_skip" not in caplog.text

    def test_others_do_not(self, caplog: pytest.LogCaptureFixture) -> None:
        assert type(object_logger(REF)) is ObjectLogger
        object_logger(REF).warning("text")
        assert not hasattr(caplog.records[0], "k8s_skip")

    def test_records_can_be_observed(self) -> None:
        seen: list[str] = []
        with observing_objects(lambda record: seen.append(record.getMessage())):
            object_logger(REF).warning("%s", "one")
            get_logger("x").warning("of another logger")
        object_logger(REF).warning("later")
        assert seen == ["one"]

    def test_an_observer_that_fails_loses_no_record(self, caplog: pytest.LogCaptureFixture) -> None:
        def fail(record: logging.LogRecord) -> None:
            raise RuntimeError(record.getMessage())

        with observing_objects(fail):
            object_logger(REF).warning("text")
        assert caplog.messages == ["text"]

    def test_observing_is_no_handler_so_that_those_of_last_resort_are_used(self) -> None:
        with observing_objects(lambda record: None):
            assert not logging.getLogger("trioperator.objects").handlers
