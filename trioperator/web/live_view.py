"""The live view of an operator: a page, its data as JSON, and two actions. For people on the same machine.

It listens on the loopback interface only, and answers only requests that name it: other websites in the same browser
cannot read it. With a token, everything but the page itself needs it; without one, there are no actions.
"""

from __future__ import annotations

import dataclasses
import functools
import hmac
import importlib.resources
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from trioperator.errors import ConfigError
from trioperator.logs import get_logger
from trioperator.telemetry.parts import Parts
from trioperator.telemetry.snapshot import take_snapshot
from trioperator.web.endpoint import Endpoint, parse_endpoint
from trioperator.web.plain_app import Answer, PlainApp, Request
from trioperator.web.server import serve_app

__all__ = ["parse_loopback", "serve_live_view"]

_JSON: Final = "application/json"
_PAGE_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
)
_UNAUTHORIZED: Final = Answer(b"the token is missing or wrong\n", 401, headers=((b"www-authenticate", b"Bearer"),))


def parse_loopback(url: str) -> Endpoint:
    """Parse an endpoint that is on the loopback interface. Raises ConfigError for any other."""
    endpoint = parse_endpoint(url)
    if not _is_loopback(endpoint.host):
        raise ConfigError(
            f"The live view is served on the loopback interface only, such as http://127.0.0.1:8083, not at {endpoint}."
            " In a cluster, use kubectl port-forward."
        )
    return endpoint


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def serve_live_view(
    endpoint: str,
    parts: Parts,
    *,
    token: str | None,
    root: trio.lowlevel.Task,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the live view of the tasks below *root* at ``/debug`` below *endpoint*, until cancelled.

    Started once it is listening, with the URL of the page as the value. Raises ConfigError if it cannot listen.
    """
    parsed = parse_loopback(endpoint)
    parsed = dataclasses.replace(parsed, path=f"{parsed.find_base('/debug')}/debug")
    base = parsed.path
    view = _LiveView(parts, root, token)
    routes: dict[str, Callable[[Request], Awaitable[Answer]]] = {
        parsed.find_base("/debug") or "/": functools.partial(_redirect, base),
        base: view.show_page,
        f"{base}/tasks": view.show_tasks,
        f"{base}/requeue": functools.partial(view.act, parts.requeue),
        f"{base}/cancel": functools.partial(view.act, parts.cancel),
    }
    app = PlainApp(
        {path: functools.partial(_check_host, handle) for path, handle in routes.items()},
        methods={f"{base}/requeue": "POST", f"{base}/cancel": "POST"},
    )
    async with trio.open_nursery() as nursery:
        url = str(await nursery.start(serve_app, app, parsed, name="live view server"))
        get_logger(__name__).info("Serving the live view at %s", url)
        task_status.started(url)


async def _check_host(handle: Callable[[Request], Awaitable[Answer]], request: Request) -> Answer:
    """Answer requests for this host only: a website whose name leads here must not read what is served."""
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if not _is_loopback(name):
        return Answer(b"this host is not served\n", 403)
    return await handle(request)


async def _redirect(base: str, request: Request) -> Answer:
    return Answer(b"", 302, headers=((b"location", base.encode()),))


class _LiveView:
    """Answers of the live view."""

    def __init__(self, parts: Parts, root: trio.lowlevel.Task, token: str | None) -> None:
        self._parts = parts
        self._root = root
        self._token = token
        self._logger = get_logger(__name__)
        self._page = importlib.resources.files(__package__).joinpath("live_view.html").read_bytes()

    async def show_page(self, request: Request) -> Answer:
        return Answer(self._page, type="text/html; charset=utf-8", headers=_PAGE_HEADERS)

    async def show_tasks(self, request: Request) -> Answer:
        if self._token is not None and not self._has_token(request):
            return _UNAUTHORIZED
        snapshot = take_snapshot(self._parts, self._root)
        return Answer(msgspec.json.encode(snapshot | {"actions": self._token is not None}, enc_hook=str), type=_JSON)

    async def act(self, action: Callable[[str], str | None], request: Request) -> Answer:
        """Do something with the object whose uid is in the query, if the request has the token."""
        if self._token is None:
            return Answer(b"actions are off: the operator has no token for them\n", 403)
        if not self._has_token(request):
            return _UNAUTHORIZED
        done = action(request.query.get("uid", ""))
        if done is None:
            return Answer(b"there is no such object, or nothing to do for it\n", 404)
        self._logger.info("On request by the live view: %s", done)
        return Answer(f"{done}\n".encode(errors="replace"))

    def _has_token(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), (self._token or "").encode())
