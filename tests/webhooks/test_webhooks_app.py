"""Tests for :mod:`trioperator._webhooks.webhooks_app`: reviews through an ASGI application, and what it refuses."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.webhooks.admission import MANAGED, make_review, operating, widget
from trioperator._webhooks.app import MAX_BODY
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError

on = trioperator.on
URL = "https://ops.example.com/webhooks"
REVIEW = msgspec.json.encode(make_review())


async def ask(
    app: Any, path: str = "/check", *, chunks: Any = (REVIEW,), method: str = "POST", root: str = "", wait: float = 0.0
) -> tuple[int, Any]:
    """Send a request in chunks, with a wait before each, and return the status and the JSON of the response."""
    left, sent = list(chunks), list[Any]()

    async def receive() -> Any:
        await trio.sleep(wait)
        if not left:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": f"{root}{path}", "root_path": root, "query_string": b""}
    await app({**scope, "headers": [(b"user-agent", b"x")]}, receive, send)
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(sent[1]["body"])).encode()
    return sent[0]["status"], msgspec.json.decode(sent[1]["body"])


@contextlib.asynccontextmanager
async def served(fn: Any) -> Any:
    """Serve reviews by a function in the block, as an operator does."""
    app = trioperator.webhooks_app({"url": URL})
    async with (
        trio.open_nursery() as nursery,
        contextlib.aclosing(cast("AsyncGenerator[Any, None]", app.serve(fn))) as addresses,
    ):
        assert await anext(addresses) == {"url": URL}
        yield app
        nursery.cancel_scope.cancel()


async def answer(review: Any, **hints: Any) -> Any:
    return {"webhook": hints["webhook"], "headers": hints["headers"], "peer": hints["sslpeer"]}


@pytest.mark.parametrize("root", ["", "/webhooks", "/a/b/"])
async def test_a_review_is_answered_wherever_the_application_is_mounted(root: str) -> None:
    async with served(answer) as app:
        expected = {"webhook": "check", "headers": {"User-Agent": "x"}, "peer": None}
        assert await ask(app, root=root.rstrip("/")) == (200, expected)
        assert (await ask(app, chunks=[REVIEW[:10], REVIEW[10:]]))[0] == 200


async def test_what_is_no_review_is_refused(autojump_clock: MockClock) -> None:
    async with served(answer) as app:
        assert (await ask(app, method="GET"))[0] == 405
        assert (await ask(app, chunks=[b"no json"]))[0] == 400
        assert (await ask(app, chunks=[b"x" * MAX_BODY, b"x"]))[0] == 413
        assert (await ask(app, chunks=[REVIEW[:5]] * 5, wait=3))[0] == 408


async def test_before_and_after_the_operator_reviews_are_unavailable() -> None:
    async with served(answer) as app:
        with pytest.raises(ConfigError, match="another operator"):
            await anext(app.serve(answer))
    assert (await ask(app))[0] == 503


def test_an_address_is_needed() -> None:
    with pytest.raises(ConfigError, match="the url or the service"):
        trioperator.webhooks_app({"caBundle": "x"})


async def test_an_operator_has_its_reviews_answered_and_its_configuration_written(cluster: Cluster) -> None:
    registry = trioperator.OperatorRegistry()

    @on.validate("widgets", id="check", registry=registry)
    async def check(**_: Any) -> None:
        raise trioperator.AdmissionError("no")

    app = trioperator.webhooks_app({"url": URL})
    async with operating(cluster, registry, server=app.serve):
        configuration = await cluster.get("validatingwebhookconfigurations", MANAGED)
        assert configuration["webhooks"][0]["clientConfig"]["url"] == f"{URL}/check"
        status, review = await ask(app, chunks=[msgspec.json.encode(make_review(new=widget()))])
        assert (status, review["response"]["allowed"]) == (200, False)
    assert (await ask(app))[0] == 503
