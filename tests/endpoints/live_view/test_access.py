"""Tests for :mod:`trioperator._endpoints.live_view.access`: which hosts, tokens, sessions and origins are let in."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from trioperator._endpoints.live_view.access import SESSION_SECONDS, Access, is_loopback, is_same_origin


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
def test_the_loopback_interface_has_many_names(host: str) -> None:
    assert is_loopback(host)
    assert Access(None).serves(host if host != "::1" else "[::1]")
    assert Access(None).serves(f"[::1]:{80}" if ":" in host else f"{host}:80")


@pytest.mark.parametrize(
    "header",
    ["", ":80", "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "0.0.0.0", "10.0.0.1:1"],
)
def test_other_hosts_are_not_served(header: str) -> None:
    assert not Access("x").serves(header)


def test_hosts_that_are_given_are_served_by_any_port_and_case() -> None:
    access = Access("x", ["Ops.example.com"])
    assert access.serves("ops.EXAMPLE.com:8443")
    assert access.serves("localhost")
    assert not access.serves("x.ops.example.com")


async def test_the_token_is_a_bearer_token() -> None:
    access = Access("täken")
    assert access.has_bearer("Bearer täken")
    assert access.has_bearer("bearer täken")
    for header in ("", "Bearer", "Bearer ", "Basic täken", "Bearer taken", "täken", "Bearer t\udce4ken"):
        assert not access.has_bearer(header)


@pytest.mark.parametrize("unset", [None, ""])
async def test_without_a_token_nothing_is_one(unset: str | None) -> None:
    access = Access(unset)
    assert not access.has_token
    assert access.log_in("") is access.log_in("None") is None
    assert not access.has_bearer("Bearer ")
    assert not access.has_bearer("Bearer None")


async def test_a_session_ends_by_logging_out_and_after_half_a_day(autojump_clock: MockClock) -> None:
    access = Access("x")
    assert access.log_in("y") is None
    first, second = access.log_in("x"), access.log_in("x")
    assert first is not None
    assert first != second
    assert access.has_session(first)
    access.log_out(first)
    assert not access.has_session(first)
    assert access.has_session(second)
    await trio.sleep(SESSION_SECONDS)
    assert not access.has_session(second)
    for wrong in (None, "", "x"):
        assert not access.has_session(wrong)


async def test_sessions_are_limited_and_the_oldest_gives_way() -> None:
    access = Access("x")
    sessions = [access.log_in("x") for _ in range(65)]
    assert [access.has_session(session) for session in sessions] == [False] + [True] * 64


@pytest.mark.parametrize(
    ("origin", "site", "same"),
    [
        ("http://localhost:1", None, True),
        ("http://LOCALHOST:1", "cross-site", True),
        ("http://localhost:2", "same-origin", False),  # another program of this machine
        ("http://evil.example", None, False),
        ("null", "same-origin", False),
        ("", "same-origin", False),
        ("http://[", None, False),
        (None, "same-origin", True),
        (None, "same-site", False),
        (None, "none", False),
        (None, None, False),
    ],
)
def test_actions_come_from_the_same_host_and_port(origin: str | None, site: str | None, same: bool) -> None:
    assert is_same_origin("localhost:1", origin=origin, site=site) is same
