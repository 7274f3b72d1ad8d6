"""The endpoint of reviews: what is asked for, and the responses. Their time is limited."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
import trio

from trioperator._concurrency.threads import run_in_thread
from trioperator._handling.reviews.webhook_configuration import CONVERSION_PATH, WebhookFn
from trioperator._http.server_connection import Request, Response
from trioperator._logs import get_logger
from trioperator._webhooks.review_decoding import LARGE, TooManyItemsError, decode_review
from trioperator.errors import ReviewError

__all__ = ["MAX_BODY", "MAX_CONVERSION", "AdmissionApp"]

#: Bytes of a review: as much as an API server accepts in a request.
MAX_BODY: Final = 3 * 1024 * 1024
#: Bytes of a conversion, which may be that of many objects.
MAX_CONVERSION: Final = 32 * 1024 * 1024
# Objects and lists in the JSON of a review, and of a conversion.
_MAX_ITEMS, _MAX_CONVERTED_ITEMS = 100_000, 400_000
# Large reviews that are decoded and answered at a time.
_MAX_LARGE: Final = 2
# Share of the time of a review after which it is answered: before the API server gives up.
_ANSWER_SHARE: Final = 0.98
_TIMEOUT: Final = re.compile(r"(\d+(?:\.\d+)?)s")


class _RejectedError(Exception):
    """Raised to answer a request with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class AdmissionApp:
    """Answers to reviews by a function of the framework; the ids of webhooks are below *path*."""

    def __init__(self, fn: WebhookFn, path: str) -> None:
        self._fn = fn
        self._path = f"/{path.strip('/')}".rstrip("/")
        self._handles: Callable[[str | None], bool] = getattr(fn, "handles", lambda webhook: True)
        self._large = trio.CapacityLimiter(_MAX_LARGE)
        self._threads = trio.CapacityLimiter(_MAX_LARGE)  # a review that is given up leaves its thread behind
        self._logger = get_logger("trioperator.webhooks")

    def limit_body(self, path: str) -> int | None:
        """Return how large a review at a path may be; None where there is nothing to review."""
        try:
            webhook = self._find_webhook(path)
        except _RejectedError:
            return None
        if not self._handles(webhook):
            return None
        return MAX_CONVERSION if webhook == CONVERSION_PATH else MAX_BODY

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        try:
            webhook = self._route(request)
            async with self._large if len(request.body) >= LARGE else contextlib.nullcontext():
                return Response(200, await self._review(request, webhook))
        except _RejectedError as error:
            self._logger.debug("A request was rejected: HTTP %d: %s", error.status, error)
            return Response(error.status, msgspec.json.encode({"error": str(error)}))
        except Exception:
            self._logger.exception("A request has failed.")
            return Response(500, b'{"error":"Internal error."}')

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
        with trio.move_on_after(_find_timeout(request.query)):
            review = await self._decode(request.body, webhook)
            try:
                answer = await self._fn(review, webhook=webhook, headers=request.headers, sslpeer=request.peer)
                return msgspec.json.encode(answer)
            except ReviewError as error:
                raise _RejectedError(error.status, str(error)) from None
        raise _RejectedError(504, "The review takes longer than the client waits.")

    async def _decode(self, body: bytes, webhook: str | None) -> Any:
        """Decode the body of a review: a large one in a thread, so that others are answered meanwhile."""
        max_items = _MAX_CONVERTED_ITEMS if webhook == CONVERSION_PATH else _MAX_ITEMS
        decode = functools.partial(decode_review, body, max_items=max_items)
        try:
            return decode() if len(body) < LARGE else await run_in_thread(decode, limiter=self._threads)
        except TooManyItemsError as error:
            raise _RejectedError(413, str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _RejectedError(400, f"The body is not JSON: {error}") from None


@functools.lru_cache(maxsize=64)
def _find_timeout(query: str) -> float:
    """Return for how many seconds a review is worth its while, as API servers say in the query: ``?timeout=10s``."""
    match = _TIMEOUT.fullmatch(parse_qs(query).get("timeout", [""])[0])
    return float(match[1]) * _ANSWER_SHARE if match else math.inf
