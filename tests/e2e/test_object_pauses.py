"""Paused and poked objects, and what tools read of them, on a real control plane: docs/day-two.md."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import forking
from tests.controlplane import ControlPlane
from tests.e2e.test_life import until
from tests.program import Program
from tests.reconciling.test_kstatus import crd

GROUP = "paused.example.com"
APP = """
import trioperator

KIND = "widgets.paused.example.com"

@trioperator.on.create(KIND)
@trioperator.on.update(KIND)
async def change(spec, logger, **_):
    logger.info(f"changed to {spec['size']}")

@trioperator.timer(KIND, interval=0.5)
async def tick(logger, **_):
    logger.info("tick")

@trioperator.on.reconcile(KIND, owns=["configmaps"])
async def reconcile(name, spec, logger, **_):
    logger.info("reconcile")
    if spec["size"] < 0:
        name = "No Name"
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"size": str(spec["size"])}}
"""


def trioperator(plane: ControlPlane, *args: str) -> str:
    """Run the command, which must succeed, and return what it prints."""
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    done = forking.run(args, env=environment)
    done.check_returncode()
    return done.stdout


@pytest.fixture
def widgets(controlplane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with a kind of its own, whose status has conditions."""
    made = crd()
    made["metadata"]["name"], made["spec"]["group"] = f"widgets.{GROUP}", GROUP
    controlplane.apply(made)
    controlplane.kubectl("wait", "--for=condition=Established", "crd", f"widgets.{GROUP}")
    yield controlplane
    for name in controlplane.kubectl("get", f"widgets.{GROUP}", "-o", "name").split():  # an operator may have ended
        controlplane.kubectl("patch", name, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
    controlplane.kubectl("delete", "crd", f"widgets.{GROUP}")


def make_widget(plane: ControlPlane, name: str, size: int = 1) -> None:
    metadata = {"name": name, "namespace": "default"}
    plane.apply({"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": size}})


def edit(plane: ControlPlane, name: str, size: int) -> None:
    plane.kubectl("patch", f"widgets.{GROUP}", name, "--type=merge", "-p", json.dumps({"spec": {"size": size}}))


def get(plane: ControlPlane, kind: str, name: str) -> dict[str, Any] | None:
    found = plane.kubectl("get", kind, name, "-o", "json", "--ignore-not-found")
    return json.loads(found) if found else None


def conditions(plane: ControlPlane, name: str) -> dict[str, str]:
    widget = get(plane, f"widgets.{GROUP}", name) or {}
    found = widget.get("status", {}).get("conditions", [])
    return {each["type"]: f"{each['status']} {each['reason']}" for each in found}


def versions(plane: ControlPlane, name: str) -> list[str | None]:
    """Return the versions of an object and its child, which each write would change."""
    found = [get(plane, f"widgets.{GROUP}", name), get(plane, "configmap", name)]
    return [None if each is None else str(each["metadata"]["resourceVersion"]) for each in found]


def assert_untouched(plane: ControlPlane, name: str, operator: Program, seconds: float = 3) -> None:
    """Assert that nothing is written, and no handler is called, for some seconds."""
    before, lines = versions(plane, name), operator.output.count(f"[default/{name}]")
    time.sleep(seconds)
    assert versions(plane, name) == before
    assert operator.output.count(f"[default/{name}]") == lines


def test_a_paused_object_is_left_alone_and_all_is_done_afterwards(
    widgets: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    kind, name = f"widgets.{GROUP}", "orders"
    operator = start_operator(APP, "--standalone")
    make_widget(widgets, name)
    operator.wait_for(f"[default/{name}] changed to 1")
    widgets.kubectl("wait", "--for=condition=Ready", kind, name, "--timeout=30s")
    printed = trioperator(widgets, "pause", f"{kind}/{name}", "-n", "default", "--reason", "DBA at work")
    assert printed == f"{kind}/default/{name}: paused: DBA at work\n"
    widgets.kubectl("wait", "--for=condition=Paused", kind, name, "--timeout=30s")
    assert_untouched(widgets, name, operator)
    edit(widgets, name, 2)
    widgets.kubectl("patch", "configmap", name, "--type=merge", "-p", '{"data": {"size": "9"}}')
    assert_untouched(widgets, name, operator)
    widgets.kubectl("delete", "configmap", name)
    assert_untouched(widgets, name, operator)
    operator.process.kill()
    operator.process.wait()
    edit(widgets, name, 3)
    again = start_operator(APP, "--standalone")
    assert_untouched(widgets, name, again)
    uid = widgets.get(kind, name)["metadata"]["uid"]  # other objects of this namespace may have been paused, too
    selected = f"reason=Paused,involvedObject.uid={uid}"
    assert len(widgets.get("events", f"--field-selector={selected}")["items"]) == 1

    trioperator(widgets, "unpause", f"{kind}/{name}", "-n", "default")
    again.wait_for(f"[default/{name}] changed to 3")
    again.wait_for(f"[default/{name}] tick")
    until(lambda: (get(widgets, "configmap", name) or {"data": {}})["data"].get("size") == "3")
    until(lambda: "Paused" not in conditions(widgets, name))
    count = again.output.count(f"[default/{name}] reconcile")
    trioperator(widgets, "poke", f"{kind}/{name}", "-n", "default")
    again.wait_for(f"[default/{name}] reconcile", count=count + 1)

    trioperator(widgets, "pause", f"{kind}/{name}", "-n", "default", "--until", "30s")
    until(lambda: "Paused" in conditions(widgets, name))
    edit(widgets, name, 4)
    assert_untouched(widgets, name, again, seconds=2)
    again.wait_for(f"[default/{name}] changed to 4")  # it has expired
    trioperator(widgets, "pause", f"{kind}/{name}", "-n", "default")
    widgets.kubectl("delete", kind, name, "--timeout=30s")  # the deletion goes on
    assert again.stop() == 0


def test_what_tools_read_of_an_object_says_whether_it_is_done(
    widgets: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    kind, name = f"widgets.{GROUP}", "books"
    operator = start_operator(APP, "--standalone")
    make_widget(widgets, name, size=-1)
    widgets.kubectl("wait", "--for=condition=Applied=False", kind, name, "--timeout=30s")
    shown = conditions(widgets, name)
    assert shown["Ready"].startswith("False")
    assert "Reconciling" in shown or "Stalled" in shown
    edit(widgets, name, 1)
    widgets.kubectl("wait", "--for=condition=Ready", kind, name, "--timeout=60s")
    widget = get(widgets, kind, name)
    assert widget is not None
    assert widget["status"]["observedGeneration"] == widget["metadata"]["generation"] == 2
    assert conditions(widgets, name).keys() == {"Ready", "Applied"}
    assert operator.stop() == 0
