"""Tests for :mod:`trioperator._webhooks.app`, without a server and in virtual time."""

from __future__ import annotations

import gc
import math
import tracemalloc
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.http.serving import ANYWHERE, CLOSE, GET, serving, talk
from tests.webhooks.admission import make_review
from trioperator._http.asgi import SSL_PEER, Message
from trioperator._http.server import serve_app
from trioperator._webhooks import app as webhooks
from trioperator._webhooks.app import MAX_BODY, MAX_CONVERSION, AdmissionApp, Budget, Request
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
    status, content = await AdmissionApp(fn, "hooks/").answer(request)
    return status, msgspec.json.decode(content)


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


@pytest.mark.parametrize("path", ["/hooks/check/", "/hooks//check", "/hooks///check//"])
async def test_slashes_around_the_id_of_a_webhook_change_nothing(path: str) -> None:
    fn = Fn()
    assert (await ask(fn, path=path))[0] == 200
    assert fn.calls[0]["webhook"] == "check"


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
                nursery.start_soon(app.answer, Request("POST", "/", "", {}, body))
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
            nursery.start_soon(app.answer, Request("POST", "/hooks/convert", "", {}, body))
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
        assert (await app.answer(request))[0] == 504
    assert fn.calls == []


async def test_a_review_that_cannot_be_answered_has_its_status() -> None:
    assert await ask(Fn(ReviewError("no", status=404))) == (404, {"error": "no"})


async def test_an_unexpected_error_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    assert await ask(Fn(ValueError("secret"))) == (500, {"error": "Internal error."})
    assert caplog.messages == ["A request has failed."]


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ("timeout=10s", 10),
        ("a=b&timeout=0.5s&c", 0.5),
        ("", math.inf),
        ("timeout=x", math.inf),
        ("\xff=%zz&", math.inf),
    ],
)
async def test_a_hanging_function_is_given_up_before_the_client_does(
    query: str, limit: float, autojump_clock: object
) -> None:
    status, _ = await ask(Fn(seconds=1000), query=query)
    assert status == (200 if limit == math.inf else 504)
    assert trio.current_time() < limit


async def test_a_server_that_limits_responses_gives_a_hanging_function_up(autojump_clock: MockClock) -> None:
    reviews = Reviews()
    reviews.release = trio.Event()
    body = b"{}"
    head = b"POST /check?timeout=10s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
    async with trio.open_nursery() as nursery:
        endpoint = await nursery.start(serve_app, reviews.app, ANYWHERE)
        start = trio.current_time()
        received = await talk(endpoint, head + body)
        assert received.startswith(b"HTTP/1.1 504 ")
        assert trio.current_time() - start == pytest.approx(9.3)
        reviews.release.set()
        assert (await talk(endpoint, head.replace(b"Host", b"Connection: close\r\nHost") + body)).endswith(b"{}")
        nursery.cancel_scope.cancel(reason="the test")


# Bodies.


class Asked:
    """A request to an application whose reviews are answered when *release* is set."""

    def __init__(self, *chunks: bytes, path: str = "/check", headers: Any = ()) -> None:
        self.chunks = list(chunks)
        self.received = 0
        self.sent: list[Message] = []
        self.scope: Message = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": list(headers),
            "query_string": b"",
        }

    async def receive(self) -> Message:
        self.received += 1
        if not self.chunks:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self.chunks.pop(0), "more_body": bool(self.chunks)}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])


class Reviews:
    """An application, and the reviews that it has passed on."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.release = trio.Event()
        self.release.set()
        self.app = AdmissionApp(self, "")

    def handles(self, webhook: str | None) -> bool:
        return webhook == "check"

    async def __call__(self, request: Any, **hints: Any) -> Any:
        self.calls.append({"request": request, **hints})
        await self.release.wait()
        return {}

    async def ask(self, *chunks: bytes, **options: Any) -> Asked:
        asked = Asked(*chunks, **options)
        await self.app(asked.scope, asked.receive, asked.send)
        return asked


async def test_a_review_has_its_headers_and_the_certificate_of_its_client() -> None:
    reviews = Reviews()
    asked = Asked(b'{"a"', b":1", b"}", headers=[(b"user-agent", b"me")])
    asked.scope["extensions"] = {SSL_PEER: {"version": 3}}
    await reviews.app(asked.scope, asked.receive, asked.send)
    assert asked.status == 200
    assert dict(asked.sent[0]["headers"])[b"content-length"] == b"2"
    hints = {"webhook": "check", "headers": {"User-Agent": "me"}, "sslpeer": {"version": 3}}
    assert reviews.calls == [{"request": {"a": 1}, **hints}]


async def test_heads_of_requests_are_not_remembered() -> None:
    reviews = Reviews()
    tracemalloc.start()
    try:
        await reviews.ask(b"{}")
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(100):
            asked = Asked(b"{}", headers=[(b"x%d" % number + b"x" * 30_000, b"")])
            asked.scope["query_string"] = b"timeout=1s&x%d=" % number + b"x" * 30_000
            await reviews.app(asked.scope, asked.receive, asked.send)
            reviews.calls.clear()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert asked.status == 200
    assert after - before < 2_000_000  # of 6 MB; threads of other tests may allocate, too


async def test_what_is_refused_for_its_head_is_not_received() -> None:
    reviews = Reviews()
    large = await reviews.ask(b"{}", headers=[(b"content-length", b"%d" % (MAX_BODY + 1))])
    assert (large.status, large.received) == (413, 0)
    huge = await reviews.ask(b"{}", headers=[(b"content-length", b"9" * 9999)])
    assert (huge.status, huge.received) == (413, 0)
    nothing = await reviews.ask(b"{}", path="/other")
    assert (nothing.status, nothing.received) == (404, 0)
    assert reviews.calls == []


async def test_a_body_that_is_too_large_or_ends_too_early_is_no_review() -> None:
    reviews = Reviews()
    assert (await reviews.ask(b"x" * MAX_BODY, b"x")).status == 413
    assert (await reviews.ask()).status == 400
    assert reviews.calls == []


async def test_large_bodies_share_a_budget_and_small_ones_need_none(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "_FREE", 10)
    reviews = Reviews()
    budget = reviews.app._budget = Budget(500)
    reviews.release = trio.Event()

    def body(size: int) -> bytes:
        return msgspec.json.encode("x" * (size - 2))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reviews.ask, body(400))
        await trio.testing.wait_all_tasks_blocked()
        assert budget.left == 500 - 390
        assert (await reviews.ask(body(100), body(101))).status == 503
        nursery.start_soon(reviews.ask, body(10))
        await trio.testing.wait_all_tasks_blocked()
        assert len(reviews.calls) == 2
        reviews.release.set()
    assert budget.left == 500
    reviews.release = trio.Event()
    with trio.move_on_after(1):
        await reviews.ask(body(400))
    assert budget.left == 500, "a review that is given up makes room"


async def test_a_body_that_does_not_arrive_in_time_is_given_up(autojump_clock: MockClock) -> None:
    reviews = Reviews()
    asked = Asked()
    await reviews.app(asked.scope, trio.sleep_forever, asked.send)
    assert (asked.status, trio.current_time()) == (408, 10)
