"""Tests for :mod:`trioperator.web.live_view`: who may see it, who may act, and what a browser makes of it."""

from __future__ import annotations

import functools
import pathlib
import re
import time
from typing import Any

import httpx
import pytest
import trio

import trioperator
from tests.runtime.conftest import CRD, Bench, widget
from tests.web.admission import make_review, operating, sleeping_server
from tests.web.browser import BROWSER, open_browser
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError
from trioperator.handling.webhook_configuration import WebhookFn
from trioperator.threads import run_in_thread
from trioperator.web.live_view import parse_loopback

on = trioperator.on
TOKEN = "the-token"


@pytest.fixture
async def bench(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> Bench:
    caplog.set_level("INFO")
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.enabled = False
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


class View:
    """A client of the live view."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        [self.url] = re.findall(r"Serving the live view at (\S+)", caplog.text)

    async def ask(self, path: str = "", *, method: str = "GET", **headers: str) -> httpx.Response:
        ask = functools.partial(
            httpx.request, method, f"{self.url}{path}", headers=headers, timeout=60, trust_env=False
        )
        return await run_in_thread(ask, limiter=trio.CapacityLimiter(1))

    async def tasks(self, token: str = TOKEN, **headers: str) -> httpx.Response:
        return await self.ask("/tasks", authorization=f"Bearer {token}", **headers)

    async def act(self, path: str, token: str = TOKEN) -> httpx.Response:
        return await self.ask(path, method="POST", authorization=f"Bearer {token}")


def serving(bench: Bench, token: str | None = TOKEN, path: str = "") -> Any:
    return bench.running(live_view_endpoint=f"http://127.0.0.1:0{path}", live_view_token=token, standalone=True)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:80", "http://localhost:1/x", "http://[::1]:80", "http://127.9.9.9:1"]
)
def test_the_loopback_interface_is_accepted(url: str) -> None:
    assert parse_loopback(url).port


@pytest.mark.parametrize(
    "url",
    ["http://0.0.0.0:80", "http://[::]:80", "http://10.0.0.1:80", "http://example.com:1", "http://localhost.evil:1"],
)
def test_other_interfaces_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="loopback"):
        parse_loopback(url)


async def test_the_page_and_its_data_are_served_to_this_host_only(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(bench):
        view = View(caplog)
        page = await view.ask()
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert (await view.tasks()).json()["ready"] is True
        for host in ("evil.example", "evil.example:80", "", "127.0.0.1.evil.example"):
            assert (await view.tasks(host=host)).status_code in (400, 403)
        assert (await view.tasks(host="localhost:99")).status_code == 200
        assert "access-control-allow-origin" not in page.headers


@pytest.mark.parametrize("path", ["/", "/debug", "/debug/"])
async def test_the_url_may_be_that_of_the_page(path: str, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(bench, path=path):
        view = View(caplog)
        assert view.url.count("/debug") == 1
        assert (await view.tasks()).status_code == 200


async def test_the_root_leads_to_the_page(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(bench):
        view = View(caplog)
        async with httpx.AsyncClient(base_url=view.url.removesuffix("/debug")) as client:
            response = await client.get("/")
            assert (response.status_code, response.headers["location"]) == (302, "/debug")
            assert (await client.get("/", headers={"Host": "evil.example"})).status_code == 403


async def test_data_and_actions_need_the_token(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(bench):
        view = View(caplog)
        assert (await view.ask("/cancel?uid=x")).status_code == 405
        assert (await view.ask("/cancel?uid=x", method="POST")).status_code == 401
        assert (await view.act("/cancel?uid=x", "wrong")).status_code == 401
        assert (await view.act("/cancel?uid=x")).status_code == 404
        assert (await view.act("/requeue")).status_code == 404
        assert (await view.tasks()).json()["actions"] is True
        assert (await view.ask("/tasks")).status_code == (await view.tasks("wrong")).status_code == 401
        assert (await view.ask()).status_code == 200, "the page itself, to enter the token"
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("unset", [None, ""])
async def test_without_a_token_there_are_data_but_no_actions(
    bench: Bench, caplog: pytest.LogCaptureFixture, unset: str | None
) -> None:
    async with serving(bench, token=unset):
        view = View(caplog)
        assert (await view.ask("/cancel?uid=x", method="POST", authorization="Bearer")).status_code == 403
        for token in ("None", TOKEN):
            assert (await view.act("/cancel?uid=x", token)).status_code == 403
        assert (await view.ask("/tasks")).json()["actions"] is False


@pytest.mark.parametrize("sync", [False, True])
async def test_a_cancelled_handler_ends_at_once_and_is_tried_again(
    sync: bool, bench: Bench, caplog: pytest.LogCaptureFixture
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
    async with serving(bench):
        with trio.fail_after(60):
            await begun.wait()
            answer = await View(caplog).act(f"/cancel?uid={created['metadata']['uid']}")
            assert answer.status_code == 200
            await again.wait()
    assert calls == ["called"] * 2
    assert "Handler 'create' is interrupted: it was cancelled on request." in caplog.text
    assert "On request by the live view: Handler 'create' of Widget default/w is cancelled" in caplog.text


async def test_a_cancelled_daemon_is_started_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    starts: list[bool] = []
    begun, again = trio.Event(), trio.Event()

    @on.daemon("widgets", id="daemon", cancellation_timeout=1, registry=bench.registry)
    async def daemon(**_: Any) -> None:
        starts.append(True)
        (again if begun.is_set() else begun).set()
        await trio.sleep_forever()

    created = await bench.cluster.create(widget())
    async with serving(bench):
        with trio.fail_after(60):
            await begun.wait()
            assert (await View(caplog).act(f"/cancel?uid={created['metadata']['uid']}")).status_code == 200
            await again.wait()
    assert len(starts) == 2


async def test_a_review_cannot_be_cancelled_as_its_write_would_be_allowed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
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

    options: Any = {"live_view_endpoint": "http://127.0.0.1:0/", "live_view_token": TOKEN}
    async with operating(cluster, registry, server=sleeping_server(fns), managed=None, **options):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await begun.wait()
                assert (await View(caplog).act("/cancel?uid=some-uid")).status_code == 404
                end.set()
    assert not responses[0]["response"]["allowed"]


@pytest.mark.parametrize("decorator", [on.create, on.reconcile])
async def test_a_requeued_object_does_not_wait_for_its_retry(
    bench: Bench, caplog: pytest.LogCaptureFixture, decorator: Any
) -> None:
    failed, again = trio.Event(), trio.Event()

    @decorator("widgets", id="create", registry=bench.registry)  # type: ignore[untyped-decorator]  # either of two
    async def create(retry: int, **_: Any) -> None:
        if not retry:
            failed.set()
            raise trioperator.TemporaryError("in an hour", delay=3600)
        again.set()

    created = await bench.cluster.create(widget())
    async with serving(bench):
        view = View(caplog)
        with trio.fail_after(60):
            await failed.wait()
            while not (await view.tasks()).json()["queue"]["delayed"]:
                pass
            answer = await view.act(f"/requeue?uid={created['metadata']['uid']}")
            assert (answer.status_code, answer.text) == (200, "Widget default/w is requeued\n")
            await again.wait()


# Waits until there is a button of a name in a table, presses it, and returns what the page says to that.
LOOK = """
(async () => {
  const state = document.getElementById("state"), before = state.textContent = "is asked";
  document.getElementById("token").value = TOKEN;
  while (state.textContent === before) await new Promise(done => setTimeout(done, 50));
  return state.textContent;
})()
"""

PRESS = """
(async () => {
  const until = async find => {
    for (;;) { const found = find(); if (found) return found; await new Promise(done => setTimeout(done, 50)); }
  };
  const press = async (table, name) => {
    const message = document.getElementById("message");
    const buttons = () => [...document.querySelectorAll(`#${table} button`)];
    const button = await until(() => buttons().find(each => each.textContent === name && !each.disabled));
    message.textContent = "";
    button.click();
    return await until(() => message.textContent.trim());
  };
  document.getElementById("token").value = TOKEN;
  return await press(TABLE, NAME);
})()
"""


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium: apt-get install chromium")
async def test_a_browser_shows_the_tasks_and_its_buttons_act(
    bench: Bench, caplog: pytest.LogCaptureFixture, tmp_path: pathlib.Path
) -> None:
    begun, begun_again, failed, tried_again = (trio.Event() for _ in range(4))

    @on.create("widgets", id="wait-<b>", registry=bench.registry, field="spec.wait")
    async def wait(**_: Any) -> None:
        (begun_again if begun.is_set() else begun).set()
        await trio.sleep_forever()

    @on.create("widgets", id="fail", registry=bench.registry, field="spec.fail")
    async def fail(retry: int, **_: Any) -> None:
        if not retry:
            failed.set()
            raise trioperator.TemporaryError("in an hour", delay=3600)
        tried_again.set()

    def press(table: str, name: str) -> str:
        return PRESS.replace("TOKEN", repr(TOKEN)).replace("TABLE", repr(table)).replace("NAME", repr(name))

    bench.settings.process.grace = 1.0  # for the handler that does not end
    await bench.cluster.create(widget("w", wait=1))
    await bench.cluster.create(widget("late", fail=1))
    with trio.fail_after(150):
        async with serving(bench), open_browser(tmp_path) as browser:
            await begun.wait()
            await failed.wait()
            await browser.open(View(caplog).url)
            assert await browser.run(LOOK.replace("TOKEN", "'wrong'")) == "needs its token"
            assert await browser.run(LOOK.replace("TOKEN", repr(TOKEN))) == "is active"
            shown = await browser.run("document.documentElement.outerHTML")
            answer = await browser.run(press("calls", "cancel"))
            assert answer == "Handler 'wait-<b>/spec.wait' of Widget default/w is cancelled"
            await begun_again.wait()
            assert await browser.run(press("queue", "requeue")) == "Widget default/late is requeued"
            await tried_again.wait()
    for text in ('data-loaded="yes"', "Widget/default/w", "wait-&lt;b&gt;", "is active"):
        assert text in shown
