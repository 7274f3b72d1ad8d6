"""Tests for :mod:`trioperator.settings.contention`."""

from typing import Any

import pytest

from trioperator.errors import ConfigError
from trioperator.settings import OperatorSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [("enabled", 1), ("flips", 0), ("unchanged_writes", None), ("writes", 0.5), ("interval", 0), ("interval", "60")],
)
def test_what_is_no_limit_is_rejected(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"settings.contention.{name}"):
        setattr(OperatorSettings().contention, name, value)


def test_the_number_of_writes_may_be_unlimited() -> None:
    settings = OperatorSettings()
    settings.contention.writes = None
    assert settings.contention.writes is None
