"""ASGI applications on Hypercorn, as a service in the nursery tree.

A server ends only by cancellation, within seconds, and closes all connections. Hypercorn handles no signals here, and
logs through the process's own handlers: warnings and errors only, unless more is enabled.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

import hypercorn
import hypercorn.trio
import trio

from trioperator.web.endpoint import Endpoint, open_sockets

__all__ = ["AsgiApp", "serve_app"]

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[_Message, _Receive, _Send], Awaitable[None]]

# Seconds. At shutdown all requests in progress are answered at once, so only slow receivers need any time.
_GRACE: Final = 1.0


async def serve_app(
    app: AsgiApp,
    endpoint: Endpoint,
    *,
    task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *app* at *endpoint*; started once it is listening, with the actual port as the value.

    Guarantees: it ends within two seconds of its cancellation; requests in progress are answered with HTTP 500.
    Assumes: responses are small. Hypercorn cannot be cancelled while a client does not read a response that fills the
    socket's send buffer. Raises ConfigError if it cannot listen.
    """
    endpoint, sockets = await open_sockets(endpoint)
    config = _build_config([f"fd://{sock.detach()}" for sock in sockets])
    stopping = trio.Event()
    # A cancelled Hypercorn leaves its connections to the garbage collector; one that is shut down closes them. So it is
    # shut down, and cancelled only if that takes too long.
    limit = trio.CancelScope(shield=True)
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(_run_hypercorn, app, config, stopping, limit, name="hypercorn")
            task_status.started(endpoint)
            await trio.sleep_forever()
        finally:
            stopping.set()
            limit.deadline = trio.current_time() + 2 * _GRACE


async def _run_hypercorn(
    app: AsgiApp,
    config: hypercorn.Config,
    stopping: trio.Event,
    limit: trio.CancelScope,
    *,
    task_status: trio.TaskStatus[Any],
) -> None:
    with limit:
        wrapped: Any = _cancel_requests_when(stopping, app)  # Hypercorn's types of ASGI messages are more precise
        await hypercorn.trio.serve(
            wrapped, config, mode="asgi", shutdown_trigger=stopping.wait, task_status=task_status
        )
    if not stopping.is_set():
        raise RuntimeError("The web server stopped unexpectedly.")


def _build_config(binds: list[str]) -> hypercorn.Config:
    config = hypercorn.Config()
    config.bind = binds
    config.graceful_timeout = _GRACE
    config.startup_timeout = config.shutdown_timeout = _GRACE
    config.include_server_header = False
    # With loggers given, Hypercorn configures none of its own. Access logging costs a copy of the environment for each
    # request, whether the record is emitted or not.
    config.errorlog = logging.getLogger("hypercorn.error")
    access = logging.getLogger("hypercorn.access")
    config.accesslog = access if access.isEnabledFor(logging.INFO) else None
    return config


def _cancel_requests_when(stopping: trio.Event, app: AsgiApp) -> AsgiApp:
    """Wrap an application so that its requests are cancelled when the server is stopping."""

    async def run(scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, stopping, nursery.cancel_scope)
            await app(scope, receive, send)
            nursery.cancel_scope.cancel(reason="the request has been answered")

    return run


async def _cancel_when(stopping: trio.Event, scope: trio.CancelScope) -> None:
    await stopping.wait()
    scope.cancel(reason="the server is stopping")
