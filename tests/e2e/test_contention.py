"""Three fights that others have published, on a real API server, which records who has written what."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from tests.controlplane import ControlPlane
from tests.e2e.test_life import example, some_name, until
from tests.program import Program

OPERATOR = """
import trioperator

@trioperator.on.event('kopfexamples', labels={'fight': 'label'})
async def insist_on_label(patch, **_):
    patch.metadata.labels['team'] = 'ours'

@trioperator.on.event('kopfexamples', labels={'fight': 'replicas'})
async def insist_on_replicas(patch, **_):
    patch.spec['replicas'] = 3

@trioperator.on.event('kopfexamples', labels={'fight': 'neg'})
async def insist_on_annotation(patch, **_):
    patch.metadata.annotations['neg-status'] = ''
"""
# A label is stomped on 13 times a second; another operator wants other replicas; and an annotation has the state of a
# load balancer, as that of network endpoint groups.
OTHERS = """
import sys
import trio
import trioperator

async def stomp(write, read):
    while True:
        await write({"metadata": {"labels": {"team": "theirs"}}})
        await trio.sleep(1 / 13)

async def scale(write, read):
    while True:
        if (await read())["spec"].get("replicas") != 5:
            await write({"spec": {"replicas": 5}})
        await trio.sleep(0.5)

async def annotate(write, read):
    number = 0
    while True:
        number += 1
        if not (await read())["metadata"].get("annotations", {}).get("neg-status"):
            await write({"metadata": {"annotations": {"neg-status": f"zone-{number}"}}})
        await trio.sleep(1)

async def fight(manager, name, do):
    settings = trioperator.OperatorSettings()
    settings.persistence.field_manager = manager
    async with trioperator.open_client(settings=settings) as client:
        await do(
            lambda patch: client.patch("kopfexamples", name, namespace="default", merge=patch),
            lambda: client.get("kopfexamples", name, namespace="default"),
        )

async def main(label, replicas, neg):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fight, "stomper", label, stomp)
        nursery.start_soon(fight, "scaler", replicas, scale)
        nursery.start_soon(fight, "balancer", neg, annotate)

trio.run(main, *sys.argv[1:])
"""
# The other manager of each fight, the field, and our value.
FIGHTS = {
    "label": ("stomper", "metadata.labels.team", "ours"),
    "replicas": ("scaler", "spec.replicas", 3),
    "neg": ("balancer", "metadata.annotations.neg-status", ""),
}


def test_the_other_managers_are_named_and_the_fights_slow_down_and_end(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    names = {fight: some_name() for fight in FIGHTS}
    operator = start_operator(OPERATOR)
    try:
        for fight, name in names.items():
            body = example(name)
            body["metadata"]["labels"] = {"fight": fight}
            controlplane.apply(body)
        until(lambda: all(is_ours(controlplane, fight, name) for fight, name in names.items()))
        with fighting(controlplane, *names.values()):
            until(lambda: not any(is_ours(controlplane, fight, name) for fight, name in names.items()))
            deadline = time.monotonic() + 10
            for manager, field, _ in FIGHTS.values():
                text = f"{field} is changed by {manager} repeatedly"
                operator.wait_for(text, seconds=deadline - time.monotonic())
            before = [count_own_writes(controlplane, name) for name in names.values()]
            time.sleep(65)
            since = [count_own_writes(controlplane, name) for name in names.values()]
            assert max(after - count for after, count in zip(since, before, strict=True)) <= 1
        until(lambda: all(is_ours(controlplane, fight, name) for fight, name in names.items()), seconds=120)
        for fight, name in names.items():
            assert_event(controlplane, fight, name)
    finally:
        controlplane.kubectl("delete", "kex", *names.values(), "--ignore-not-found")
    assert operator.stop() == 0
    assert "Traceback" not in operator.output


@contextlib.contextmanager
def fighting(controlplane: ControlPlane, *names: str) -> Iterator[None]:
    """Let the others fight over these objects during the block."""
    environment = {**os.environ, "KUBECONFIG": str(controlplane.folder / "operator.kubeconfig")}
    others = subprocess.Popen([sys.executable, "-c", OTHERS, *names], env=environment)
    try:
        yield
        assert others.poll() is None
    finally:
        others.kill()
        others.wait()


def is_ours(controlplane: ControlPlane, fight: str, name: str) -> bool:
    """Return whether the field has our value."""
    _, field, wanted = FIGHTS[fight]
    value = controlplane.get("kex", name)
    for key in field.split("."):
        value = value.get(key, {})
    return bool(value == wanted)


def assert_event(controlplane: ControlPlane, fight: str, name: str) -> None:
    """Check that an Event of the object names the other manager and the field."""
    manager, field, _ = FIGHTS[fight]
    events = controlplane.get("events", "--field-selector", f"involvedObject.name={name}")["items"]
    messages = [event["message"] for event in events if event["reason"] == "Contended"]
    assert any(field in each and f"by {manager}" in each for each in messages), messages


def count_own_writes(controlplane: ControlPlane, name: str) -> int:
    """Return the number of the operator's writes of an object, by the audit log."""
    others = [f"fieldManager={manager}" for manager, *_ in FIGHTS.values()]
    return sum(
        each["objectRef"].get("name") == name and not any(manager in each["requestURI"] for manager in others)
        for each in controlplane.requests(name, verb="patch")
    )
