"""Tests for :mod:`trioperator._tooling.pausing`."""

from __future__ import annotations

import datetime

import pytest
from trio.testing import MockClock

from tests.runtime.conftest import CRD, widget
from trioperator._model.pause import Pause
from trioperator._tooling.pausing import Target, parse_until, pause_object, poke_object, unpause_object
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.errors import ConfigError, NotFoundError

NOW = datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("90s", NOW + datetime.timedelta(seconds=90)),
        ("30m", NOW + datetime.timedelta(minutes=30)),
        ("2h", NOW + datetime.timedelta(hours=2)),
        ("3d", NOW + datetime.timedelta(days=3)),
        ("2026-12-01T01:00+01:00", datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)),
    ],
)
def test_ends_of_pauses_are_durations_or_times(text: str, until: datetime.datetime) -> None:
    assert parse_until(text, NOW) == until


@pytest.mark.parametrize(
    "text", ["", "2", "2w", "-2h", "1.5h", "tomorrow", "2026-12-01T00:00", "2026-12-01T00:00Z reason=x"]
)
def test_other_ends_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="not the end of a pause"):
        parse_until(text, NOW)


def test_an_end_that_is_over_is_rejected() -> None:
    with pytest.raises(ConfigError, match="is in the past"):
        parse_until("2026-10-01T00:00Z", NOW)


def test_objects_are_named_by_their_kind_and_name() -> None:
    assert Target.parse("databases.example.com/orders", "shop") == Target("databases.example.com", "orders", "shop")
    for text in ("orders", "/orders", "databases/", "a/b/c"):
        with pytest.raises(ConfigError, match="KIND/NAME"):
            Target.parse(text, None)


async def test_annotations_are_set_and_removed(cluster: Cluster, client: Client, autojump_clock: MockClock) -> None:
    await cluster.apply(CRD)
    await cluster.create(widget())
    target = Target("widgets", "w", "default")
    assert await pause_object(client, target, Pause(reason="why"), "a.dev/p") == "widgets/default/w: paused: why"
    assert await poke_object(client, target, "a.dev/r", NOW) == (
        "widgets/default/w: requested at 2026-11-01T12:00:00+00:00"
    )
    annotations = (await cluster.get("widgets", "w"))["metadata"]["annotations"]
    assert annotations == {"a.dev/p": "reason=why", "a.dev/r": "2026-11-01T12:00:00+00:00"}
    assert await unpause_object(client, target, "a.dev/p") == "widgets/default/w: no longer paused"
    assert await unpause_object(client, target, "a.dev/p") == "widgets/default/w: not paused"
    with pytest.raises(NotFoundError):
        await pause_object(client, Target("widgets", "other", "default"), Pause(), "a.dev/p")
