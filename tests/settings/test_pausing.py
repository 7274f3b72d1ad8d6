"""Tests for :mod:`trioperator.settings.pausing`."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.errors import ConfigError
from trioperator.settings.pausing import PausingSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("annotation", "no annotation"),
        ("annotation", ""),
        ("poke_annotation", f"example.com/{'x' * 64}"),
        ("condition", "Not one"),
        ("holds_deletion", 1),
    ],
)
def test_what_the_api_server_would_reject_is_rejected(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"settings.pausing.{name} is "):
        setattr(PausingSettings(), name, value)


def test_each_of_them_can_be_switched_off() -> None:
    settings = PausingSettings(annotation=None, poke_annotation=None, condition=None)
    assert settings.annotation is settings.poke_annotation is settings.condition is None
