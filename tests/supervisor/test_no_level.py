"""Tests for :mod:`trioperator._supervisor.no_level`: what operators without reconcile handlers do not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

_OPERATOR = """
import sys
import trio, trioperator
from trioperator.apiserver import Cluster

@trioperator.on.{decorator}("configmaps")
async def fn(name, **_):
    stop.set()

async def main():
    cluster = Cluster()
    meta = {{"name": "a", "namespace": "default"}}
    await cluster.create({{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}})
    with trio.fail_after(60):
        await trioperator.operator(
            clusterwide=True,
            standalone=True,
            stop_flag=stop,
            transport=cluster.transport(),
            connection=trioperator.ConnectionInfo(server="http://embedded"),
        )
    print("trioperator._reconciling" in sys.modules)

stop = trio.Event()
trio.run(main)
"""


@pytest.mark.parametrize(("decorator", "loads"), [("event", False), ("create", False), ("reconcile", True)])
def test_level_reconciling_is_loaded_only_for_reconcile_handlers(decorator: str, loads: bool) -> None:
    command = [sys.executable, "-c", _OPERATOR.format(decorator=decorator)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.splitlines()[-1] == str(loads)
