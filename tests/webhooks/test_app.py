"""Tests for :mod:`trioperator._webhooks.app`, without a server and in virtual time."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tests.http.test_server import CLOSE, GET, serving, talk
from tests.webhooks.admission import make_review
from trioperator._http.server_connection import Request
from trioperator._webhooks.app import MAX_BODY, MAX_CONVERSION, AdmissionApp
from trioperator.errors import ReviewError

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
    fn: Fn, body: bytes = REVIEW, *, path: str = "/hooks/check", method: str = "POST", query: str = ""
) -> tuple[int, Any]:
    """Send a request; return the status and the content of the response."""
    request = Request(method, path, query, {"User-Agent": "x"}, body, {"version": 3})
    response = await AdmissionApp(fn, "hooks/")(request)
    return response.status, msgspec.json.decode(response.body)


async def test_a_review_is_passed_on_with_its_hints() -> None:
    fn = Fn()
    assert await ask(fn) == (200, {"ok": True})
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


@pytest.mark.parametrize(
    ("path", "limit"),
    [("/hooks", MAX_BODY), ("/hooks/check", MAX_BODY), ("/hooks/convert", MAX_CONVERSION), ("/convert", None)],
)
def test_conversions_may_be_larger(path: str, limit: int | None) -> None:
    assert AdmissionApp(Fn(), "hooks/").limit_body(path) == limit


async def test_what_nobody_handles_is_refused_before_it_is_read() -> None:
    fn = Fn()
    fn.handles = lambda webhook: webhook in (None, "check")  # type: ignore[attr-defined]
    app = AdmissionApp(fn, "hooks/")
    paths = ["/hooks", "/hooks//check/", "/hooks/other", "/hooks/convert", "/elsewhere"]
    assert [app.limit_body(path) for path in paths] == [MAX_BODY, MAX_BODY, None, None, None]


@pytest.mark.parametrize("body", [b"[" + b"[]," * 100_000 + b"[]]", b"[" + b"{}," * 100_000 + b"{}]"])
async def test_a_body_that_would_take_much_more_memory_than_its_text_is_refused(body: bytes) -> None:
    fn = Fn()
    assert (await ask(fn, body))[0] == 413
    assert fn.calls == []
    assert (await ask(fn, body, path="/hooks/convert"))[0] == 200  # which may be that of many objects


async def test_large_reviews_take_turns_and_small_ones_do_not_wait_for_them() -> None:
    busy: list[int] = []
    answered = 0
    is_full, release = trio.Event(), trio.Event()

    async def review(request: Any, **_: Any) -> Any:
        nonlocal answered
        busy.append(request["size"])
        assert busy.count(1_000_000) <= 2
        if len(busy) == 7:
            is_full.set()
        await release.wait()
        busy.remove(request["size"])
        answered += 1
        return {}

    app = AdmissionApp(review, "")
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for size in (1_000_000,) * 5 + (1,) * 5:
                body = msgspec.json.encode({"size": size, "text": "x" * size})
                nursery.start_soon(app, Request("POST", "/", "", {}, body))
            await is_full.wait()
            assert sorted(busy) == [1] * 5 + [1_000_000] * 2
            release.set()
    assert answered == 10


async def test_a_probe_is_answered_while_a_large_conversion_is_decoded() -> None:
    fn = Fn()
    app = AdmissionApp(fn, "hooks/")
    obj = {"text": "x" * 50_000, "items": [[]] * 3_900, "values": ["ab"] * 10_000}
    body = msgspec.json.encode({"request": {"objects": [obj] * 100}})
    assert len(body) > 10 * 2**20
    with trio.fail_after(60):
        async with serving() as endpoint, trio.open_nursery() as nursery:
            nursery.start_soon(app, Request("POST", "/hooks/convert", "", {}, body))
            await trio.testing.wait_all_tasks_blocked()
            assert (await talk(endpoint, GET + CLOSE)).startswith(b"HTTP/1.1 200")
            assert fn.calls == []
    assert len(fn.calls[0]["request"]["request"]["objects"]) == 100


async def test_a_large_review_that_is_given_up_leaves_its_thread_behind() -> None:
    fn = Fn()
    app = AdmissionApp(fn, "hooks/")
    body = msgspec.json.encode({"request": {"objects": [{"values": ["ab"] * 10_000}] * 100}})
    with trio.fail_after(60):
        request = Request("POST", "/hooks/convert", "timeout=0.000001s", {}, body)
        assert (await app(request)).status == 504
    assert fn.calls == []


async def test_a_review_that_cannot_be_answered_has_its_status() -> None:
    assert await ask(Fn(ReviewError("no", status=404))) == (404, {"error": "no"})


async def test_an_unexpected_error_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    assert await ask(Fn(ValueError("secret"))) == (500, {"error": "Internal error."})
    assert caplog.messages == ["A request has failed."]


@pytest.mark.parametrize(
    ("query", "limit"),
    [("timeout=10s", 10), ("timeout=0.5s", 0.5), ("", math.inf), ("timeout=x", math.inf), ("\xff=%zz&", math.inf)],
)
async def test_a_hanging_function_is_given_up_before_the_client_does(
    query: str, limit: float, autojump_clock: object
) -> None:
    status, _ = await ask(Fn(seconds=1000), query=query)
    assert status == (200 if limit == math.inf else 504)
    assert trio.current_time() < limit
