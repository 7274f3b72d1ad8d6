"""The live view as an ASGI application, to be served by any server on Trio, or mounted in another application."""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

import trio

from trioperator._endpoints.live_view.access import Access
from trioperator._endpoints.live_view.shown import ShownOperator
from trioperator._http.asgi import Message, Receive, Send, accept_lifespan, respond
from trioperator._telemetry.inspector import Inspector
from trioperator.errors import ConfigError

if TYPE_CHECKING:
    from trioperator._endpoints.live_view.site import Site

# Bytes of a path and a query. Longer ones are of no page.
_MAX_TARGET: Final = 4096
_PLAIN: Final = [(b"content-type", b"text/plain; charset=utf-8")]
_PACKAGES: Final = ("quart", "quart_trio", "jinja2", "werkzeug")


def live_view_app(*, token: str | None = None, hosts: Collection[str] = ()) -> LiveViewApp:
    """Return the live view as an ASGI application, for your own server or application on Trio.

    ::

        view = trioperator.live_view_app(token=os.environ["LIVE_VIEW_TOKEN"])
        app = fastapi.FastAPI()
        app.mount("/debug", view)
        ...
        await trioperator.operator(live_view_app=view)

    - *token*: token that people enter, and programs send as a bearer token; default: none, so that whoever reaches the
      server may look, and nobody may act
    - *hosts*: host names by which browsers reach the server, without ports; default: only those of the loopback
      interface. Any others require a token

    It shows one operator at a time: the one that runs with it. Until then, all pages are HTTP 503. Raises ConfigError
    if Quart-Trio is not installed (``pip install 'trioperator[live-view]'``), and for *hosts* without a token.

    See docs/embedding.md.
    """
    if hosts and not token:
        raise ConfigError("live_view_app(hosts=...) needs a token: others can reach these hosts.")
    return LiveViewApp(Access(token, hosts))


class LiveViewApp:
    """ASGI application of the live view: :func:`live_view_app` makes it, and ``operator(live_view_app=)`` takes it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._shown: ShownOperator | None = None
        self._site = self._load_site()

    def _load_site(self) -> Site:
        try:
            from trioperator._endpoints.live_view.site import Site
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in _PACKAGES:
                raise
            raise ConfigError("The live view needs Quart-Trio: pip install 'trioperator[live-view]'.") from None
        return Site(self._access, lambda: self._shown)

    @contextlib.contextmanager
    def showing(self, parts: Inspector, root: trio.lowlevel.Task) -> Iterator[None]:
        """Show an operator within the block. At its end, all streams end. Raises ConfigError if another is shown."""
        if self._shown is not None:
            raise ConfigError("The live view shows another operator: make an app for each operator.")
        self._shown = shown = ShownOperator(parts, root)
        try:
            yield
        finally:
            self._shown = None
            shown.end()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request. Lifespans are accepted, as of a server that has no other application; nothing else is."""
        if scope["type"] == "lifespan":
            await accept_lifespan(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        elif len(scope["path"]) + len(scope.get("query_string", b"")) > _MAX_TARGET:
            await respond(send, 414, b"the URL is too long\n", _PLAIN)
        elif not self._access.serves(_find_host(scope)):
            await respond(send, 403, b"this host is not served\n", _PLAIN)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        root = scope.get("root_path", "").rstrip("/")
        path = scope["path"] if scope["path"].startswith(root) else f"{root}{scope['path']}"  # by the specification
        if path == root:
            location = urllib.parse.quote(f"{root}/", safe="/")
            await respond(send, 307, b"", [*_PLAIN, (b"location", f"/{location.lstrip('/')}".encode())])
        else:
            await self._site({**scope, "path": path, "root_path": root}, receive, send)


def _find_host(scope: Message) -> str:
    """Return the Host header; nothing if there are several, as a proxy may trust another one."""
    hosts = [value for name, value in scope["headers"] if name.lower() == b"host"]
    return hosts[0].decode("latin-1") if len(hosts) == 1 else ""
