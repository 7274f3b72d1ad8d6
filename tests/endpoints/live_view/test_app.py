"""Tests for :mod:`trioperator._endpoints.live_view.app`: the application as servers and other applications see it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import trio

import trioperator
from tests.endpoints.live_view.client import App, Client
from tests.endpoints.live_view.conftest import TOKEN, Showing
from tests.runtime.conftest import Bench
from trioperator.errors import ConfigError


async def test_other_hosts_are_rejected_on_every_path(showing: Showing) -> None:
    async with showing() as client:
        client.host = "evil.example"
        for path in ("/", "/kinds", "/snapshot", "/login", "/assets/live.js", "/nothing", ""):
            assert (await client.ask(path)).status == 403
        assert (await client.post("/login", token=TOKEN)).status == 403


async def test_several_hosts_or_none_are_rejected(showing: Showing) -> None:
    async with showing() as client:
        scope = client.scope("/", "GET", {})
        for hosts in ([], [b"localhost", b"evil.example"]):
            answers: list[Any] = []

            async def send(message: Any, answers: list[Any] = answers) -> None:
                answers.append(message)

            headers = [pair for pair in scope["headers"] if pair[0] != b"host"] + [(b"host", host) for host in hosts]
            await client.app({**scope, "headers": headers}, None, send)
            assert answers[0]["status"] == 403


async def test_before_and_after_the_operator_pages_say_that_it_is_not_running(bench: Bench) -> None:
    view = trioperator.live_view_app(token=TOKEN)
    client = Client(view, token=TOKEN)
    for _ in range(2):
        assert (await client.ask("/kinds")).status == (await client.ask("/snapshot")).status == 503
        assert "The operator is not running." in (await client.ask("/")).text
        async with bench.running(live_view_app=view, standalone=True):
            assert (await client.ask("/kinds")).status == 200


async def test_one_operator_is_shown_at_a_time(bench: Bench) -> None:
    view = trioperator.live_view_app()
    async with bench.running(live_view_app=view, standalone=True):
        with pytest.raises(ConfigError, match="shows another operator"):
            await trioperator.operator(
                live_view_app=view, registry=bench.registry, transport=bench.cluster.transport(), handle_signals=False
            )


@pytest.mark.parametrize("options", [{"live_view_token": "x"}, {"live_view_endpoint": "http://127.0.0.1:0"}])
async def test_an_app_has_its_own_token_and_server(bench: Bench, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="live_view_app="):
        await trioperator.operator(live_view_app=trioperator.live_view_app(), **options)


def test_hosts_of_others_need_a_token() -> None:
    for token in (None, ""):
        with pytest.raises(ConfigError, match="needs a token"):
            trioperator.live_view_app(token=token, hosts=["ops.example.com"])


async def test_hosts_that_are_given_are_served(bench: Bench) -> None:
    view = trioperator.live_view_app(token=TOKEN, hosts=["ops.example.com"])
    async with bench.running(live_view_app=view, standalone=True):
        assert (await Client(view, token=TOKEN, host="ops.example.com").ask()).status == 200


def strip(inner: App) -> Callable[..., Any]:
    """Serve an application as servers do that strip the path of a mount."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "path": scope["path"].removeprefix(scope["root_path"])}, receive, send)

    return app


@pytest.mark.parametrize("strips", [False, True])
@pytest.mark.parametrize("root", ["", "/debug", "/a b/ä"])
async def test_it_can_be_mounted_anywhere(showing: Showing, root: str, strips: bool) -> None:
    async with showing() as client:
        client.root = root
        client.app = strip(client.app) if strips else client.app
        page = await client.ask("/kinds")
        assert page.status == 200
        quoted = root.replace(" ", "%20").replace("ä", "%C3%A4")
        assert f'<a href="{quoted}/errors">' in page.text
        assert f'src="{quoted}/assets/live.js?' in page.text
        client.token = None
        assert (await client.ask("/errors")).header("location") == f"{quoted}/login?next=errors"
        await client.post("/login", token=TOKEN)
        assert (await client.ask("/kinds")).status == 200
        if root:
            assert (await client.ask("")).header("location") == f"{quoted}/"


@pytest.mark.parametrize(
    "path", ["/debugger", "/debug/..", "/debug/../kinds", "/kinds//", "/kinds/x", "/objects/%2e%2e", "/\r\nx"]
)
async def test_paths_that_are_no_pages_are_not_found(showing: Showing, path: str) -> None:
    async with showing() as client:
        answer = await client.ask(path)
        assert answer.status == 404
        assert "location" not in dict(answer.headers)


@pytest.mark.parametrize(
    "path", ["//evil.example", "/%2fevil.example/", "/%5cevil.example", "//kinds", "/\\evil.example"]
)
async def test_no_path_leads_to_another_host(showing: Showing, path: str) -> None:
    async with showing() as client:
        client.token = None
        location = (await client.ask(path)).header("location")
        assert location.startswith("/login?next=")
        client.cookies.clear()
        answer = await client.post(location, token=TOKEN)
        assert answer.header("location") in ("/", "/kinds")


async def test_long_urls_are_refused(showing: Showing) -> None:
    async with showing() as client:
        assert (await client.ask(f"/?q={'x' * 5000}")).status == 414


async def test_lifespans_are_accepted_and_websockets_closed() -> None:
    view = trioperator.live_view_app()
    sent: list[str] = []
    events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await view({"type": "lifespan"}, receive, send)
    await view({"type": "websocket", "path": "/"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


@pytest.mark.parametrize("missing", ["quart_trio", "quart", "jinja2"])
def test_without_quart_trio_the_error_names_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith("trioperator._endpoints.live_view.") and not name.endswith((".app", ".access")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=r"pip install 'trioperator\[live-view\]'"):
        trioperator.live_view_app()


def test_an_operator_without_a_live_view_loads_nothing_of_it() -> None:
    program = """
import sys, trio, trioperator
from trioperator.apiserver import Cluster

@trioperator.on.create("namespaces")
async def created(**_): ...

async def main():
    stop, ready = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: trioperator.operator(
            standalone=True, transport=Cluster().transport(), stop_flag=stop, ready_flag=ready,
            connection=trioperator.ConnectionInfo(server="http://embedded"), metrics_endpoint="http://127.0.0.1:0",
        ))
        await ready.wait()
        stop.set()

trio.run(main)
heavy = ("quart", "quart_trio", "jinja2", "werkzeug", "flask")
print([name for name in sys.modules if name.partition(".")[0] in heavy or "live_view" in name])
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.strip() == "[]"


async def test_the_operator_ends_though_a_stream_is_open(showing: Showing) -> None:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            ended = trio.Event()

            async def watch(client: Client) -> None:
                async with client.stream("/kinds") as stream:
                    await stream.until(lambda: stream.states)
                    seen.set()
                    await stream.ended.wait()
                    assert stream.events[-1] == "end"
                ended.set()

            seen = trio.Event()
            async with showing() as client:
                nursery.start_soon(watch, client)
                await seen.wait()
            await ended.wait()
