"""Tests for :mod:`trioperator.helpers.events`: what is recorded, without an operator."""

from __future__ import annotations

import collections
import contextvars
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import trioperator
from trioperator._handling.arguments.context import current_recorder
from trioperator._model.body import Body
from trioperator.settings.posting import PostingSettings

BODY: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "namespace": "ns", "uid": "u-1"},
}
REFERENCE = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "namespace": "ns", "uid": "u-1"}

Recorded = tuple[Mapping[str, Any], str, str, str, Any]


class Recording:
    """What the functions record."""

    def __init__(self) -> None:
        self.posting = PostingSettings()
        self.waiting = 0
        self.recorded: list[Recorded] = []

    def record(
        self, reference: Mapping[str, Any], *, type: str, reason: str, message: str, backoffs: Any = None
    ) -> None:
        self.recorded.append((reference, type, reason, message, backoffs))


@pytest.fixture
def recording() -> Iterator[Recording]:
    recording = Recording()
    token = current_recorder.set(recording)
    yield recording
    current_recorder.reset(token)


def test_an_event_has_what_it_is_given(recording: Recording) -> None:
    trioperator.event(BODY, type="Any", reason="Reason", message="text", backoffs=[1, 2])
    trioperator.event(BODY, type="Any", reason="Reason")
    assert recording.recorded == [
        (REFERENCE, "Any", "Reason", "text", [1, 2]),
        (REFERENCE, "Any", "Reason", "", None),
    ]


def test_shortcuts_have_their_types(recording: Recording) -> None:
    trioperator.info(BODY, reason="R", message="m")
    trioperator.warn(BODY, reason="R", message="m")
    trioperator.exception(BODY, reason="R", message="m")
    assert [type for _, type, _, _, _ in recording.recorded] == ["Normal", "Warning", "Error"]


@pytest.mark.parametrize(
    ("options", "reason", "message"),
    [
        ({}, "ValueError", "the text"),
        ({"message": "It failed:"}, "ValueError", "It failed: the text"),
        ({"reason": "Mine"}, "Mine", "the text"),
        ({"exc": KeyError("k")}, "KeyError", "'k'"),
        ({"exc": KeyError()}, "KeyError", ""),
    ],
)
def test_an_exception_is_described(recording: Recording, options: Any, reason: str, message: str) -> None:
    try:
        raise ValueError("the text")
    except ValueError:
        trioperator.exception(BODY, **options)
    assert recording.recorded == [(REFERENCE, "Error", reason, message, None)]


def test_an_exception_whose_text_raises_is_described(recording: Recording) -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    trioperator.exception(BODY, exc=BrokenError())
    assert recording.recorded == [(REFERENCE, "Error", "BrokenError", "BrokenError()", None)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: [BODY, Body(BODY)],
        lambda: (obj for obj in [[BODY], (Body(BODY),)]),
        lambda: [collections.UserDict(BODY), [BODY, None]],
    ],
    ids=["list", "nested", "mappings"],
)
def test_objects_may_be_iterables(recording: Recording, make: Callable[[], Any]) -> None:
    trioperator.info(make(), reason="R")
    assert [reference for reference, *_ in recording.recorded] == [REFERENCE, REFERENCE]


@pytest.mark.parametrize("objs", [None, [], ()])
def test_no_objects_have_no_events(recording: Recording, objs: Any) -> None:
    trioperator.info(objs, reason="R")
    assert recording.recorded == []


@pytest.mark.parametrize("objs", ["w", 1, [BODY, "w"]])
def test_anything_else_is_an_error(recording: Recording, objs: Any) -> None:
    with pytest.raises(TypeError, match=r"is not a Kubernetes object\. Pass a dict or another mapping, an object of"):
        trioperator.info(objs, reason="R")


def test_models_of_client_libraries_are_objects(recording: Recording) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    metadata = kubernetes.client.V1ObjectMeta(name="w", namespace="ns", uid="u-1")
    pod = kubernetes.client.V1Pod(api_version="v1", kind="Pod", metadata=metadata)
    trioperator.info(pod, reason="R")
    assert recording.recorded[0][0] == {**REFERENCE, "apiVersion": "v1", "kind": "Pod"}


@pytest.mark.parametrize(
    ("level", "types"),
    [
        (logging.DEBUG, ["Any", "Normal", "Warning", "Error"]),
        (logging.INFO, ["Any", "Normal", "Warning", "Error"]),
        (logging.WARNING, ["Any", "Warning", "Error"]),
        (logging.ERROR, ["Any", "Error"]),
        (logging.CRITICAL, ["Any"]),
    ],
)
def test_the_level_applies_to_all_but_event(recording: Recording, level: int, types: list[str]) -> None:
    recording.posting.level = level
    post_all()
    assert [type for _, type, _, _, _ in recording.recorded] == types


def test_nothing_is_posted_if_it_is_disabled(recording: Recording) -> None:
    recording.posting.enabled = False
    post_all()
    assert recording.recorded == []


def post_all() -> None:
    trioperator.event(BODY, type="Any", reason="R")
    trioperator.info(BODY, reason="R")
    trioperator.warn(BODY, reason="R")
    trioperator.exception(BODY, reason="R")


@pytest.mark.parametrize("function", ["event", "info", "warn", "exception"])
def test_outside_of_handlers_they_raise_a_lookup_error(function: str) -> None:
    options = {"type": "T"} if function == "event" else {}
    with pytest.raises(LookupError, match="Events can be posted only by handlers of a running operator"):
        getattr(trioperator, function)(BODY, reason="R", **options)


def test_a_thread_needs_the_context_of_the_handler(recording: Recording) -> None:
    context = contextvars.copy_context()
    thread = threading.Thread(target=lambda: context.run(trioperator.info, BODY, reason="R"))
    thread.start()
    thread.join()
    assert len(recording.recorded) == 1
