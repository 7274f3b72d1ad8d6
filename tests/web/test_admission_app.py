"""Tests for :mod:`trioperator.web.admission_app`, without a server and in virtual time."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
import trio

from tests.web.admission import make_review
from trioperator.errors import ReviewError
from trioperator.web.admission_app import MAX_BODY, MAX_CONVERSION, AdmissionApp

REVIEW = msgspec.json.encode(make_review())


class Fn:
    """A function of the framework that returns, raises, or takes *seconds*."""

    def __init__(self, error: Exception | None = None, seconds: float = 0) -> None:
        self.error = error
        self.seconds = seconds
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, request: Any, **hints: Any) -> Any:
        self.calls.append({"request": request, **hints})
        await trio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return {"ok": True}


async def ask(
    fn: Fn, *chunks: bytes, path: str = "/hooks/check", method: str = "POST", query: bytes = b"", pause: float = 0.0
) -> tuple[int, Any]:
    """Send a request in chunks; return the status and the content of the response."""
    left = list(chunks or [REVIEW])
    sent: list[Any] = []

    async def receive() -> Any:
        await trio.sleep(pause)
        if not left:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"type": "http", "path": path, "method": method, "query_string": query}
    scope["headers"] = [(b"user-agent", b"x")]
    scope["extensions"] = {"trioperator.peer": {"version": 3}}
    await AdmissionApp(fn, "hooks/")(scope, receive, send)
    start, body = sent
    return start["status"], msgspec.json.decode(body["body"])


async def test_a_review_is_passed_on_with_its_hints() -> None:
    fn = Fn()
    assert await ask(fn, REVIEW[:50], REVIEW[50:]) == (200, {"ok": True})
    hints = {"webhook": "check", "headers": {"User-Agent": "x"}, "sslpeer": {"version": 3}}
    assert fn.calls == [{"request": make_review(), **hints}]


@pytest.mark.parametrize(
    ("path", "webhook"),
    [("/hooks", None), ("/hooks/", None), ("/hooks/a/spec.x", "a/spec.x"), ("/hooks/a b", "a b")],
)
async def test_the_id_of_the_webhook_is_below_the_path(path: str, webhook: str | None) -> None:
    fn = Fn()
    assert (await ask(fn, path=path))[0] == 200
    assert fn.calls[0]["webhook"] == webhook


@pytest.mark.parametrize(
    ("options", "status"),
    [({"path": "/"}, 404), ({"path": "/hooksx"}, 404), ({"method": "GET"}, 405), ({"method": "PUT"}, 405)],
)
async def test_other_requests_are_rejected(options: dict[str, Any], status: int) -> None:
    fn = Fn()
    assert (await ask(fn, **options))[0] == status
    assert fn.calls == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 5000, b'{"a":"\xed\xa0\x80"}'])
async def test_a_body_that_is_no_json_is_rejected(body: bytes) -> None:
    fn = Fn()
    status, content = await ask(fn, body)
    assert (status, fn.calls) == (400, [])
    assert content["error"].startswith("The body is not JSON")


async def test_the_size_of_a_body_is_limited() -> None:
    fn = Fn()
    assert (await ask(fn, b'"' + bytes(MAX_BODY - 1), b'"'))[0] == 413
    assert (await ask(fn, b'"' + b"x" * (MAX_BODY - 2), b'"'))[0] == 200
    assert len(fn.calls) == 1


async def test_conversions_may_be_larger() -> None:
    fn = Fn()
    assert (await ask(fn, b'"' + b"x" * MAX_BODY, b'"', path="/hooks/convert"))[0] == 200
    assert (await ask(fn, b'"' + bytes(MAX_CONVERSION - 1), b'"', path="/hooks/convert"))[0] == 413
    assert len(fn.calls) == 1


async def test_a_slow_body_times_out(autojump_clock: object) -> None:
    fn = Fn()
    assert (await ask(fn, b"x", b"x", b"x", pause=4))[0] == 408
    assert trio.current_time() == 10


async def test_a_client_that_goes_away_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def ask_half() -> tuple[int, Any]:
        sent: list[Any] = []
        messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

        async def receive() -> Any:
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "path": "/hooks", "method": "POST", "query_string": b"", "headers": []}
        await AdmissionApp(Fn(), "/hooks")(scope, receive, send)
        return sent[0]["status"], None

    assert (await ask_half())[0] == 400
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []


async def test_a_review_that_cannot_be_answered_has_its_status() -> None:
    assert await ask(Fn(ReviewError("no", status=404))) == (404, {"error": "no"})


async def test_an_unexpected_error_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    assert await ask(Fn(ValueError("secret"))) == (500, {"error": "Internal error."})
    assert caplog.messages == ["A request has failed."]


@pytest.mark.parametrize(
    ("query", "limit"),
    [(b"timeout=10s", 10), (b"timeout=0.5s", 0.5), (b"", math.inf), (b"timeout=x", math.inf), (b"\xff=%zz&", math.inf)],
)
async def test_a_hanging_function_is_given_up_before_the_client_does(
    query: bytes, limit: float, autojump_clock: object
) -> None:
    status, _ = await ask(Fn(seconds=1000), query=query)
    assert status == (200 if limit == math.inf else 504)
    assert trio.current_time() < limit
