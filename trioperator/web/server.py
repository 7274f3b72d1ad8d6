"""Serving an ASGI application on Hypercorn, as one service of a nursery tree.

It ends by cancellation only, within seconds, and leaves no connection open. Hypercorn handles no signals here, and its
logs are the process' own: from WARNING on, unless they are asked for.
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

# Seconds: what is under way when it is to stop is answered at once, so that only slow receivers need any time.
_GRACE: Final = 1.0


async def serve_app(
    app: AsgiApp,
    endpoint: Endpoint,
    *,
    task_status: trio.TaskStatus[Endpoint] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *app* at *endpoint*; it has started when it listens, and tells the port that it has got.

    Guarantees: cancelled, it is gone within two seconds; a request that is under way then gets an HTTP 500.
    Assumes: responses are small. Hypercorn does not let itself be cancelled while a client does not read what fills the
    buffers of its socket. Raises ConfigError where it cannot listen.
    """
    endpoint, sockets = await open_sockets(endpoint)
    config = _make_config([f"fd://{sock.detach()}" for sock in sockets])
    stopping = trio.Event()
    # Cancelled, Hypercorn leaves its connections to the garbage collector; told to stop, it closes them. So it is told,
    # and cancelled only if it takes too long.
    limit = trio.CancelScope(shield=True)

    async def run(*, task_status: trio.TaskStatus[Any]) -> None:
        with limit:
            until: Any = _until(stopping, app)  # Hypercorn knows the messages of ASGI in more detail
            await hypercorn.trio.serve(
                until, config, mode="asgi", shutdown_trigger=stopping.wait, task_status=task_status
            )
        if not stopping.is_set():
            raise RuntimeError(f"The web server at {endpoint} has ended by itself.")

    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(run, name="hypercorn")
            task_status.started(endpoint)
            await trio.sleep_forever()
        finally:
            stopping.set()
            limit.deadline = trio.current_time() + 2 * _GRACE


def _make_config(binds: list[str]) -> hypercorn.Config:
    config = hypercorn.Config()
    config.bind = binds
    config.graceful_timeout = _GRACE
    config.startup_timeout = config.shutdown_timeout = _GRACE
    config.include_server_header = False
    # Loggers of these names, so that Hypercorn sets none up by itself. An access log costs a copy of the environment
    # for each request, whether it is printed or not.
    config.errorlog = logging.getLogger("hypercorn.error")
    access = logging.getLogger("hypercorn.access")
    config.accesslog = access if access.isEnabledFor(logging.INFO) else None
    return config


def _until(stopping: trio.Event, app: AsgiApp) -> AsgiApp:
    """Have the application give up its requests when the server is to stop."""

    async def run(scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            await app(scope, receive, send)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when, stopping, nursery.cancel_scope)
            await app(scope, receive, send)
            nursery.cancel_scope.cancel(reason="the request is answered")

    return run


async def _cancel_when(stopping: trio.Event, scope: trio.CancelScope) -> None:
    await stopping.wait()
    scope.cancel(reason="the server is stopping")
