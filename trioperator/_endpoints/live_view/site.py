"""The web application of the live view, on Quart-Trio: routes, sessions and headers."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
import trio
from quart import Request, Response, abort, redirect, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as WerkzeugResponse

from trioperator._endpoints.live_view.access import SESSION_SECONDS, Access, is_same_origin
from trioperator._endpoints.live_view.pages import PAGES, Links, describe_page
from trioperator._endpoints.live_view.rendering import ASSETS, Renderer
from trioperator._endpoints.live_view.shown import ShownOperator
from trioperator._endpoints.live_view.streaming import Stream, Streams
from trioperator._logs import get_logger
from trioperator._telemetry.snapshot import take_snapshot
from trioperator._telemetry.why import build_json, find_history

_NAME: Final = "trioperator.endpoints.live_view"
# Bytes of a body, and seconds for receiving it: forms have a token or a uid.
_MAX_BODY: Final = 8192
_BODY_TIMEOUT: Final = 10.0
# Seconds between two messages about rejected logins: others on the machine can try as often as they like.
_QUIET: Final = 60.0
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer, forms would have no origin
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# Actions on an object: the method of the parts, and the message of the page afterwards.
_ACTIONS: Final = {"requeue": "The object is requeued.", "cancel": "Its handlers are cancelled, and called again."}
_OPEN: Final = frozenset({"login", "asset"})


class Site:
    """The application. *find_shown* returns the operator to show; None before it runs."""

    def __init__(self, access: Access, find_shown: Callable[[], ShownOperator | None]) -> None:
        self._access = access
        self._find_shown = find_shown
        self._renderer = Renderer()
        self._streams = Streams()
        self._warns_from = -math.inf
        self._app = app = QuartTrio(_NAME, static_folder=None, template_folder=None)
        app.logger = logging.getLogger(_NAME)  # without Quart's own handler
        app.debug = False  # whatever the environment says: no tracebacks for browsers
        app.config.update(MAX_CONTENT_LENGTH=_MAX_BODY, BODY_TIMEOUT=_BODY_TIMEOUT, PROPAGATE_EXCEPTIONS=False)
        app.url_map.strict_slashes = False
        app.url_map.merge_slashes = False
        self._add_routes(app)

    def _add_routes(self, app: QuartTrio) -> None:
        app.before_request(self._guard)
        app.after_request(self._add_headers)
        app.register_error_handler(HTTPException, self._show_problem)
        for name in PAGES:
            app.add_url_rule(f"/{name}", f"page:{name}", functools.partial(self._show_page, name))
        for name in _ACTIONS:
            app.add_url_rule(f"/{name}", name, functools.partial(self._act, name), methods=["POST"])
        app.add_url_rule("/snapshot", "snapshot", self._show_snapshot)
        app.add_url_rule("/why", "why", self._show_history)
        app.add_url_rule("/login", "login", self._log_in, methods=["GET", "POST"])
        app.add_url_rule("/logout", "logout", self._log_out, methods=["POST"])
        app.add_url_rule("/assets/<name>", "asset", self._send_asset)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request."""
        await self._app(scope, receive, send)

    # Access.

    async def _guard(self) -> WerkzeugResponse | None:
        """Let through what is allowed. Without a session, pages lead to the login, and all else is HTTP 401."""
        is_action = request.method not in ("GET", "HEAD")
        if self._access.has_bearer(request.headers.get("Authorization", "")):
            return None
        if is_action and not _comes_from_here(request) and self._access.has_session(self._cookie):
            abort(403, "This was not sent by a page of the live view.")
        if request.endpoint in _OPEN or self._access.has_session(self._cookie):
            return None
        if not self._access.has_token:
            if is_action:
                abort(403, "Actions are off: the operator has no token for them.")
            return None
        if is_action or not _wants_html(request):
            abort(401, "The token is missing or wrong.")
        links = Links(request.root_path)
        return redirect(links("login", next=_local_target(request)), 303)

    async def _log_in(self) -> Response | WerkzeugResponse:
        target = request.args.get("next", "")
        if request.method != "POST":
            return self._render("login.html", 200, next=target, failed=False)
        if not _comes_from_here(request):
            abort(403, "This was not sent by a page of the live view.")
        cookie = self._access.log_in((await request.form).get("token", ""))
        if cookie is None:
            self._report_wrong_token()
            return self._render("login.html", 401, next=target, failed=True)
        page, _, query = target.partition("?")
        known = dict(parse_qsl(query)) if page in PAGES else {}
        response = redirect(Links(request.root_path)(page if page in PAGES else "", **known), 303)
        response.set_cookie(self._cookie_name, cookie, max_age=SESSION_SECONDS, **_cookie_options(request))
        return response

    def _report_wrong_token(self) -> None:
        if trio.current_time() >= self._warns_from:
            self._warns_from = trio.current_time() + _QUIET
            get_logger(_NAME).warning("A login to the live view was rejected: the token is wrong.")

    async def _log_out(self) -> WerkzeugResponse:
        self._access.log_out(self._cookie)
        response = redirect(Links(request.root_path)("login"), 303)
        response.delete_cookie(self._cookie_name, **_cookie_options(request))
        return response

    @property
    def _cookie_name(self) -> str:
        """The name of the cookie: browsers send cookies to all ports of a host, where other operators may be."""
        return f"trioperator-{request.host.rpartition(':')[2] if ':' in request.host else 'live-view'}"

    @property
    def _cookie(self) -> str | None:
        return request.cookies.get(self._cookie_name)

    async def _add_headers(self, response: Response) -> Response:
        response.headers.update(_HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.add("Vary", "Accept, Authorization, Cookie")
        return response

    # Pages.

    async def _show_page(self, name: str) -> Response:
        shown = self._require_shown()
        query = request.args.to_dict()
        root = request.root_path
        if request.method == "GET" and request.accept_mimetypes.best == "text/event-stream":
            return self._open_stream(name, shown, query, root)
        html = self._render_page(name, shown, query, root, live_only=False)
        if html is None:
            abort(404, "Nothing is known of this object: it is not in the cache, and has had no errors.")
        return Response(html)

    def _render_page(
        self, name: str, shown: ShownOperator, query: dict[str, str], root: str, *, live_only: bool
    ) -> str | None:
        values = describe_page(name, shown, query)
        if values is None:
            return None
        return self._renderer.render(
            f"{name or 'overview'}.html",
            root=root,
            live_only=live_only,
            page=name,
            query={key: value for key, value in query.items() if key != "done"},
            done=_ACTIONS.get(query.get("done", ""), ""),
            has_token=self._access.has_token,
            messages=self._access.has_token,
            **values,
        )

    def _open_stream(self, name: str, shown: ShownOperator, query: dict[str, str], root: str) -> Response:
        if self._streams.are_too_many:
            abort(503, "There are too many live pages: close others.")
        gone = self._renderer.render("gone.html", root=root, live_only=True, page=name)

        def render() -> str:
            return self._render_page(name, shown, query, root, live_only=True) or gone

        cookie = self._cookie
        allowed = functools.partial(self._access.has_session, cookie) if self._access.has_session(cookie) else _always
        response = Response(Stream(self._streams, shown, render, allowed), content_type="text/event-stream")
        response.timeout = None
        response.headers["X-Accel-Buffering"] = "no"  # else proxies may collect events
        return response

    async def _show_snapshot(self) -> Response:
        shown = self._require_shown()
        data = take_snapshot(shown.parts, shown.root, messages=self._access.has_token)
        data["actions"] = self._access.has_token
        return Response(msgspec.json.encode(data, enc_hook=str), content_type="application/json")

    async def _show_history(self) -> Response:
        """Show as JSON what has happened to the object whose kind, namespace and name are in the query."""
        query = request.args
        kind, namespace, name = (query.get(key, "") for key in ("kind", "namespace", "name"))
        history = find_history(self._require_shown().parts.ledger, name, kind=kind, namespace=namespace)
        if history is None:
            abort(404, "Nothing has happened to such an object lately, or there is none.")
        return Response(msgspec.json.encode(build_json(history)), content_type="application/json")

    async def _act(self, name: str) -> Response | WerkzeugResponse:
        """Do something with the object whose uid is in the query or in the form."""
        shown = self._require_shown()
        uid = request.args.get("uid") or (await request.form).get("uid", "")
        done = getattr(shown.parts, name)(uid)
        if done is None:
            abort(404, "There is no such object, or nothing to do for it.")
        get_logger(_NAME).info("On request by the live view: %s", done)
        if _wants_html(request):
            return redirect(Links(request.root_path)("object", uid=uid, done=name), 303)
        return Response(f"{done}\n", content_type="text/plain; charset=utf-8")

    async def _send_asset(self, name: str) -> Response:
        if name not in ASSETS:
            abort(404)
        content, content_type = ASSETS[name]
        return Response(content, content_type=content_type, headers={"Cache-Control": "max-age=86400"})

    async def _show_problem(self, problem: HTTPException) -> Response:
        """Show what is wrong with a request: to people as a page, to programs as text."""
        status, text = problem.code or 500, problem.description or ""
        if _wants_html(request):
            response = self._render("problem.html", status, name=problem.name, text=text)
        else:
            response = Response(f"{text}\n", status, content_type="text/plain; charset=utf-8")
        for header, value in problem.get_headers():
            if header in ("Allow", "Retry-After"):
                response.headers[header] = value
        if status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def _render(self, template: str, status: int, **values: Any) -> Response:
        return Response(self._renderer.render(template, root=request.root_path, page=None, **values), status)

    def _require_shown(self) -> ShownOperator:
        shown = self._find_shown()
        if shown is None:
            abort(503, "The operator is not running.")
        return shown


def _always() -> bool:
    return True


def _wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("Accept", "")


def _comes_from_here(request: Request) -> bool:
    headers = request.headers
    return is_same_origin(request.host, origin=headers.get("Origin"), site=headers.get("Sec-Fetch-Site"))


def _local_target(request: Request) -> str:
    """Return the page and the query that were asked for, to come back to after the login."""
    query = request.query_string.decode("latin-1")
    return request.path.strip("/") + (f"?{query}" if query else "")


def _cookie_options(request: Request) -> dict[str, Any]:
    path = f"{request.root_path}/"
    return {"path": path, "httponly": True, "samesite": "Strict", "secure": request.scheme == "https"}
