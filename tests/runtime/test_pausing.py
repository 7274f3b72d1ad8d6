"""Tests for :mod:`trioperator._runtime.pausing`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from trio.testing import MockClock

from tests.runtime.harness import Harness, observe, open_harness, patched
from trioperator._runtime.pausing import check_pause, find_current, is_coming
from trioperator.apiserver import Cluster
from trioperator.errors import PausedError
from trioperator.settings.pausing import PausingSettings

PAUSED = "trioperator.dev/paused"


def annotated(value: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": {PAUSED: value}, **metadata}}


async def test_a_pause_is_found_until_it_is_over(autojump_clock: MockClock) -> None:
    settings = PausingSettings()
    assert find_current(annotated("true"), settings) is not None
    assert find_current(annotated("until=2020-01-01T00:00Z"), settings) is None
    assert find_current(annotated("until=2199-01-01T00:00Z"), settings) is not None
    assert find_current({}, settings) is find_current(None, settings) is None
    assert find_current(annotated("true"), PausingSettings(annotation=None)) is None


async def test_an_object_that_is_being_deleted_is_paused_only_if_that_is_set(autojump_clock: MockClock) -> None:
    body = annotated("true", deletionTimestamp="2020-01-01T00:00:00Z")
    assert find_current(body, PausingSettings()) is None
    assert find_current(body, PausingSettings(holds_deletion=True)) is not None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda harness, body: patched(body, annotated("true")), True),
        (lambda harness, body: patched(body, annotated("false")), False),
    ],
)
async def test_a_pause_is_noticed_before_its_watch_event_is_processed(
    change: Callable[[Harness, dict[str, Any]], dict[str, Any]],
    expected: bool,
    cluster: Cluster,
    autojump_clock: MockClock,
) -> None:
    async with open_harness(cluster) as harness:
        state = await harness.make("create")
        assert not is_coming(state, harness.settings.pausing)
        stored = await harness.cluster.patch("widgets", "w", change(harness, await harness.get()))
        observe(state, stored)
        assert is_coming(state, harness.settings.pausing) is expected
        if expected:
            with pytest.raises(PausedError, match="paused by its annotation"):
                check_pause(state, harness.settings.pausing)
