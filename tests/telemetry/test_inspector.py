"""Tests for :mod:`trioperator._telemetry.inspector`."""

from __future__ import annotations

from trioperator._coordination.pauses import Pauses
from trioperator._telemetry.inspector import Inspector
from trioperator.settings import OperatorSettings


async def test_an_operator_that_starts_has_no_parts_yet() -> None:
    parts = Inspector(OperatorSettings(), Pauses(), {})
    assert (list(parts.shards.items()), parts.watches, parts.instruments, parts.ready) == ([], None, None, False)
    parts.announce()
    assert parts.ready
