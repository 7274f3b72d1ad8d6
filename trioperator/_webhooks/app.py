"""The endpoint of reviews, as an ASGI application. Their time and their bodies are limited."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import trio

from trioperator._concurrency.threads import run_in_thread
from trioperator._handling.reviews.admission import ANSWER_SHARE
from trioperator._handling.reviews.webhook_configuration import CONVERSION_PATH, WebhookFn
from trioperator._http.asgi import LIMIT, SSL_PEER, Message, Receive, Send, TimeLimit, current_limit, respond
from trioperator._logs import get_logger
from trioperator._webhooks.review_decoding import LARGE, TooManyItemsError, decode_review
from trioperator.errors import ReviewError

#: Bytes of a review: as much as an API server accepts in a request.
MAX_BODY: Final = 3 * 1024 * 1024
#: Bytes of a conversion, which may be of many objects.
MAX_CONVERSION: Final = 32 * 1024 * 1024
# Bytes of large bodies that are received and reviewed at a time, and how many of each body do not count: small
# requests are answered whatever large ones occupy.
_BUDGET, _FREE = 64 * 1024 * 1024, 16_384
# Seconds for receiving a request from another server than the operator's own, which limits that itself.
_RECEIVING: Final = 10.0
# Objects and lists in the JSON of a review, and of a conversion.
_MAX_ITEMS, _MAX_CONVERTED_ITEMS = 100_000, 400_000
# Large reviews that are decoded and answered at a time.
_MAX_LARGE: Final = 2
_JSON: Final = ((b"content-type", b"application/json"),)
_TIMEOUT: Final = re.compile(r"(?:^|&)timeout=(\d+(?:\.\d+)?)s(?=&|$)")


class Request(msgspec.Struct, frozen=True):
    """Request with its body; header names are as in ``User-Agent``, and *peer* is the client's certificate.

    With a *limit*, the server ends it when its time is over.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    peer: Mapping[str, Any] | None = None
    limit: TimeLimit | None = None


