"""Tests for :mod:`trioperator.settings.coordination`: times of a lease that fit each other."""

from __future__ import annotations

import pytest

from trioperator.errors import ConfigError
from trioperator.settings import LeadershipSettings, OperatorSettings


def test_the_defaults_are_those_of_client_go() -> None:
    settings = LeadershipSettings()
    settings.check()
    assert (settings.lease_duration, settings.renew_deadline, settings.retry_period) == (15, 10, 2)
    assert not settings.enabled


@pytest.mark.parametrize(("name", "value"), [("lease_duration", 10), ("renew_deadline", 2), ("retry_period", 10)])
def test_times_that_contradict_each_other_are_named(name: str, value: float) -> None:
    settings = LeadershipSettings()
    setattr(settings, name, value)
    with pytest.raises(ConfigError, match=r"settings\.leadership: lease_duration must be longer than renew_deadline"):
        settings.check()


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("leadership", "name", ""),
        ("leadership", "name", "My Operator"),  # the API server would refuse the Lease, again and again
        ("leadership", "name", "a/b"),
        ("leadership", "name", "x" * 254),
        ("leadership", "namespace", "a.b"),
        ("leadership", "namespace", ""),
        ("leadership", "lease_duration", 0),
        ("leadership", "enabled", "yes"),
        ("leadership", "shards", 0),
        ("peering", "name", "a/b"),  # the operator would pause until an object of this name exists
        ("peering", "lifetime", -1),
        ("peering", "priority", "high"),
        ("peering", "tie_break", 1),
    ],
)
def test_invalid_values_are_refused(section: str, name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"settings\.{section}\.{name}"):
        setattr(getattr(OperatorSettings(), section), name, value)
