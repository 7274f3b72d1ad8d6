"""The endpoint of reviews: an ASGI application. Bodies, their size and their time are limited."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
import trio

from trioperator.errors import ReviewError
from trioperator.handling.webhook_configuration import CONVERSION_PATH, WebhookFn
from trioperator.logs import get_logger

__all__ = ["MAX_BODY", "MAX_CONVERSION", "AdmissionApp"]

#: Bytes of a review: as much as an API server accepts in a request.
MAX_BODY: Final = 3 * 1024 * 1024
#: Bytes of a conversion, which may be that of many objects.
MAX_CONVERSION: Final = 32 * 1024 * 1024
# Seconds for receiving a review.
_BODY_TIMEOUT: Final = 10.0
# Share of the time of a review after which it is answered: before the API server gives up.
_ANSWER_SHARE: Final = 0.98
_TIMEOUT: Final = re.compile(r"(\d+(?:\.\d+)?)s")

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class _RejectedError(Exception):
    """Raised to answer a request with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class AdmissionApp:
    """ASGI application that answers reviews by a function of the framework; the ids of webhooks are below *path*."""

    def __init__(self, fn: WebhookFn, path: str) -> None:
        self._fn = fn
        self._path = f"/{path.strip('/')}".rstrip("/")
        self._logger = get_logger("trioperator.web.admission")

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        try:
            webhook = self._route(scope)
            limit = MAX_CONVERSION if webhook == CONVERSION_PATH else MAX_BODY
            body = await _receive_body(receive, limit)
            status, content = 200, await self._review(scope, body, webhook)
        except _RejectedError as error:
            self._logger.debug("A request was rejected: HTTP %d: %s", error.status, error)
            status, content = error.status, msgspec.json.encode({"error": str(error)})
        except Exception:
            self._logger.exception("A request has failed.")
            status, content = 500, b'{"error":"Internal error."}'
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _route(self, scope: _Message) -> str | None:
        """Return the id of the webhook in the path, if there is one."""
        path = scope["path"]
        if path != self._path and not path.startswith(f"{self._path}/"):
            raise _RejectedError(404, "There are no webhooks at this path.")
        if scope["method"] != "POST":
            raise _RejectedError(405, "Reviews are sent by POST.")
        return path[len(self._path) + 1 :] or None

    async def _review(self, scope: _Message, body: bytes, webhook: str | None) -> bytes:
        try:
            review = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _RejectedError(400, f"The body is not JSON: {error}") from None
        headers = _canonical_headers(scope)
        peer = scope.get("extensions", {}).get("trioperator.peer") or None
        with trio.move_on_after(_find_timeout(scope)):
            try:
                return msgspec.json.encode(await self._fn(review, webhook=webhook, headers=headers, sslpeer=peer))
            except ReviewError as error:
                raise _RejectedError(error.status, str(error)) from None
        raise _RejectedError(504, "The review takes longer than the client waits.")


async def _receive_body(receive: _Receive, limit: int) -> bytes:
    """Return the body of a request. The rest of a large one is read and dropped, so that the client sees the answer."""
    parts: list[bytes] = []
    size = 0
    with trio.move_on_after(_BODY_TIMEOUT) as scope:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _RejectedError(400, "The client has disconnected.")
            size += len(message.get("body", b""))
            if size <= limit:
                parts.append(message.get("body", b""))
            if not message.get("more_body"):
                break
    if size > limit:
        raise _RejectedError(413, f"The body is larger than {limit} bytes.")
    if scope.cancelled_caught:
        raise _RejectedError(408, f"The body is not complete after {_BODY_TIMEOUT:g} seconds.")
    return b"".join(parts)


def _canonical_headers(scope: _Message) -> Mapping[str, str]:
    """Return the headers with names such as ``User-Agent``, as Kopf and clients in Go have them."""
    return {name.decode("latin1").title(): value.decode("latin1") for name, value in scope["headers"]}


def _find_timeout(scope: _Message) -> float:
    """Return for how many seconds a review is worth its while, as API servers say in the query: ``?timeout=10s``."""
    query = parse_qs(scope.get("query_string", b"").decode("latin1"))
    match = _TIMEOUT.fullmatch(query.get("timeout", [""])[0])
    return float(match[1]) * _ANSWER_SHARE if match else math.inf
