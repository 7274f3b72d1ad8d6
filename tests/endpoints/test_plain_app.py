"""Tests for :mod:`trioperator._endpoints.plain_app`, without a server and in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from trioperator._endpoints.plain_app import MAX_BODY, Answer, PlainApp, Request


async def _greet(request: Request) -> Answer:
    return Answer(f"{request.method} {dict(request.query)} {request.headers['x-who']}".encode())


async def _fail(request: Request) -> Answer:
    raise LookupError("secret")


APP = PlainApp({"/greet/": _greet, "/fail": _fail, "/act": _greet}, methods={"/act": "POST"})


async def ask(
    path: str, *chunks: bytes, method: str = "GET", query: bytes = b""
) -> tuple[int, bytes, Mapping[bytes, bytes]]:
    """Send a request in chunks; return the status, the content and the headers of the response."""
    left = list(chunks or [b""])
    sent: list[Any] = []

    async def receive() -> Any:
        if not left:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"path": path, "method": method, "query_string": query, "headers": [(b"X-Who", b"me")]}
    await APP(scope, receive, send)
    start, body = sent
    return start["status"], body["body"], dict(start["headers"])


async def test_a_request_is_answered_by_the_function_of_its_path() -> None:
    assert (await ask("/greet", query=b"a=1&b"))[:2] == (200, b"GET {'a': '1', 'b': ''} me")
    assert (await ask("/greet/"))[0] == 200
    assert (await ask("/act", b"ignored", method="POST"))[:2] == (200, b"POST {} me")


async def test_head_is_answered_as_get_is() -> None:
    status, content, headers = await ask("/greet", method="HEAD")
    assert (status, content) == (200, b"GET {} me"), "which the server leaves out"
    assert int(headers[b"content-length"]) == len(content)


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/", "GET", 404), ("/greet/x", "GET", 404), ("/greet", "POST", 405), ("/act", "GET", 405), ("", "GET", 404)],
)
async def test_other_requests_are_refused(path: str, method: str, status: int) -> None:
    assert (await ask(path, method=method))[0] == status


async def test_an_error_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    assert (await ask("/fail"))[:2] == (500, b"internal error\n")
    assert "LookupError: secret" in caplog.text


async def test_a_body_is_limited() -> None:
    assert (await ask("/greet", b"x" * MAX_BODY))[0] == 200
    assert (await ask("/greet", b"x" * MAX_BODY, b"x", b"x"))[0] == 413


async def test_nonsense_in_the_query_does_no_harm() -> None:
    assert (await ask("/greet", query=b"%ff=%zz&&=\xff&a[]"))[0] == 200
