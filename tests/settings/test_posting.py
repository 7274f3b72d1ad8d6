"""Tests for :mod:`trioperator.settings.posting`."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.errors import ConfigError
from trioperator.settings.posting import PostingSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reporting_component", "no spaces"),
        ("reporting_component", ""),
        ("reporting_instance", ""),
        ("event_name_prefix", "Upper-"),
        ("event_name_prefix", "-begin"),
        ("event_name_prefix", "two..dots"),
        ("event_name_prefix", ""),
        ("default_backoffs", -1),
        ("logging_backoffs", "soon"),
    ],
)
def test_what_the_api_server_would_reject_is_rejected(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"settings.posting.{name} is "):
        setattr(PostingSettings(), name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reporting_component", "example.com/My_operator"),
        ("event_name_prefix", "kopf-event-"),
        ("event_name_prefix", "a.b"),
        ("event_name_prefix", "x."),
    ],
)
def test_names_of_kubernetes_are_accepted(name: str, value: str) -> None:
    settings = PostingSettings()
    setattr(settings, name, value)
    assert getattr(settings, name) == value


def test_a_single_delay_is_accepted() -> None:
    settings = PostingSettings()
    setattr(settings, "logging_backoffs", 5)  # noqa: B010 -- accepted as Kopf does, but not by its type
    assert settings.logging_backoffs == (5,)