class _RejectedError(Exception):
    """Raised to answer a request with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Budget:
    """Bytes that large bodies may occupy at a time."""

    def __init__(self, size: int = _BUDGET) -> None:
        self.left = size

    def take(self, size: int) -> None:
        """Take bytes out of the budget, or return them. Raises _RejectedError if they are not left."""
        if size > self.left:
            raise _RejectedError(503, "There are too many large reviews.")
        self.left -= size


class AdmissionApp:
    """ASGI application for reviews by a function of the framework; the ids of webhooks are below *path*.

    Lifespans are not for it. A request that is refused for its head is not read further.
    """

    def __init__(self, fn: WebhookFn, path: str) -> None:
        self._fn = fn
        self._path = f"/{path.strip('/')}".rstrip("/")
        self._handles: Callable[[str | None], bool] = getattr(fn, "handles", lambda webhook: True)
        self._large = trio.CapacityLimiter(_MAX_LARGE)
        self._threads = trio.CapacityLimiter(_MAX_LARGE)  # a review that is given up leaves its thread behind
        self._budget = Budget()
        self._logger = get_logger("trioperator.webhooks")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = _Body(self._budget)
        try:
            status, content = await self.answer(await self._receive(scope, receive, body))
        except _RejectedError as error:
            status, content = self._reject(error)
        finally:
            body.drop()
        await respond(send, status, content, _JSON)

    async def _receive(self, scope: Message, receive: Receive, body: _Body) -> Request:
        """Receive a request. Raises _RejectedError if it cannot be a review."""
        path, extensions = (
            scope["path"].removeprefix(scope.get("root_path", "").rstrip("/")),
            scope.get("extensions", {}),
        )
        headers = {name.decode("latin-1").title(): value.decode("latin-1") for name, value in scope["headers"]}
        size = self.limit_body(path)
        if size is None:
            raise _RejectedError(404, "There are no webhooks at this path.")
        announced = headers.get("Content-Length", "")
        query, limit = scope.get("query_string", b"").decode("latin-1"), None
        if set_limit := extensions.get(LIMIT):
            await body.receive(receive, announced, size)
            limit = TimeLimit(_find_timeout(query))
            set_limit(limit)
        else:
            with trio.move_on_after(_RECEIVING) as timeout:
                await body.receive(receive, announced, size)
            if timeout.cancelled_caught:
                raise _RejectedError(408, "The body is not complete in time.")
        return Request(scope["method"], path, query, headers, bytes(body.content), extensions.get(SSL_PEER), limit)

    def limit_body(self, path: str) -> int | None:
        """Return how large a review at a path may be; None where there is nothing to review."""
        try:
            webhook = self._find_webhook(path)
        except _RejectedError:
            return None
        if not self._handles(webhook):
            return None
        return MAX_CONVERSION if webhook == CONVERSION_PATH else MAX_BODY

    async def answer(self, request: Request) -> tuple[int, bytes]:
        """Return the status and the JSON of the response to a request that was received."""
        limit = request.limit or TimeLimit(_find_timeout(request.query))
        token = current_limit.set(limit)
        try:
            webhook = self._route(request)
            if request.limit is not None:
                return 200, await self._review(request, webhook)
            with trio.move_on_after(limit.seconds):
                return 200, await self._review(request, webhook)
            if (late := limit.make_late()) is not None:
                return 200, late
            raise _RejectedError(504, "The review takes longer than the client waits.")
        except _RejectedError as error:
            return self._reject(error)
        except ReviewError as error:
            return self._reject(_RejectedError(error.status, str(error)))
        except Exception:
            self._logger.exception("A request has failed.")
            return 500, b'{"error":"Internal error."}'
        finally:
            current_limit.reset(token)

    def _reject(self, error: _RejectedError) -> tuple[int, bytes]:
        self._logger.debug("A request was rejected: HTTP %d: %s", error.status, error)
        return error.status, msgspec.json.encode({"error": str(error)})

    def _route(self, request: Request) -> str | None:
        """Return the id of the webhook in the path, if there is one."""
        webhook = self._find_webhook(request.path)
        if request.method != "POST":
            raise _RejectedError(405, "Reviews are sent by POST.")
        return webhook

    def _find_webhook(self, path: str) -> str | None:
        if path != self._path and not path.startswith(f"{self._path}/"):
            raise _RejectedError(404, "There are no webhooks at this path.")
        return path[len(self._path) :].strip("/") or None  # configurations by hand may have too many slashes

    async def _review(self, request: Request, webhook: str | None) -> bytes:
        ask = functools.partial(self._fn, webhook=webhook, headers=request.headers, sslpeer=request.peer)
        decode = functools.partial(_decode, request.body, webhook)
        if len(request.body) < LARGE:
            return msgspec.json.encode(await ask(decode()))
        async with self._large:  # which are decoded in a thread, so that others are answered meanwhile
            return msgspec.json.encode(await ask(await run_in_thread(decode, limiter=self._threads)))


def _decode(body: bytes, webhook: str | None) -> Any:
    try:
        return decode_review(body, max_items=_MAX_CONVERTED_ITEMS if webhook == CONVERSION_PATH else _MAX_ITEMS)
    except TooManyItemsError as error:
        raise _RejectedError(413, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _RejectedError(400, f"The body is not JSON: {error}") from None


class _Body:
    """The body of a request, as a part of a budget."""

    def __init__(self, budget: Budget) -> None:
        self.content = bytearray()
        self._budget = budget
        self._taken = 0

    async def receive(self, receive: Receive, announced: str, limit: int) -> None:
        """Receive it to its end. Raises _RejectedError if it is too large, or not complete."""
        size, more = int(announced[:20]) if announced.isascii() and announced.isdigit() else 0, True
        while more and size <= limit:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _RejectedError(400, "The body is not complete.")
            self.content += message.get("body", b"")
            size, more = len(self.content), message.get("more_body", False)
            if size > _FREE:
                self._budget.take(size - _FREE - self._taken)
                self._taken = size - _FREE
        if size > limit:
            raise _RejectedError(413, "The body is too large.")

    def drop(self) -> None:
        """Make room for others."""
        if self._taken:
            self._budget.take(-self._taken)


@functools.lru_cache(maxsize=16)
def _find_timeout(query: str) -> float:
    """Return the API server's timeout for the review, in seconds, from the query: ``?timeout=10s``."""
    match = _TIMEOUT.search(query)
    return float(match[1]) * ANSWER_SHARE if match else math.inf
