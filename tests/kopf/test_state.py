"""Operators change from Kopf to trioperator and back while objects are mid-retry, with the Kopf that is installed."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import yaml

from tests.coordination.peers import peering, peering_crd
from tests.kopf.examples import Log
from tests.kopf.programs import MANIFESTS
from tests.processes.conftest import environment
from trioperator.apiserver import Cluster

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kopf") is None, reason="kopf is not installed")

OPERATOR = """
import asyncio
import os
import kopf

SECOND = "SECOND" in os.environ

def is_slow(spec, **_):
    return spec.get("slow")

@kopf.on.create("shapes")
@kopf.on.resume("shapes")
async def once(logger, reason, **_):
    await asyncio.sleep(0)
    logger.info(f"once: {reason}")

@kopf.on.create("shapes", when=is_slow)
async def flaky(retry, logger, **_):
    logger.info(f"flaky: {retry}")
    if not SECOND:
        raise kopf.TemporaryError("not yet", delay=0.2)

@kopf.on.create("shapes", when=is_slow)
def later(retry, logger, **_):
    logger.info(f"later: {retry}")
    raise kopf.TemporaryError("not for an hour", delay=3600)

@kopf.on.create("shapes", when=is_slow, retries=2, backoff=0.1)
async def hopeless(retry, logger, **_):
    logger.info(f"hopeless: {retry}")
    raise ValueError("never")

@kopf.on.create("shapes", when=is_slow, id="a-handler/with.a" + 80 * "-long" + "-id")
async def parent(**_):
    @kopf.subhandler(id="a")
    async def a(logger, **_):
        logger.info("sub a")

    @kopf.subhandler(id="b")
    async def b(logger, retry, **_):
        logger.info(f"sub b: {retry}")
        if not SECOND:
            raise kopf.TemporaryError("not yet", delay=0.2)

@kopf.on.update("shapes")
async def updated(diff, logger, **_):
    logger.info(f"updated: {[(str(d[0]), '.'.join(d[1]), d[2], d[3]) for d in diff]}")

@kopf.on.delete("shapes")
async def deleted(logger, **_):
    logger.info("deleted")
"""
BOTH_WAYS = pytest.mark.parametrize(("first", "second"), [("kopf", "trioperator.kopf"), ("trioperator.kopf", "kopf")])


def shape(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "conformance.dev/v1", "kind": "Shape", "metadata": metadata, "spec": spec}


@contextlib.asynccontextmanager
async def running(module: str, home: pathlib.Path, *args: str, **env: str) -> AsyncIterator[Log]:
    """Run the operator until the end of the block, then stop it in order."""
    log = Log()
    command = [sys.executable, "-m", module, "run", "--all-namespaces", "--verbose", *args, "app.py"]
    variables = environment(home, KUBECONFIG=str(home / "kubeconfig"), PYTHONWARNINGS="ignore", **env)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    async with trio.open_nursery() as nursery:
        run = functools.partial(trio.run_process, command, cwd=home, env=variables, check=False, **pipes)
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        nursery.start_soon(log.collect, process.stdout)
        try:
            yield log
            process.send_signal(signal.SIGTERM)
            with trio.fail_after(60):
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()


@pytest.fixture
async def home(cluster: Cluster, cluster_url: str, tmp_path: pathlib.Path) -> pathlib.Path:
    await cluster.apply(yaml.safe_load(MANIFESTS.partition("---")[0]))
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(cluster.kubeconfig(cluster_url)))
    (tmp_path / "app.py").write_text(OPERATOR)
    return tmp_path


def read_progress(obj: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(obj["metadata"]["annotations"][f"kopf.zalando.org/{name}"])
    return found


async def seen(log: Log, *patterns: str) -> None:
    for pattern in patterns:
        assert await log.wait_for(pattern), f"{pattern!r} is not in:\n{log.text}"


@BOTH_WAYS
async def test_the_other_operator_goes_on_where_this_one_has_stopped(
    first: str, second: str, cluster: Cluster, home: pathlib.Path
) -> None:
    async with running(first, home, "--standalone") as before:
        for obj in (shape("quick", size=1), shape("gone"), shape("slow", slow=True)):
            await cluster.create(obj)
        await seen(before, r"\[default/quick\] Creation is processed", r"\[default/gone\] Creation is processed")
        await seen(before, r"flaky: 2", r"later: 0", r"sub b: 2", r"'hopeless' failed (permanently|with an exc.* stop)")
    between = await cluster.get("shapes", "slow")
    assert between["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    await cluster.patch("shapes", "quick", {"spec": {"size": 2}})
    await cluster.delete("shapes", "gone")

    async with running(second, home, "--standalone", SECOND="1") as after:
        await seen(after, r"\[default/quick\] updated", r"\[default/gone\] deleted", "flaky: ", "sub b: ")
        await seen(after, r"\[default/quick\] Updating is processed", "Handler 'flaky' succeeded", r"/b' succeeded")
        await cluster.wait_deleted("shapes", "gone")
        await cluster.wait_for("shapes", "slow", lambda found: read_progress(found, "flaky")["success"])
        await trio.sleep(0.5)  # for what must not happen

    log = after.text
    assert "updated: [('change', 'spec.size', 1, 2)]" in log, "the last-handled configuration is the other's"
    assert "once: create" not in log
    for name in ("flaky", "sub b"):  # attempts are counted on
        attempts = [int(number) for number in re.findall(rf"{name}: (\d+)", before.text + log)]
        assert attempts == list(range(len(attempts)))
    assert "later: " not in log, "its delay is not over"
    assert "hopeless: " not in log, "it has failed for good"
    assert "sub a" not in log, "it has succeeded"
    slow = await cluster.get("shapes", "slow")
    delayed = read_progress(slow, "later")
    assert delayed["retries"] == 1
    assert delayed["delayed"] == read_progress(between, "later")["delayed"]
    assert delayed["started"] == read_progress(between, "later")["started"]
    foreign = [key for key in slow["metadata"]["annotations"] if not key.startswith("kopf.zalando.org/")]
    assert foreign == []
    assert slow["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    handled = json.loads((await cluster.get("shapes", "quick"))["metadata"]["annotations"][LAST_HANDLED])
    assert handled["spec"] == {"size": 2}


LAST_HANDLED = "kopf.zalando.org/last-handled-configuration"


@BOTH_WAYS
async def test_one_pauses_while_the_other_runs_with_a_higher_priority(
    first: str, second: str, cluster: Cluster, home: pathlib.Path
) -> None:
    await cluster.apply(peering_crd())
    await cluster.apply(peering())
    async with running(first, home, "--priority=1", "--peering=default") as low:
        await cluster.create(shape("one"))
        await seen(low, r"\[default/one\] Creation is processed")
        async with running(second, home, "--priority=2", "--peering=default") as high:
            # Kopf logs the pause a moment before it begins, and what happens in between is still handled.
            stopped = "Pausing the watch-stream for shapes" if first == "kopf" else ""
            await seen(low, f"(?s)Pausing operations in favour of.*{stopped}")
            await cluster.create(shape("two"))
            await seen(high, r"\[default/two\] Creation is processed")
            assert "[default/two] once: create" not in low.text
            assert "[default/one] once: create" not in high.text
        await seen(low, "Resuming operations")
        await cluster.create(shape("three"))
        await seen(low, r"\[default/three\] Creation is processed")
