"""Handlers are called as under the Kopf that is installed: how often, with which arguments, and what is stored."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import pytest
import trio
import yaml

from tests.kopf.calls import OPERATOR, SCENARIOS, find_calls
from tests.kopf.programs import MANIFESTS
from tests.kopf.test_state import running
from tests.world.states import normalize
from trioperator.apiserver import Cluster, serve_cluster, write_kubeconfig

pytestmark = pytest.mark.skipif(importlib.util.find_spec("kopf") is None, reason="kopf is not installed")


async def play(module: str, name: str, home: pathlib.Path) -> tuple[dict[str, list[str]], list[str]]:
    """Play a scenario with an operator in a process of its own; return its calls, and what is stored in the end."""
    cluster = Cluster(seed=0)
    home.mkdir()  # noqa: ASYNC240 -- nothing else runs
    (home / "app.py").write_text(OPERATOR)
    await cluster.apply(yaml.safe_load(MANIFESTS.partition("---")[0]))
    before = [obj["metadata"]["uid"] for obj in cluster.objects()]
    async with trio.open_nursery() as nursery:
        url = str(await nursery.start(serve_cluster, cluster))
        write_kubeconfig(str(home / "kubeconfig"), cluster.kubeconfig(url))
        async with running(module, home, "--standalone") as log:
            await SCENARIOS[name](cluster, log)
        nursery.cancel_scope.cancel(reason="the scenario has ended")
    return find_calls(log.text), normalize(cluster.objects(), before, [])


@pytest.mark.parametrize("name", SCENARIOS)
async def test_calls_and_objects_are_the_same(name: str, tmp_path: pathlib.Path) -> None:
    found: dict[str, Any] = {}

    async def one(module: str) -> None:
        found[module] = await play(module, name, tmp_path / module)

    async with trio.open_nursery() as nursery:
        for module in ("kopf", "trioperator.kopf"):
            nursery.start_soon(one, module)
    (calls, objects), (expected, stored) = found["trioperator.kopf"], found["kopf"]
    assert calls == expected
    if name != "daemons":  # Kopf notices up to a minute later that they have ended
        assert objects == stored
