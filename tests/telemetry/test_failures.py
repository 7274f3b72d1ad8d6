"""Tests for :mod:`trioperator._telemetry.failures`: what is kept of errors, and how many of them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from trioperator._concurrency.clock import steady_now
from trioperator._handling.calls.invoke import Attempt
from trioperator._handling.handlers.handler import Handler
from trioperator._handling.handlers.outcome import Outcome
from trioperator._logs import get_logger, object_logger
from trioperator._telemetry.failures import MAX_FAILURES, Failures, mask_message
from trioperator.errors import HandlerRetriesError, PermanentError

REF: Any = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u", "namespace": "default"}


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error):
        return error


def record(failures: Failures, error: Exception, *, final: bool = False, logger: Any = None) -> None:
    handler = Handler(fn=lambda **_: None, id="create")
    outcome = Outcome(final=final, error=error, delay=5.0)
    attempt = Attempt(retry=2, started=steady_now())
    failures.record(handler, outcome, attempt, object_logger(REF) if logger is None else logger)


async def test_an_error_is_kept_with_its_object_its_place_and_what_comes_next() -> None:
    failures = Failures()
    record(failures, raised(KeyError("size")))
    record(failures, raised(PermanentError("no")), final=True, logger=get_logger("x"))
    first, second = failures
    assert (first.handler, first.kind, first.namespace, first.name, first.uid) == (
        "create",
        "Widget",
        "default",
        "w",
        "u",
    )
    assert (first.error, first.message, first.retry, first.delay) == ("KeyError", "'size'", 2, 5.0)
    assert first.place.startswith("test_failures.py:")
    assert first.place.endswith(" in raised")
    assert (second.error, second.kind, second.uid, second.delay) == ("PermanentError", "", "", None)


async def test_the_place_of_a_last_retry_is_that_of_the_error_itself() -> None:
    failures, error = Failures(), HandlerRetriesError("too many")
    error.__cause__ = raised(ValueError("x"))
    record(failures, error, final=True)
    [failure] = failures
    assert (failure.error, failure.place.endswith(" in raised")) == ("HandlerRetriesError", True)


async def test_exceptions_and_their_frames_are_not_kept() -> None:
    class Heavy(Exception):
        pass

    failures = Failures()
    error = raised(Heavy("x"))
    gone = weakref.ref(error)
    record(failures, error)
    del error
    gc.collect()
    assert gone() is None
    assert len(failures) == 1


async def test_the_newest_ones_are_kept() -> None:
    failures = Failures()
    for number in range(MAX_FAILURES + 7):
        record(failures, ValueError(number))
    assert (len(failures), failures.count) == (MAX_FAILURES, MAX_FAILURES + 7)
    assert [failure.message for failure in failures][:: MAX_FAILURES - 1] == ["7", str(MAX_FAILURES + 6)]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("see https://user:pass@host/path?x=a@b", "see https://…@host/path?x=a@b"),
        ("https://host/a@b http://u@h ftp://a:b@c", "https://host/a@b http://…@h ftp://…@c"),
        ("mail@example.com", "mail@example.com"),
        ("x" * 3000, "x" * 1024),
    ],
)
def test_messages_are_cut_and_have_no_passwords_of_urls(message: str, shown: str) -> None:
    assert mask_message(message) == shown
