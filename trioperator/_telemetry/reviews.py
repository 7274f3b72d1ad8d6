"""Reviews of an operator with metrics: answered as without, and counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import trio

from trioperator._handling.reviews.admission import Headers, SSLPeer
from trioperator._handling.reviews.conversion_review import is_conversion
from trioperator._handling.reviews.webhook_configuration import CONVERSION_PATH, WebhookFn, make_segments
from trioperator._model.jsontypes import JsonObject
from trioperator._telemetry.statistics import OTHERS, Statistics
from trioperator.errors import ReviewError


class CountingReviews:
    """A function for reviews, a :class:`WebhookFn`, that counts and times the calls of another one.

    They are counted by the ids of the *handlers*, conversions together. The most likely codes are there from the start,
    as in controller-runtime.
    """

    def __init__(self, fn: WebhookFn, handlers: Iterable[str], statistics: Statistics, *, converts: bool) -> None:
        self._fn = fn
        if (handles := getattr(fn, "handles", None)) is not None:
            self.handles = handles
        self._statistics = statistics
        self._names: dict[str | None, str] = {None: ""}
        for handler, segment in make_segments(dict.fromkeys(handlers)).items():
            self._names |= {handler: handler, segment: handler}
            statistics.review(handler)
        if converts:
            statistics.review(CONVERSION_PATH)

    async def __call__(
        self,
        request: Mapping[str, Any],
        *,
        webhook: str | None = None,
        headers: Headers | None = None,
        sslpeer: SSLPeer | None = None,
    ) -> JsonObject:
        """See :class:`WebhookFn`."""
        name = CONVERSION_PATH if is_conversion(request) else self._names.get(webhook, OTHERS)
        reviews = self._statistics.review(name)
        began, code = trio.current_time(), "500"
        reviews.in_flight += 1
        try:
            response = await self._fn(request, webhook=webhook, headers=headers, sslpeer=sslpeer)
            code = "200"
            return response
        except ReviewError as error:
            code = str(error.status)
            raise
        except trio.Cancelled:
            code = "504"
            raise
        finally:
            reviews.in_flight -= 1
            reviews.codes[code] += 1
            reviews.seconds.observe(trio.current_time() - began)
