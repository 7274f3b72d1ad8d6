"""Tests for :mod:`trioperator._supervisor.plan`: what an operator is run with unless it is said otherwise."""

from __future__ import annotations

import trioperator
from trioperator._runtime.watching.scope import Scope
from trioperator._supervisor.plan import Plan


def test_a_plan_handles_signals_and_has_neither_flags_nor_probes_by_default() -> None:
    plan = Plan(
        registry=trioperator.OperatorRegistry(),
        settings=trioperator.OperatorSettings(),
        memo=None,
        scope=Scope(),
        identity="me",
    )
    assert plan.handle_signals
    assert not plan.tracing
    assert (plan.live_view_endpoint, plan.live_view_token) == (None, None)
    assert plan.connection is None
    assert (plan.stop_flag, plan.ready_flag, plan.transport) == (None, None, None)
    assert (plan.liveness_endpoint, plan.health_endpoint, plan.metrics_endpoint) == (None, None, None)
