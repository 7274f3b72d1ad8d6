"""Tests for :mod:`trioperator.cli.top`: what the terminal shows of an operator, and what can be done from there."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

import pytest
import trio
import typer
from rich.console import Console
from typer.testing import CliRunner

import trioperator
from tests.runtime.conftest import CRD, Bench, widget
from trioperator._concurrency.threads import run_in_thread
from trioperator.apiserver import Cluster
from trioperator.cli.root import app
from trioperator.cli.top import open_view, render, top

on = trioperator.on
CALL: Final = {
    "handler": "create",
    "kind": "Handler",
    "object": "Widget/default/w",
    "uid": "u",
    "cause": "create",
    "retry": 0,
}
SNAPSHOT: Final[dict[str, Any]] = {
    "ready": True,
    "paused": [],
    "queue": {
        "queued": 1,
        "at_work": 2,
        "delayed": 3,
        "limit": 256,
        "objects": [
            {
                "object": "Widget/default/x",
                "uid": "x",
                "due": 12.5,
                "why": "retry",
                "handler": "create",
                "retry": 3,
                "error": "ValueError: no",
            },
            {"object": "Widget/\x1b[2J", "uid": "y", "due": 0, "why": "change"},
        ],
    },
    "timers": [{"object": "Widget/default/z", "uid": "z", "kind": "Timer", "id": "tick", "due": 7.25}],
    "watches": [
        {
            "resource": "widgets.example.com",
            "path": "/",
            "state": "watching",
            "objects": 7,
            "events": 9,
            "idle": 3.2,
            "purpose": "related objects",
        }
    ],
    "calls": [{**CALL, "seconds": 1.25, "deadline": 8.0, "at": "main.py:3 in create", "waits": "trio.sleep"}] * 25,
    "tasks": {"name": "main", "children": [{"name": "worker", "at": "x.py:1 in f"}] * 12},
    "omitted": 0,
    "paused_objects": {"count": 1, "objects": [{"object": "Widget/default/p", "uid": "p", "paused": "paused: DBA"}]},
}


def show(*, tree: bool = False) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(render(SNAPSHOT, tree=tree))
    return capture.get()


def test_handlers_the_queue_and_watches_are_tables() -> None:
    text = show()
    assert "trioperator: active, 25 handlers, 2 at work, 1 queued, 3 due later, 7 objects" in text
    assert re.search(r"create +Widget/default/w +create +1\.2 s +8\.0 s +main\.py:3 in create +trio\.sleep", text)
    assert re.search(r"Widget/default/x +in 12\.5 s +retry of create +ValueError: no \(retry 3\)", text)
    assert re.search(r"tick +Widget/default/z +in 7\.2 s", text)
    assert re.search(r"widgets\.example\.com +related objects +watching", text)
    assert re.search(r"Widget/default/p +paused: DBA", text)
    assert "and 5 more" in text
    assert "worker" not in text


def test_titles_of_empty_tables_are_on_one_line() -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(render({**SNAPSHOT, "queue": {**SNAPSHOT["queue"], "objects": []}, "timers": [], "calls": []}))
    titles = {line.strip() for line in capture.get().splitlines()}
    assert {"Running handlers", "Next in the queue", "Next timers"} <= titles


@pytest.mark.parametrize("url", ["http://operator.example:8083", "http://10.0.0.1:8083/debug", "ftp://127.0.0.1"])
def test_a_token_is_not_sent_where_others_can_read_it(url: str) -> None:
    with pytest.raises(typer.BadParameter), open_view(url, "secret"):
        raise AssertionError


@pytest.mark.parametrize("url", ["http://localhost:8083", "http://[::1]:8083", "https://operator.example"])
def test_a_token_is_sent_by_tls_or_to_this_machine(url: str) -> None:
    with open_view(url, "secret") as client:
        assert client.headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:x", "ftp://x", "x", ""])
def test_a_url_that_is_none_is_an_error_in_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, open_view(url, None) as view:
        view.get("why")
    assert caught.value.exit_code == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("interval", ["nan", "inf", "1e300"])
def test_an_interval_that_nobody_can_wait_for_is_refused(interval: str) -> None:
    result = CliRunner().invoke(app, ["top", "http://127.0.0.1:1", "--interval", interval])
    assert result.exit_code == 2
    assert "--interval" in result.output


@pytest.mark.parametrize(("scheme", "advised"), [("http", True), ("https", False)])
def test_only_a_url_that_an_operator_can_serve_is_advised(
    scheme: str, advised: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), open_view(f"{scheme}://127.0.0.1:1", None) as view:
        view.get("why")
    assert ("Start the operator with --live-view" in capsys.readouterr().err) is advised


def test_the_tree_is_shown_on_request_and_limited() -> None:
    text = show(tree=True)
    assert text.count("worker  x.py:1 in f") == 8
    assert "and 4 more" in text


def test_control_characters_in_names_do_not_reach_the_terminal() -> None:
    assert "\x1b[2J" not in show()
    assert "Widget/?[2J" in show()


@pytest.fixture
async def bench(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> Bench:
    caplog.set_level("INFO")
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.enabled = False
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


async def test_a_running_operator_is_shown_and_its_handlers_can_be_cancelled(
    bench: Bench, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, again = trio.Event(), trio.Event()

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        if not begun.is_set():
            begun.set()
            await trio.sleep_forever()
        again.set()

    async def call(**options: Any) -> int:
        try:
            await run_in_thread(lambda: top(context=None, url=url, **options), limiter=trio.CapacityLimiter(1))
        except typer.Exit as error:
            return error.exit_code
        return 0

    await bench.cluster.create(widget())
    view: dict[str, Any] = {"live_view_endpoint": "http://127.0.0.1:0", "live_view_token": "secret"}
    with trio.fail_after(60):
        async with bench.running(standalone=True, **view):
            [url] = re.findall(r"Serving the live view at (\S+)/debug", caplog.text)
            await begun.wait()
            assert await call(once=True) == 1
            assert "the token is missing or wrong. Pass --token" in capsys.readouterr().err
            assert await call(once=True, tree=True, token="secret") == 0
            assert "active, 1 handlers" in capsys.readouterr().out
            assert await call(cancel="Widget/default/w", token="wrong") == 1
            assert "the token is missing or wrong. Pass --token" in capsys.readouterr().err
            assert await call(cancel="Widget/default/w") == 1
            assert "the token is missing or wrong. Pass --token" in capsys.readouterr().err
            assert await call(cancel="widget/default/w", token="secret") == 0
            assert capsys.readouterr().out == "Handler 'create' of Widget default/w is cancelled\n"
            await again.wait()
            assert await call(requeue="no-such-uid", token="secret") == 1
    assert await call(once=True) == 1
    printed = capsys.readouterr().err
    assert f"Cannot get the live view from {url}" in printed
    assert f"Start the operator with --live-view {url} to serve it there." in printed


async def test_q_ends_it(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    leader, follower = os.openpty()
    async with bench.running(standalone=True, live_view_endpoint="http://127.0.0.1:0"):
        [url] = re.findall(r"Serving the live view at (\S+)/debug", caplog.text)
        command = [sys.executable, "-m", "trioperator", "top", url]
        with os.fdopen(leader, "r+b", buffering=0) as terminal, trio.fail_after(60):
            process = await trio.lowlevel.open_process(command, stdin=follower, stdout=follower, stderr=follower)
            os.close(follower)
            shown = b""
            while b"trioperator: active" not in shown:
                shown += await run_in_thread(lambda: terminal.read(4096), limiter=trio.CapacityLimiter(1))
            terminal.write(b"q")
            assert await process.wait() == 0
