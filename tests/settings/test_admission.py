"""Tests for :mod:`trioperator.settings.admission`."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.errors import ConfigError
from trioperator.settings.admission import AdmissionSettings


@pytest.mark.parametrize(("name", "value"), [("server", 5), ("managed", ""), ("managed_conversions", "yes")])
def test_what_cannot_work_is_rejected(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"settings.admission.{name} is "):
        setattr(AdmissionSettings(), name, value)
