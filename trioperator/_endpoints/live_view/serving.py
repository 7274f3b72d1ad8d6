"""The server of the live view: on the loopback interface only, for people on the same machine."""

from __future__ import annotations

import functools
import math
from typing import Any, Final

import trio

from trioperator._endpoints.live_view.access import is_loopback
from trioperator._endpoints.live_view.app import LiveViewApp
from trioperator._http.endpoint import Endpoint, parse_endpoint
from trioperator._http.server import serve_app
from trioperator._http.server_connection import Limits
from trioperator._logs import get_logger
from trioperator.errors import ConfigError

# A stream says nothing while nothing happens.
_LIMITS: Final = Limits(answering=math.inf)


def parse_loopback(url: str) -> Endpoint:
    """Parse an endpoint that is on the loopback interface. Raises ConfigError for any other."""
    endpoint = parse_endpoint(url)
    if not is_loopback(endpoint.host):
        raise ConfigError(
            f"The live view is served on the loopback interface only, such as http://127.0.0.1:8083, not at {endpoint}."
            " In a cluster, use kubectl port-forward."
        )
    return endpoint


async def serve_live_view(
    endpoint: str, app: LiveViewApp, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve the live view at ``/debug`` below *endpoint*, until cancelled.

    Started once it is listening, with the URL of the overview as the value. Raises ConfigError if it cannot listen.
    """
    parsed = parse_loopback(endpoint)
    root = f"{parsed.find_base('/debug')}/debug"
    mounted = functools.partial(_mount, app, root)
    async with trio.open_nursery() as nursery:
        serve = functools.partial(serve_app, limits=_LIMITS)
        listening: Endpoint = await nursery.start(serve, mounted, parsed, name="live view server")
        url = f"{str(listening).removesuffix(listening.path)}{root}"
        get_logger("trioperator.endpoints.live_view.serving").info("Serving the live view at %s", url)
        task_status.started(url)


async def _mount(app: LiveViewApp, root: str, scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Serve the application below *root*. Paths above lead to it, and all others are not found."""
    path = scope["path"]
    if not path.startswith(f"{root}/"):
        above = path == root or root.startswith(path.rstrip("/") + "/")
        path = root if above else f"{root}/not-found"
    await app({**scope, "path": path, "root_path": root}, receive, send)
