"""Logins by handlers: one activity whose results are the credentials of the operator."""

from __future__ import annotations

from collections.abc import Sequence

from trioperator._handling.arguments.cause import ActivityCause
from trioperator._handling.calls.invoke import Invoker
from trioperator._handling.handlers.handler import ActivityHandler
from trioperator._handling.handlers.outcome import describe
from trioperator._kube.connection_info import ConnectionInfo
from trioperator._kube.credential_store import Login
from trioperator._runtime.activities import run_activity
from trioperator.errors import ActivityError, LoginError


def make_login(handlers: Sequence[ActivityHandler], cause: ActivityCause, invoker: Invoker) -> Login:
    """Return a login that calls all *handlers*, each until it has ended, and returns the credentials of all.

    A handler that fails does not keep others' credentials from use. The login raises LoginError if there are none.
    """
    title = "Initial authentication"

    async def login() -> Sequence[ConnectionInfo]:
        nonlocal title
        cause.logger.info("%s has been initiated.", title)
        found, failures = await _call_all(handlers, cause, invoker)
        if not found:
            reason = f": {'; '.join(failures)}" if failures else "."
            raise LoginError(f"{title} has failed: no credentials were retrieved from the login handlers{reason}")
        cause.logger.info("%s has finished.", title)
        title = "Re-authentication"
        return found

    return login


async def _call_all(
    handlers: Sequence[ActivityHandler], cause: ActivityCause, invoker: Invoker
) -> tuple[list[ConnectionInfo], list[str]]:
    """Return the credentials of all handlers, and what is wrong with those that have failed."""
    found: list[ConnectionInfo] = []
    failures: list[str] = []
    for handler in handlers:
        try:
            results = await run_activity([handler], cause, invoker)
        except ActivityError as error:
            failures += [f"{name}: {describe(failure)}" for name, failure in error.failures.items()]
            continue
        result = results.get(handler.id)
        if isinstance(result, ConnectionInfo):
            found.append(result)
        elif result is not None:
            problem = f"it returned {type(result).__name__}, not a ConnectionInfo or None."
            cause.logger.error("%s failed permanently: %s", handler, problem)
            failures.append(f"{handler.id}: {problem}")
    return found, failures
