"""Tests for :mod:`trioperator.settings.crds`."""

from __future__ import annotations

from typing import Any

import pytest

import trioperator
from trioperator.errors import ConfigError


@pytest.mark.parametrize(("name", "value"), [("migrate", "yes"), ("migration_rate", 0), ("migration_rate", 0.5)])
def test_invalid_settings_of_crds_are_rejected(name: str, value: Any) -> None:
    settings = trioperator.OperatorSettings()
    with pytest.raises(ConfigError, match=f"settings.crds.{name} is .*, but it must be"):
        setattr(settings.crds, name, value)
