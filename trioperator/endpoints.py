"""What an operator serves about itself: health and metrics. Each endpoint is off unless the plan has its URL."""

from __future__ import annotations

import functools

import trio

from trioperator.health import Health
from trioperator.plan import Plan
from trioperator.telemetry.parts import Parts

__all__ = ["Endpoints"]


class Endpoints:
    """The endpoints of one operator that live as long as it does. Their servers are imported only if they are used."""

    def __init__(self, plan: Plan, health: Health, parts: Parts) -> None:
        self._plan = plan
        self._health = health
        self._parts = parts

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Started when all of them are listening. Raises ConfigError if one cannot."""
        async with trio.open_nursery() as nursery:
            if self._plan.health_endpoint is not None:
                await nursery.start(self._serve_health, self._plan.health_endpoint, name="health")
            if self._plan.metrics_endpoint is not None:
                await nursery.start(self._serve_metrics, self._plan.metrics_endpoint, name="metrics")
            task_status.started()

    async def _serve_health(self, url: str, *, task_status: trio.TaskStatus[str]) -> None:
        from trioperator.web.health import serve_health

        process = self._plan.settings.process
        serve = functools.partial(serve_health, url, self._health.report, limit=lambda: process.unresponsive_limit)
        await serve(task_status=task_status)

    async def _serve_metrics(self, url: str, *, task_status: trio.TaskStatus[str]) -> None:
        from trioperator.web.metrics import serve_metrics

        instruments = self._parts.instruments
        assert instruments is not None
        await serve_metrics(url, self._parts, instruments, task_status=task_status)
