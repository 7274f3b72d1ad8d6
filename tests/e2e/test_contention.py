"""A fight over a label on a real API server, which records who has set it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

from tests.controlplane import ControlPlane
from tests.e2e.test_life import example, some_name, until
from tests.program import Program

OPERATOR = """
import trioperator

@trioperator.on.event('kopfexamples', labels={'only': 'ONLY'})
async def insist(patch, **_):
    patch.metadata.labels['team'] = 'ours'
"""
STOMPER = """
import sys
import trio
import trioperator

async def stomp(name):
    settings = trioperator.OperatorSettings()
    settings.persistence.field_manager = "stomper"
    async with trioperator.open_client(settings=settings) as client:
        while True:
            theirs = {"metadata": {"labels": {"team": "theirs"}}}
            await client.patch("kopfexamples", name, namespace="default", merge=theirs)
            await trio.sleep(1 / 13)

trio.run(stomp, sys.argv[1])
"""


def test_the_other_manager_is_named_and_the_fight_slows_down_and_ends(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    name = some_name()
    body = example(name)
    body["metadata"]["labels"] = {"only": name}
    operator = start_operator(OPERATOR.replace("ONLY", name))
    controlplane.apply(body)
    until(lambda: controlplane.get("kex", name)["metadata"]["labels"].get("team") == "ours")
    environment = {**os.environ, "KUBECONFIG": str(controlplane.folder / "operator.kubeconfig")}
    stomper = subprocess.Popen([sys.executable, "-c", STOMPER, name], env=environment)
    try:
        until(lambda: controlplane.get("kex", name)["metadata"]["labels"].get("team") == "theirs")
        operator.wait_for("metadata.labels.team is changed by stomper repeatedly", seconds=10)
        began = len(own_writes(controlplane, name))
        time.sleep(65)
        assert len(own_writes(controlplane, name)) - began <= 1
    finally:
        stomper.kill()
        stomper.wait()
    stopped = time.monotonic()
    until(lambda: controlplane.get("kex", name)["metadata"]["labels"].get("team") == "ours", seconds=120)
    assert time.monotonic() - stopped <= 120
    events = controlplane.get("events", "--field-selector", f"involvedObject.name={name}")["items"]
    assert [event for event in events if event["reason"] == "Contended" and "by stomper" in event["message"]]
    assert operator.stop() == 0
    assert "Traceback" not in operator.output


def own_writes(controlplane: ControlPlane, name: str) -> list[object]:
    """Return the writes of an object under the operator's name, by the audit log."""
    found = controlplane.requests(verb="patch")
    return [
        each
        for each in found
        if each["objectRef"].get("name") == name and "fieldManager=stomper" not in each["requestURI"]
    ]
