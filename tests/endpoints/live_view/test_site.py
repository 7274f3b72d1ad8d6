"""Tests for :mod:`trioperator._endpoints.live_view.site`.

Who may see which pages, what they escape, and what buttons do.
"""

from __future__ import annotations

import contextlib
import html.parser
import re
import time
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

import trioperator
from tests.endpoints.live_view.client import STREAM, Client
from tests.endpoints.live_view.conftest import TOKEN, Showing
from tests.runtime.conftest import Bench, widget
from tests.webhooks.admission import make_review, operating, sleeping_server
from trioperator._endpoints.live_view.pages import PAGES
from trioperator._endpoints.live_view.streaming import MAX_STREAMS
from trioperator._handling.reviews.webhook_configuration import WebhookFn
from trioperator.apiserver import Cluster

on = trioperator.on
EVIL = "<img src=x onerror=alert(1)>\"'&amp;{{7*7}}"
TITLED = [f"/{name}" for name in PAGES if PAGES[name].title]


class Outline(html.parser.HTMLParser):
    """The elements of a page, and whether they are as screen readers and the policy of the page want them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.inline += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and not dict(attrs).get("src")):
            self.inline.append(tag)


async def test_without_a_session_pages_lead_to_the_login_and_back(showing: Showing) -> None:
    async with showing() as client:
        client.token = None
        for page in TITLED:
            answer = await client.ask(f"{page}?q=a%26b&page=2")
            assert (answer.status, TOKEN in answer.text) == (303, False)
            login = answer.header("location")
            assert (await client.ask(login)).status == 200
            wrong = await client.post(login, token="wrong")
            assert (wrong.status, wrong.header("set-cookie")) == (401, "")
            assert "This is not the token." in wrong.text
            right = await client.post(login, token=TOKEN)
            assert (right.status, right.header("location")) == (303, f"{page}?q=a%26b&page=2")
            cookie = right.header("set-cookie")
            assert TOKEN not in cookie
            assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
            assert (await client.ask(page)).status == 200
            assert (await client.post("/logout")).header("location") == "/login"
            client.cookies.clear()
            client.cookies["trioperator-8083"] = cookie.split("=")[1].split(";")[0]
            assert (await client.ask(page)).status == 303, "the session has ended for everybody"
            client.cookies.clear()


async def test_the_token_is_never_logged_or_in_a_url(showing: Showing, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with showing() as client:
        client.token = None
        await client.post("/login", token=f"{TOKEN}-wrong")
        location = (await client.post("/login", token=TOKEN)).header("location")
        pages = [(await client.ask(page)).text for page in TITLED]
        answer = await client.ask(f"/?token={TOKEN}")
        assert answer.status == 200
        client.cookies.clear()
        assert (await client.ask(f"/snapshot?token={TOKEN}")).status == 303, "a token in a URL is none"
    assert TOKEN not in caplog.text + location + "".join(pages)
    assert "A login to the live view was rejected" in caplog.text


async def test_rejected_logins_are_logged_once_a_minute(
    showing: Showing, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async with showing() as client:
        for count in (1, 2):
            for _ in range(5):
                assert (await client.post("/login", token="wrong")).status == 401
            assert caplog.text.count("A login to the live view was rejected") == count
            await trio.sleep(60)


async def test_programs_get_statuses_instead_of_the_login(showing: Showing) -> None:
    async with showing() as client:
        for token in (None, "wrong"):
            client.token = token
            for path, accept in (("/snapshot", "*/*"), ("/", STREAM), ("/kinds", "application/json"), ("/x", "*/*")):
                answer = await client.ask(path, accept=accept)
                assert (answer.status, answer.header("www-authenticate")) == (401, "Bearer")
            for page in (*PAGES, "why", "snapshot"):
                assert (await client.ask(f"/{page}", accept="*/*")).status == 401
            for action in ("/requeue?uid=x", "/cancel?uid=x", "/logout"):
                assert (await client.ask(action, "POST", accept="*/*")).status == 401


async def test_methods_are_those_of_the_pages(showing: Showing) -> None:
    async with showing() as client:
        for path, method in (("/cancel?uid=x", "GET"), ("/requeue", "GET"), ("/", "POST"), ("/kinds", "DELETE")):
            answer = await client.ask(path, method)
            assert answer.status == 405
            assert answer.header("allow")
        head = await client.ask("/kinds", "HEAD")
        assert head.status == 200


async def test_without_a_token_there_are_pages_but_no_actions(showing: Showing) -> None:
    async with showing(token=None) as client:
        assert (await client.ask("/snapshot")).json()["actions"] is False
        for authorization in ("Bearer", "Bearer None", f"Bearer {TOKEN}"):
            answer = await client.ask("/cancel?uid=x", "POST", authorization=authorization)
            assert (answer.status, "Actions are off" in answer.text) == (403, True)
        assert "Log out" not in (await client.ask()).text
        assert (await client.post("/login", token="")).status == 401


async def test_actions_and_logins_must_come_from_the_pages_themselves(bench: Bench, showing: Showing) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        raise trioperator.TemporaryError("in an hour", delay=3600)

    uid = (await bench.cluster.create(widget()))["metadata"]["uid"]
    async with showing() as client:
        await until_failed(client)
        client.token = None
        for origin in ("http://evil.example", "http://localhost:1234", "null"):
            assert (await client.ask("/login", "POST", form={"token": TOKEN}, origin=origin)).status == 403
        await client.post("/login", token=TOKEN)
        form = {"uid": uid}
        for origin in ("http://evil.example", "http://localhost:1234", "null", ""):
            assert (await client.ask("/requeue", "POST", form=form, origin=origin)).status == 403
        assert (await client.ask(f"/requeue?uid={uid}", "POST")).status == 403, "no browser sends a form like this"
        done = await client.post("/requeue", **form)
        assert (done.status, done.header("location")) == (303, f"/object?uid={uid}&done=requeue")
        assert "The object is requeued." in (await client.ask(done.header("location"))).text


async def until_failed(client: Client) -> None:
    """Wait until a handler has failed, and what has come of it is stored."""
    with trio.fail_after(60):
        while not (await client.ask("/snapshot")).json()["queue"]["delayed"]:
            await trio.lowlevel.checkpoint()


async def test_all_pages_have_a_strict_policy_and_nothing_inline(bench: Bench, showing: Showing) -> None:
    on.event("widgets", registry=bench.registry)(lambda **_: None)
    uid = (await bench.cluster.create(widget()))["metadata"]["uid"]
    async with showing() as client:
        for page in (*TITLED, f"/object?uid={uid}", "/login", "/nothing", "/assets/live.css"):
            answer = await client.ask(page)
            policy = answer.header("content-security-policy")
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.header("x-content-type-options") == "nosniff"
            assert answer.header("x-frame-options") == "DENY"
            assert answer.header("cache-control") == ("max-age=86400" if "assets" in page else "no-store")
            assert not answer.header("access-control-allow-origin")
            if "assets" not in page:
                assert Outline(answer.text).inline == []


async def test_pages_are_made_for_keyboards_and_screen_readers(bench: Bench, showing: Showing) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        raise trioperator.TemporaryError("in an hour", delay=3600)

    uid = (await bench.cluster.create(widget()))["metadata"]["uid"]
    async with showing() as client:
        await until_failed(client)
        for page in (*TITLED, f"/object?uid={uid}"):
            text = (await client.ask(page)).text
            outline = Outline(text)
            assert ("lang", "en") in outline.attributes
            assert outline.tags.count("h1") == outline.tags.count("main") == 1
            assert outline.tags.count("caption") == outline.tags.count("table")
            assert all("scope=" in cell for cell in re.findall(r"<th[ >][^>]*", text))
            assert ("role", "status") in outline.attributes, "what is announced"
            assert ("href", "#main") in outline.attributes, "over the navigation"
            ids = [value for name, value in outline.attributes if name == "id"]
            assert len(ids) == len(set(ids))
            references = {
                value for name, value in outline.attributes if name in ("aria-labelledby", "aria-describedby")
            }
            assert references <= set(ids)
            names = [name for name, _ in outline.attributes]
            assert names.count("aria-current") == (0 if "object?" in page else 1)


async def test_whatever_users_write_is_text(bench: Bench, showing: Showing) -> None:
    failed = trio.Event()

    @on.create("widgets", id=f"create-{EVIL}", registry=bench.registry)
    async def create(**_: Any) -> None:
        failed.set()
        raise trioperator.TemporaryError(f"no: {EVIL}", delay=3600)

    body = widget("w")
    body["metadata"]["labels"] = {"team": "x"}
    body["metadata"]["finalizers"] = ["example.com/x"]
    uid = (await bench.cluster.create(body))["metadata"]["uid"]
    query = "q=%3Cimg+src%3Dx+onerror%3Dalert%281%29%3E%22%27"
    async with showing() as client:
        await failed.wait()
        await until_failed(client)
        shown = ""
        for page in (*TITLED, "/login", f"/object?uid={uid}&x=1"):
            for target in (page, f"{page}{'&' if '?' in page else '?'}{query}&next={query}&kind={query}&state={query}"):
                answer = await client.ask(target)
                assert "img" not in Outline(answer.text).tags
                shown += answer.text
        assert "no: &lt;img src=x onerror=alert(1)&gt;&#34;&#39;&amp;amp;{{7*7}}" in shown
        async with client.stream("/errors") as stream:
            await stream.until(lambda: stream.states)
            assert "img" not in Outline(stream.states[0]).tags


@pytest.mark.parametrize("name", ["a/b", "a%2fb", "..", "a b?c#d", "<b>"])
async def test_any_name_of_an_object_has_an_address(
    showing: Showing, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trioperator._endpoints.live_view.pages import Links

    async with showing() as client:
        target = Links("")("object", kind="widgets.example.com", namespace="default", name=name, uid=f"default/{name}")
        assert target.startswith("/object?")
        answer = await client.ask(target)
        assert answer.status == 404
        assert "Nothing is known of this object" in answer.text


async def test_contents_of_objects_are_not_shown(bench: Bench, showing: Showing) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        raise trioperator.TemporaryError("see https://user:s3cret@db.example/x", delay=3600)

    body = widget("w", password="s3cret")
    body["metadata"]["annotations"] = {"example.com/key": "s3cret"}
    body["metadata"]["labels"] = {"team": "blue"}
    uid = (await bench.cluster.create(body))["metadata"]["uid"]
    async with showing() as client:
        await until_failed(client)
        pages = "".join([(await client.ask(page)).text for page in (*TITLED, f"/object?uid={uid}", "/snapshot")])
    assert "s3cret" not in pages
    assert "https://…@db.example/x" in pages
    assert "team=blue" in pages


async def test_messages_of_errors_need_a_token(bench: Bench, showing: Showing) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        raise trioperator.TemporaryError("the message", delay=3600)

    uid = (await bench.cluster.create(widget()))["metadata"]["uid"]
    async with showing(token=None) as client:
        await until_failed(client)
        pages = "".join([(await client.ask(page)).text for page in (*TITLED, f"/object?uid={uid}")])
    assert "TemporaryError" in pages
    assert "the message" not in pages


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_reasons_of_pauses_need_a_token(bench: Bench, showing: Showing, token: str | None) -> None:
    on.event("widgets", registry=bench.registry)(lambda **_: None)
    paused = widget("a")
    paused["metadata"]["annotations"] = {"trioperator.dev/paused": "until=2099-12-01T00:00Z reason=the secret project"}
    await bench.cluster.create(paused)
    async with showing(token=token) as client:
        text = (await client.ask("/objects")).text
        assert "paused until 2099-12-01T00:00:00Z" in text
        assert ("the secret project" in text) is bool(token)


@pytest.mark.parametrize("sync", [False, True])
async def test_a_cancelled_handler_ends_at_once_and_is_tried_again(
    sync: bool, bench: Bench, showing: Showing, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    begun, again = trio.Event(), trio.Event()

    def begin() -> bool:
        calls.append("called")
        (begun if len(calls) == 1 else again).set()
        return len(calls) == 1

    if sync:

        @on.create("widgets", id="create", registry=bench.registry)
        def create_in_thread(**_: Any) -> None:
            while trio.from_thread.run_sync(begin):
                while True:
                    trio.from_thread.check_cancelled()
                    time.sleep(0.01)

    else:

        @on.create("widgets", id="create", registry=bench.registry)
        async def create(**_: Any) -> None:
            if begin():
                await trio.sleep_forever()

    created = await bench.cluster.create(widget())
    async with showing() as client:
        with trio.fail_after(60):
            await begun.wait()
            answer = await client.ask(f"/cancel?uid={created['metadata']['uid']}", "POST", accept="*/*")
            assert (answer.status, answer.text) == (200, "Handler 'create' of Widget default/w is cancelled\n")
            await again.wait()
    assert calls == ["called"] * 2
    assert "Handler 'create' is interrupted: it was cancelled on request." in caplog.text
    assert "On request by the live view: Handler 'create' of Widget default/w is cancelled" in caplog.text


async def test_a_cancelled_daemon_is_started_again(bench: Bench, showing: Showing) -> None:
    starts: list[bool] = []
    begun, again = trio.Event(), trio.Event()

    @on.daemon("widgets", id="daemon", cancellation_timeout=1, registry=bench.registry)
    async def daemon(**_: Any) -> None:
        starts.append(True)
        (again if begun.is_set() else begun).set()
        await trio.sleep_forever()

    created = await bench.cluster.create(widget())
    async with showing() as client:
        with trio.fail_after(60):
            await begun.wait()
            assert (await client.post("/cancel", uid=created["metadata"]["uid"])).status == 303
            await again.wait()
    assert len(starts) == 2


async def test_a_review_cannot_be_cancelled_as_its_write_would_be_allowed(cluster: Cluster) -> None:
    registry = trioperator.OperatorRegistry()
    fns: list[WebhookFn] = []
    responses: list[Any] = []
    begun, end = trio.Event(), trio.Event()

    @on.validate("widgets", registry=registry)
    async def check(**_: Any) -> None:
        begun.set()
        await end.wait()
        raise trioperator.AdmissionError("no")

    old = widget()
    old["metadata"]["uid"] = "some-uid"

    async def ask() -> None:
        responses.append(await fns[0](make_review("UPDATE", new=old, old=old)))

    view = trioperator.live_view_app(token=TOKEN)
    options: Any = {"live_view_app": view}
    async with operating(cluster, registry, server=sleeping_server(fns), managed=None, **options):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await begun.wait()
                assert (await Client(view, token=TOKEN).post("/cancel", uid="some-uid")).status == 404
                end.set()
        assert "AdmissionError" not in (await Client(view, token=TOKEN).ask("/errors")).text, "a denial is no error"
    assert not responses[0]["response"]["allowed"]


@pytest.mark.parametrize("decorator", [on.create, on.reconcile])
async def test_a_requeued_object_does_not_wait_for_its_retry(bench: Bench, showing: Showing, decorator: Any) -> None:
    again = trio.Event()

    @decorator("widgets", id="create", registry=bench.registry)  # type: ignore[untyped-decorator]  # either of two
    async def create(retry: int, **_: Any) -> None:
        if not retry:
            raise trioperator.TemporaryError("in an hour", delay=3600)
        again.set()

    created = await bench.cluster.create(widget())
    async with showing() as client:
        with trio.fail_after(60):
            await until_failed(client)
            answer = await client.ask(f"/requeue?uid={created['metadata']['uid']}", "POST", accept="*/*")
            assert (answer.status, answer.text) == (200, "Widget default/w is requeued\n")
            await again.wait()
            assert (await client.ask("/requeue?uid=nobody", "POST")).status == 404


async def test_streams_are_limited_and_make_room_when_readers_leave(showing: Showing) -> None:
    async with showing() as client, contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(client.stream("/kinds")) for _ in range(MAX_STREAMS)]
        answer = await client.ask("/kinds", accept=STREAM)
        assert answer.status == 503
        assert (await client.ask("/kinds")).status == 200, "pages without streams are still served"
        streams[0].left.set()
        await streams[0].ended.wait()
        async with client.stream("/kinds") as another:
            assert another.status == 200
            assert another.headers["content-type"] == "text/event-stream"


async def test_a_stream_ends_with_its_session(bench: Bench, showing: Showing) -> None:
    on.event("widgets", registry=bench.registry)(lambda **_: None)
    async with showing() as client:
        client.token = None
        await client.post("/login", token=TOKEN)
        async with client.stream("/kinds") as stream:
            await stream.until(lambda: stream.states)
            await client.post("/logout")
            await bench.cluster.create(widget())
            await stream.until(lambda: "end" in stream.events)


async def test_large_bodies_are_refused(showing: Showing) -> None:
    async with showing() as client:
        assert (await client.post("/login", token="x" * 10_000)).status == 413


async def test_an_error_of_a_page_is_a_problem_without_details(
    showing: Showing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("s3cret")

    monkeypatch.setattr("trioperator._endpoints.live_view.site.describe_page", fail)
    monkeypatch.setenv("QUART_DEBUG", "1")
    async with showing() as client:
        answer = await client.ask("/kinds")
    assert answer.status == 500
    assert "s3cret" not in answer.text
    assert "s3cret" in caplog.text


async def test_an_objects_page_says_why_it_was_reconciled_and_json_has_the_same(showing: Showing, bench: Bench) -> None:
    handled = trio.Event()

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        handled.set()

    async with showing() as client:
        created = await bench.cluster.create(widget())
        await handled.wait()
        await trio.testing.wait_all_tasks_blocked()
        page = await client.ask(f"/object?uid={created['metadata']['uid']}")
        assert re.search(r"Why it was reconciled.*create succeeded in \d+ ms", page.text, re.DOTALL)
        found = (await client.ask("/why?kind=widget&name=w")).json()
        assert found["occurrences"][0]["calls"][0]["handler"] == "create"
        assert (await client.ask("/why?kind=widget&name=nobody")).status == 404
        client.token = None
        assert (await client.ask("/why?kind=widget&name=w")).status == 303
