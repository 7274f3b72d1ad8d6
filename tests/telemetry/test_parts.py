"""Tests for :mod:`trioperator.telemetry.parts`."""

from __future__ import annotations

from trioperator.coordination.pauses import Pauses
from trioperator.settings import OperatorSettings
from trioperator.telemetry.parts import Parts


async def test_an_operator_that_starts_has_no_parts_yet() -> None:
    parts = Parts(OperatorSettings(), Pauses(), {})
    assert (parts.queue, parts.watches, parts.daemons, parts.instruments, parts.ready) == (None,) * 4 + (False,)
    parts.announce()
    assert parts.ready
