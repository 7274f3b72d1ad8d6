"""The endpoints of an operator: health, metrics, the live view. An endpoint is off unless it has a URL."""

from __future__ import annotations

import functools

import trio

from trioperator._supervisor.health import Health
from trioperator._supervisor.plan import Plan
from trioperator._telemetry.inspector import Inspector


class Endpoints:
    """The endpoints of one operator that live as long as it does. Their servers are imported only if they are used.

    The live view shows the tree of tasks below *root*.
    """

    def __init__(self, plan: Plan, health: Health, parts: Inspector, *, root: trio.lowlevel.Task) -> None:
        self._plan = plan
        self._health = health
        self._parts = parts
        self._root = root

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Started when all of them are listening. Raises ConfigError if one cannot."""
        async with trio.open_nursery() as nursery:
            if self._plan.health_endpoint is not None:
                await nursery.start(self._serve_health, self._plan.health_endpoint, name="health")
            if self._plan.metrics_endpoint is not None:
                await nursery.start(self._serve_metrics, self._plan.metrics_endpoint, name="metrics")
            if self._plan.live_view_endpoint is not None or self._plan.live_view_app is not None:
                await nursery.start(self._show_live, name="live view")
            task_status.started()

    async def _serve_health(self, url: str, *, task_status: trio.TaskStatus[str]) -> None:
        from trioperator._endpoints.health import serve_health

        process = self._plan.settings.process
        serve = functools.partial(serve_health, url, self._health.report, limit=lambda: process.unresponsive_limit)
        await serve(task_status=task_status)

    async def _serve_metrics(self, url: str, *, task_status: trio.TaskStatus[str]) -> None:
        from trioperator._endpoints.metrics import serve_metrics

        instruments = self._parts.instruments
        assert instruments is not None
        await serve_metrics(url, self._parts, instruments, task_status=task_status)

    async def _show_live(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Show the operator in an application of the caller's, or in one that is served here."""
        from trioperator._endpoints.live_view.app import live_view_app

        app = self._plan.live_view_app or live_view_app(token=self._plan.live_view_token)
        with app.showing(self._parts, self._root):
            async with trio.open_nursery() as nursery:
                if self._plan.live_view_endpoint is not None:
                    from trioperator._endpoints.live_view.serving import serve_live_view

                    await nursery.start(serve_live_view, self._plan.live_view_endpoint, app, name="live view server")
                task_status.started()
                await trio.sleep_forever()
