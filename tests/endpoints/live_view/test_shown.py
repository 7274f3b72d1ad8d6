"""Tests for :mod:`trioperator._endpoints.live_view.shown`."""

from __future__ import annotations

import trio

from trioperator._coordination.pauses import Pauses
from trioperator._endpoints.live_view.shown import ShownOperator
from trioperator._telemetry.inspector import Inspector
from trioperator._telemetry.instruments import Instruments
from trioperator.settings import OperatorSettings


async def test_the_end_wakes_those_who_wait_for_changes() -> None:
    instruments = Instruments([], live=True)
    shown = ShownOperator(Inspector(OperatorSettings(), Pauses(), {}, instruments), trio.lowlevel.current_task())
    with shown.changes.watching() as pulse, trio.fail_after(5):
        shown.end()
        await pulse.wait()
    assert shown.ended.is_set()


async def test_an_operator_without_instruments_has_nothing_to_announce() -> None:
    shown = ShownOperator(Inspector(OperatorSettings(), Pauses(), {}), trio.lowlevel.current_task())
    assert list(shown.failures) == []
