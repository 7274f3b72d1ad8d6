"""Tests for :mod:`trioperator._logs.formats`."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.logs.conftest import REF, Stream, read_json
from trioperator._logs import LogFormat, configure, get_logger, object_logger
from trioperator.errors import ConfigError


class Terminal(io.StringIO):
    """Stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def log_all_levels() -> None:
    logger = get_logger("x")
    logger.info("info")
    logger.warning("warning")
    try:
        raise ValueError("bad")
    except ValueError:
        logger.exception("failed")


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
        assert re.fullmatch(time + r" activities\.startup   \[WARNING \] m", two)

    @pytest.mark.parametrize("level", [logging.DEBUG, logging.CRITICAL, 23, 1_000_000])
    @pytest.mark.parametrize(
        "name", ["a", "trioperator.objects", "exactly_twenty_chars", "one.that_is_so_long_that_it_is_cut"]
    )
    def test_full_is_what_its_format_string_says(self, stream: Stream, name: str, level: int) -> None:
        configure(verbose=True)
        logging.getLogger(name).log(level, "seen %d", 1)
        configure(verbose=True, log_format=LogFormat.FULL.value)
        logging.getLogger(name.rpartition("one.")[2]).log(level, "seen %d", 1)
        fast, slow = (line.partition("]")[2] for line in stream.getvalue().splitlines())
        assert fast == slow

    def test_full_shows_the_last_parts_of_long_names_and_other_handlers_get_the_whole_name(
        self, stream: Stream, caplog: pytest.LogCaptureFixture
    ) -> None:
        configure()
        get_logger("runtime.watching.reflector").warning("m")
        logging.getLogger("one_name_that_is_longer_than_that").warning("m")
        assert "] watching.reflector   [" in stream.getvalue()
        assert "] one_name_that_is_lon [" in stream.getvalue()
        assert [record.name for record in caplog.records] == [
            "trioperator.runtime.watching.reflector",
            "one_name_that_is_longer_than_that",
        ]

    def test_custom_formats_show_whole_names(self, stream: Stream) -> None:
        configure(log_format="%(name)s")
        get_logger("runtime.watching.reflector").warning("m")
        assert stream.getvalue() == "trioperator.runtime.watching.reflector\n"

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
        assert text.startswith("m\n  Traceback (most recent call last):\n    File ")
        assert "\n  ValueError: bad\n  Stack (most recent call last):\n    File " in text

    def test_filters_of_the_handler_apply(self, stream: Stream) -> None:
        configure(log_format=LogFormat.PLAIN)
        (handler,) = (
            found for found in logging.getLogger().handlers if type(found).__module__.startswith("trioperator")
        )
        handler.addFilter(lambda record: "secret" not in record.getMessage())
        get_logger("x").info("a secret")
        get_logger("x").info("seen")
        assert stream.getvalue() == "seen\n"

    @pytest.mark.parametrize("log_format", [LogFormat.PLAIN, LogFormat.FULL, "%(name)s %(message)s"])
    def test_control_characters_of_names_and_messages_are_escaped(
        self, stream: Stream, log_format: LogFormat | str
    ) -> None:
        configure(log_format=log_format, log_prefix=True)
        evil = "\n[2026-01-31] trioperator [INFO] \x1b[2Jforged\r\x00\x9b\x85\u2028\u202e\u2066"
        object_logger({**REF, "name": evil}).info("a\tb %s ü\u200d", evil, key=evil)
        logging.getLogger("other").warning(evil)
        text = stream.getvalue()
        assert text.count("\n") == len(text.splitlines()) == 2
        assert r"\n[2026-01-31] trioperator [INFO] \x1b[2Jforged\r\x00\x9b\x85\u2028\u202e\u2066" in text
        assert "a\tb " in text
        assert not set("\x1b\x00\x9b\x85\u2028\u202e\u2066") & set(text)
        assert " ü\u200d" in text

    def test_a_message_of_an_exception_cannot_forge_a_line(self, stream: Stream) -> None:
        configure(log_format=LogFormat.PLAIN)
        try:
            raise ValueError("bad\nforged\x1b[2J\rforged\u2028forged\x0cforged")
        except ValueError as error:
            error.add_note("noted\nforged")
            get_logger("x").exception("m")
        lines = stream.getvalue().splitlines()
        assert [line for line in lines[1:] if not line.startswith("  ")] == []
        assert r"  forged\x1b[2J\rforged\u2028forged\x0cforged" in lines
        assert "\x1b" not in stream.getvalue()

    def test_errors_are_red_and_warnings_yellow_where_colors_are_wanted(
        self, stream: Stream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("FORCE_COLOR", "1")
        configure(log_format=LogFormat.PLAIN)
        log_all_levels()
        configure(log_format=LogFormat.JSON)
        log_all_levels()
        lines = stream.getvalue().splitlines()
        assert lines[:3] == ["info", "\x1b[33mwarning\x1b[0m", "\x1b[31mfailed\x1b[0m"]
        assert lines[3].startswith("  Traceback")
        assert "\x1b" not in "".join(lines[3:])

    @pytest.mark.parametrize(
        ("environment", "has_colors"),
        [({}, True), ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    )
    def test_terminals_get_colors_unless_the_environment_says_otherwise(
        self, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], has_colors: bool
    ) -> None:
        for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        configure(log_format=LogFormat.PLAIN)
        get_logger("x").error("failed")
        assert terminal.getvalue() == ("\x1b[31mfailed\x1b[0m\n" if has_colors else "failed\n")

    def test_what_is_no_terminal_or_no_stream_gets_no_colors(
        self, stream: Stream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        configure(log_format=LogFormat.PLAIN)
        get_logger("x").error("failed")
        assert stream.getvalue() == "failed\n"
        monkeypatch.setattr(sys, "stderr", None)
        configure()

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
        assert entry.pop("logger") == "trioperator.objects"
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
        assert entry["logger"] == "other"
        assert set(entry) == {"logger", "message", "request", "severity", "severity_", "timestamp"}

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
        for name in ("trio.abc", "asyncio"):
            assert logging.getLogger(name).getEffectiveLevel() == low_level
        for name in ("httpx", "httpcore.http11", "h11", "hypercorn.access", "urllib3", "kubernetes.client.rest"):
            assert logging.getLogger(name).getEffectiveLevel() == logging.WARNING

    def test_a_second_call_replaces_the_first(self, stream: Stream) -> None:
        configure(log_format=LogFormat.PLAIN)
        others = logging.root.handlers[:-1]
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
