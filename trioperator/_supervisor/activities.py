"""Activities of an operator: startup, login, probes and cleanup."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from trioperator._handling.arguments.cause import ActivityCause
from trioperator._handling.arguments.indexing import Indices
from trioperator._handling.calls.invoke import Invoker
from trioperator._handling.handlers.handler import Activity
from trioperator._kube.connection import load_connection
from trioperator._kube.credential_store import Login, login_in_thread, login_with
from trioperator._logs import get_logger
from trioperator._runtime.activities import run_activity
from trioperator._runtime.authentication import make_login
from trioperator._supervisor.plan import Plan


class Activities:
    """The activities of one operator. *make_invoker* makes what calls handlers; login handlers have no client."""

    def __init__(self, plan: Plan, indices: Indices, make_invoker: Callable[..., Invoker]) -> None:
        self._plan = plan
        self._indices = indices
        self._make_invoker = make_invoker

    async def run(self, activity: Activity, *, deadline: float = math.inf) -> dict[str, Any]:
        """Call the handlers of an activity, and return their results. Raises ActivityError."""
        handlers = self._plan.registry.activities(activity)
        if not handlers:
            return {}
        return await run_activity(handlers, self._make_cause(activity), self._make_invoker(), deadline=deadline)

    def make_login(self) -> Login:
        """Return how the operator logs in: by the given connection, by login handlers, or as kubectl does."""
        connection = self._plan.connection
        if connection is not None:
            return login_with(connection)
        handlers = self._plan.registry.activities(Activity.AUTHENTICATION)
        if handlers:
            return make_login(handlers, self._make_cause(Activity.AUTHENTICATION), self._make_invoker(connected=False))
        return login_in_thread(load_connection)

    def _make_cause(self, activity: Activity) -> ActivityCause:
        return ActivityCause(
            activity=activity,
            settings=self._plan.settings,
            memo=self._plan.memo,
            logger=get_logger(f"trioperator.activities.{activity}"),
            indices=self._indices,
        )
