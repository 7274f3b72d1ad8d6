"""Tests for :mod:`trioperator._recorder.manifests`."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioperator._recorder.correlator import Occurrence, Series
from trioperator._recorder.manifests import build_event, build_update, events_path, get_namespace, shorten
from trioperator.settings.posting import PostingSettings

OCCURRENCE = Occurrence("example.com/v1", "Widget", "ns", "w", "u-1", "Normal", "Greeting", "hello", 0.0)


def to_wall(time: float) -> datetime.datetime:
    return datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC) + datetime.timedelta(seconds=time)


def build(occurrence: Occurrence, **settings: Any) -> Any:
    series = Series(occurrence[:8], occurrence, occurrence, count=1)
    return build_event(series, PostingSettings(**settings), identity="me", to_wall=to_wall)


def test_an_event_refers_to_its_object() -> None:
    assert build(OCCURRENCE) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "ns", "generateName": "trioperator-event-"},
        "involvedObject": {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "namespace": "ns",
            "name": "w",
            "uid": "u-1",
        },
        "type": "Normal",
        "reason": "Greeting",
        "action": "Action?",
        "message": "hello",
        "count": 1,
        "reportingComponent": "trioperator",
        "reportingInstance": "me",
        "source": {"component": "trioperator"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "eventTime": "2026-01-02T03:04:05.000000Z",
    }


def test_an_event_of_a_cluster_scoped_object_is_in_the_default_namespace() -> None:
    occurrence = OCCURRENCE._replace(namespace="")
    event = build(occurrence)
    assert get_namespace(occurrence) == event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]  # else kubectl describe would not find it


def test_names_come_from_the_settings() -> None:
    event = build(OCCURRENCE, reporting_component="mine", reporting_instance="one", event_name_prefix="mine-")
    assert event["reportingComponent"] == event["source"]["component"] == "mine"
    assert event["reportingInstance"] == "one"
    assert event["metadata"]["generateName"] == "mine-"


def test_an_update_has_what_changes() -> None:
    last = OCCURRENCE._replace(time=1.5, message="later")
    assert build_update(Series(last[:8], OCCURRENCE, last, count=3), to_wall=to_wall) == {
        "count": 3,
        "message": "later",
        "lastTimestamp": "2026-01-02T03:04:06Z",
        "series": {"count": 3, "lastObservedTime": "2026-01-02T03:04:06.500000Z"},
    }


def test_texts_are_cut_to_what_the_api_server_accepts() -> None:
    occurrence = OCCURRENCE._replace(type="t" * 200, reason="r" * 200, message="m" * 2000)
    event = build(occurrence, reporting_instance="i" * 200)
    assert [len(event[key]) for key in ("type", "reason", "message", "reportingInstance")] == [128, 128, 1024, 128]


def test_the_path_names_the_namespace() -> None:
    assert events_path("ns") == "/api/v1/namespaces/ns/events"


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("a" * 10, "a" * 10),
        ("abcdefghijk", "abcd...ijk"),
        ("ü" * 6, "üü...ü"),  # bytes count, and characters are whole
        ("\ud800", "\\ud800"),
    ],
)
def test_the_middle_is_left_out(text: str, short: str) -> None:
    assert shorten(text, 10) == short


def test_a_message_is_cut_at_1024_as_kopf_does() -> None:
    short = shorten("a" * 1024 + "b", 1024)
    assert len(short) == 1024
    assert short == "a" * 511 + "..." + "a" * 509 + "b"


@given(st.text(st.characters(codec="utf-8", exclude_characters=".")), st.integers(10, 100))
def test_short_texts_fit_and_begin_and_end_as_the_text(text: str, limit: int) -> None:
    short = shorten(text, limit)
    assert len(short.encode()) <= limit
    if len(text.encode()) > limit:
        begin, end = short.split("...")
        assert text.startswith(begin)
        assert text.endswith(end)
        assert len(short.encode()) >= limit - 6
    else:
        assert short == text
