"""Tests for :mod:`trioperator._webhooks.other_versions`: whose webhooks are left where, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.webhooks.hooks import ADDRESS, hook
from trioperator._webhooks.other_versions import OtherVersions


async def test_those_of_older_versions_are_kept_for_ten_minutes_and_those_of_newer_ones_longer(
    autojump_clock: object,
) -> None:
    others, own, older, newer = OtherVersions(), hook("own"), hook("older"), hook("newer")
    assert others.keep([own], [older], ADDRESS) == [older]
    assert others.find("older") is False
    assert not others.has_newer
    await trio.sleep(300)
    assert others.keep([own], [older, own, newer], ADDRESS) == [older, newer]
    assert others.find("newer") is True
    assert others.has_newer
    assert others.find_expiry() == trio.current_time() + 300
    await trio.sleep(300)
    assert others.keep([own], [older, own, newer], ADDRESS) == [newer]
    assert others.find("older") is None
    assert others.find("own") is None


async def test_those_that_come_back_are_needed_still(autojump_clock: object) -> None:
    others, own, older = OtherVersions(), hook("own"), hook("older")
    others.keep([own], [older], ADDRESS)
    await trio.sleep(600)
    assert others.keep([own], [own, older], ADDRESS) == []
    assert others.keep([own], [own, older], ADDRESS) == []  # it could not be written
    others.note_dropped()
    assert others.find_expiry() == float("inf")
    assert others.keep([own], [own, older], ADDRESS) == [older]
    await trio.sleep(6000)
    assert others.keep([own], [own, older], ADDRESS) == [older]


@pytest.mark.parametrize(
    "foreign",
    [
        hook("a", name="others"),
        hook("a", namespace="dev"),
        hook("a", port=8443),
        hook("a", path="/a"),
        hook("a", path="/base/a/b"),
        hook("a", path="/base/"),
        hook("a", path=None),
        {"name": "a.hooks.example.com", "clientConfig": {"url": "https://hooks.prod.svc/base/a"}},
        {"name": "a.hooks.example.com"},
    ],
    ids=str,
)
async def test_those_at_other_addresses_are_nobody_s(foreign: dict[str, Any]) -> None:
    assert OtherVersions().keep([hook("own")], [foreign], ADDRESS) == []


async def test_servers_with_a_url_have_no_other_versions_beside_them() -> None:
    assert OtherVersions().keep([], [hook("a")], {"url": "https://hooks.prod.svc/base"}) == []
