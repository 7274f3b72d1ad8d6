"""Tests for :mod:`trioperator._runtime.cache.watch_event`: what is known of a state without decoding it."""

from __future__ import annotations

import msgspec
import pytest

from trioperator._kube.objects import parse_object
from trioperator._runtime.cache.watch_event import WatchEvent

BODY = {"metadata": {"name": "w", "resourceVersion": "5", "generation": 3, "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    "event",
    [
        WatchEvent("MODIFIED", 5, parse_object(msgspec.json.encode(BODY))),
        WatchEvent("MODIFIED", 5, body=BODY),
    ],
)
def test_an_event_is_the_same_from_the_server_and_inferred(event: WatchEvent) -> None:
    assert event.generation == 3
    assert event.deleting
    assert event.decode() == BODY


@pytest.mark.parametrize("metadata", [{}, {"generation": None}, {"generation": "3"}])
def test_an_inferred_event_may_lack_everything(metadata: dict[str, object]) -> None:
    event = WatchEvent(None, 1, body={"metadata": metadata})
    assert event.generation is None
    assert not event.deleting
    assert WatchEvent(None, 1, body={"metadata": None}).generation is None
