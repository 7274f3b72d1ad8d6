"""Tests for :mod:`trioperator.cli.why`: what has happened to an object of a running operator, in the terminal."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import pytest
import trio
import typer

import trioperator
from tests.runtime.conftest import CRD, Bench, widget
from trioperator._concurrency.threads import run_in_thread
from trioperator.apiserver import Cluster
from trioperator.cli.why import why

on = trioperator.on


@pytest.fixture
async def bench(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> Bench:
    caplog.set_level("INFO")
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.enabled = False
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


async def test_a_running_operator_says_why_an_object_was_reconciled(
    bench: Bench, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    handled = trio.Event()

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["phase"] = "Ready"
        handled.set()

    async def call(name: str, **options: Any) -> int:
        try:
            run = functools.partial(why, context=None, object=name, url=url, **options)
            await run_in_thread(run, limiter=trio.CapacityLimiter(1))
        except typer.Exit as error:
            return error.exit_code
        return 0

    await bench.cluster.create(widget())
    view: dict[str, Any] = {"live_view_endpoint": "http://127.0.0.1:0", "live_view_token": "secret"}
    view["liveness_endpoint"] = "http://127.0.0.1:0/healthz"
    with trio.fail_after(60):
        async with bench.running(standalone=True, **view):
            [url] = re.findall(r"Serving the live view at (\S+)/debug", caplog.text)
            await handled.wait()
            await bench.cluster.wait_for("widgets", "w", lambda found: found.get("status", {}).get("phase") == "Ready")
            await trio.testing.wait_all_tasks_blocked(0.1)
            assert await call("widget/w") == 1
            assert "the token is missing or wrong. Pass --token" in capsys.readouterr().err
            assert await call("Widget/default/w", token="secret") == 0
            text = capsys.readouterr().out
            assert re.search(r"create succeeded in \d+ ms", text)
            assert "patch widgets/w" in text
            assert await call("widgets/w", namespace="default", token="secret", json=True) == 0
            found = json.loads(capsys.readouterr().out)
            assert (found["kind"], found["name"], found["runs"]) == ("widgets.example.com", "w", 1)
            assert await call("widgets/nobody", token="secret") == 1
            assert "Nothing has happened to such an object lately" in capsys.readouterr().err
            [url] = re.findall(r"Serving health status at (\S+)/healthz", caplog.text)
            assert await call("widgets/w") == 1
            assert f"Cannot get the live view from {url}: there is none." in capsys.readouterr().err
    assert await call("widgets/w") == 1
    assert f"Cannot get the live view from {url}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["orders", "databases/", "/orders", "databases/default/"])
def test_an_object_needs_a_kind_and_a_name(name: str) -> None:
    with pytest.raises(typer.BadParameter, match="KIND/NAME"):
        why(context=None, object=name)


def test_a_namespace_is_given_once() -> None:
    with pytest.raises(typer.BadParameter, match="KIND/NAMESPACE/NAME"):
        why(context=None, object="databases/default/orders", namespace="other")
