"""Tests for :mod:`trioperator._webhooks.trust`: which CAs a configuration is to trust, as others come and go."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import trio

from trioperator._webhooks.trust import Trust, trusts_part

URL = "https://hooks.test"


def make_certificate(name: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----"


def hook(*names: str, url: str = URL) -> dict[str, Any]:
    """Return a webhook that trusts these CAs."""
    bundle = "".join(f"{make_certificate(name)}\n" for name in names)
    return {"name": "check", "clientConfig": {"url": url, "caBundle": base64.b64encode(bundle.encode()).decode()}}


def trusted(webhooks: list[Any]) -> list[str]:
    """Return the names of the CAs that a webhook trusts."""
    [found] = webhooks
    lines = base64.b64decode(found["clientConfig"]["caBundle"]).decode().splitlines()
    return [line for line in lines if "-----" not in line]


async def test_the_ca_of_another_replica_stays_beside_the_own_one() -> None:
    trust = Trust()
    assert trusted(trust.join([hook("own")], [hook("other")], writes=True)) == ["other", "own"]
    both = [hook("own", "other")]
    assert trust.join([hook("own")], both) == both  # in whatever order they are stored


async def test_a_configuration_that_trusts_nobody_else_is_as_it_is_wanted() -> None:
    wanted, trust = [hook("own")], Trust()
    for stored in (None, [], [hook("own")], [hook()]):
        assert trust.join(wanted, stored) == wanted
    assert trust.find_expiry() is None


async def test_others_are_trusted_for_ten_minutes(autojump_clock: object) -> None:
    trust, both = Trust(), [hook("other", "own")]
    assert trust.join([hook("own")], both) == both
    await trio.sleep(599)
    assert trust.find_expiry() == trio.current_time() + 1
    assert trust.join([hook("own")], both) == both
    await trio.sleep(1)
    assert trust.join([hook("own")], both) == [hook("own")]


async def test_a_replica_that_is_needed_still_is_trusted_again(autojump_clock: object) -> None:
    trust, both = Trust(), [hook("other", "own")]
    trust.join([hook("own")], both)
    await trio.sleep(600)
    trust.join([hook("own")], [hook("own")])  # it was dropped
    assert trust.join([hook("own")], both) == both


async def test_webhooks_at_other_addresses_do_not_count() -> None:
    wanted, trust = [hook("own")], Trust()
    assert trust.join(wanted, [hook("other", url="https://elsewhere.test")], writes=True) == wanted


async def test_a_ca_that_the_server_has_replaced_is_dropped_unless_others_add_it_again() -> None:
    trust = Trust()
    trust.join([hook("old")], [], writes=True)
    assert trusted(trust.join([hook("new")], [hook("old")], writes=True)) == ["new"]
    assert trusted(trust.join([hook("new")], [hook("new", "old")])) == ["new", "old"]


async def test_as_many_others_are_trusted_as_can_be_replicas() -> None:
    others = [f"other{number}" for number in range(20)]
    assert trusted(Trust().join([hook("own")], [hook(*others)])) == [*others[:8], "own"]


async def test_cas_that_were_there_before_are_no_successors() -> None:
    trust = Trust()
    trust.join([hook("own")], [hook("before")], writes=True)
    assert not trust.has_successors
    trust.join([hook("own")], [hook("before", "own", "after")])
    assert trust.has_successors


@pytest.mark.parametrize("bundle", ["%%%", None, 5, "AAAA", "ü"])
async def test_a_bundle_that_is_none_does_not_count(bundle: Any) -> None:
    wanted = [hook("own")]
    configs: list[Any] = [{"url": URL, "caBundle": bundle}, {}, None, []]
    for config in configs:
        assert Trust().join(wanted, [{"name": "check", "clientConfig": config}]) == wanted


async def test_a_server_without_a_ca_of_its_own_adds_none() -> None:
    wanted = [{"name": "check", "clientConfig": {"url": URL}}]
    assert Trust().join(wanted, [hook("other")]) == wanted


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([hook("new")], True),
        ([hook("evil")], False),
        ([hook()], False),
        ([], False),
        ([hook("new") | {"failurePolicy": "Ignore"}], False),
        ([hook("new", url="https://evil.test")], False),
    ],
)
def test_another_replica_may_drop_an_own_ca_earlier_but_may_change_nothing_else(
    stored: list[Any], *, expected: bool
) -> None:
    own = [hook("old", "new")]
    assert trusts_part(own, own, stored) is expected
