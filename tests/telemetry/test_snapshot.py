"""Tests for :mod:`trioperator._telemetry.snapshot`: what it shows of a running operator, and what it costs."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._telemetry.inspector import Inspector
from trioperator._telemetry.snapshot import shorten_task, take_snapshot
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


@pytest.fixture
async def bench(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Bench:
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.enabled = False
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Inspector]:
    """Return a list that gets the parts of operators that are created."""
    made: list[Inspector] = []

    class Kept(Inspector):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr("trioperator._supervisor.assembly.Inspector", Kept)
    return made


def shown(parts: list[Inspector]) -> dict[str, Any]:
    return take_snapshot(parts[0], trio.lowlevel.current_task())


def names(node: dict[str, Any]) -> set[str]:
    return {node["name"]}.union(*(names(child) for child in node.get("children", ())))


async def test_it_shows_what_runs_for_which_object_and_what_it_waits_for(
    bench: Bench, parts: list[Inspector], autojump_clock: MockClock
) -> None:
    plan = FaultPlan()

    @on.create("widgets", id="sleeps", field="spec.sleeps", timeout=100, registry=bench.registry)
    async def sleeps(**_: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 50)

    @on.create("widgets", id="fails", field="spec.fails", registry=bench.registry)
    async def fails(**_: Any) -> None:
        raise trioperator.TemporaryError("later", delay=30)

    @on.create("widgets", id="done", field="spec.stored", registry=bench.registry)
    async def done(patch: Any, **_: Any) -> None:
        patch.status["done"] = True

    @on.daemon("widgets", id="daemon", when=lambda spec, **_: "daemon" in spec, registry=bench.registry)
    async def daemon(stopped: Any, **_: Any) -> None:
        await stopped.wait()

    plan.add(Fault.stall(), verb="patch", name="stored")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan), standalone=True):
        for name in ("sleeps", "fails", "stored", "daemon"):
            await bench.cluster.create(widget(name, **{name: "the password"}))
        await settle(5)
        snapshot = shown(parts)
        calls = {call["handler"]: call for call in snapshot["calls"]}
        assert calls.keys() == {"sleeps/spec.sleeps", "daemon"}
        call = calls["sleeps/spec.sleeps"]
        assert (call["object"], call["cause"], call["kind"]) == ("Widget/default/sleeps", "create", "Handler")
        assert call["at"].startswith("test_snapshot.py:")
        assert call["at"].endswith(" in sleeps")
        assert 94 <= call["deadline"] <= 100
        assert 0 <= call["seconds"] <= 6
        assert calls["daemon"]["waits"].startswith("trioperator.")
        [waiting] = snapshot["queue"]["objects"]
        assert waiting["object"] == "Widget/default/fails"
        assert 20 < waiting["due"] <= 30
        watch = snapshot["watches"][-1]
        assert (watch["resource"], watch["state"], watch["objects"]) == ("widgets.example.com", "watching", 4)
        assert {"worker", "requeue", "credentials", "sleep"} <= names(snapshot["tasks"])
        assert not {name for name in names(snapshot["tasks"]) if name.startswith("_")}  # insides of libraries
        text = json.dumps(snapshot)
        assert "/apis/example.com/v1/namespaces/default/widgets/stored" in text  # the request that is not answered
        assert "password" not in text
        plan.clear()


async def test_it_shows_all_watches_the_next_timers_and_why_objects_are_due(
    bench: Bench, parts: list[Inspector], autojump_clock: MockClock
) -> None:
    @on.timer("widgets", interval=60, id="tick", registry=bench.registry)
    async def tick(**_: Any) -> None: ...

    @on.update("widgets", backoff=40, id="fails", registry=bench.registry)
    async def fails(**_: Any) -> None:
        raise ValueError("the password")

    @on.reconcile("widgets", id="own", owns=["configmaps"], registry=bench.registry)
    async def own(**_: Any) -> trioperator.Requeue:
        return trioperator.Requeue(3600)

    await bench.cluster.create(widget("a"))
    await bench.cluster.create(widget("b"))
    async with bench.running(standalone=True, live_view_endpoint="http://127.0.0.1:0"):
        await settle(1)
        await bench.cluster.patch("widgets", "b", {"spec": {"size": 2}})
        await settle(5)
        snapshot = shown(parts)
        watches = {watch["resource"]: watch["purpose"] for watch in snapshot["watches"]}
        assert watches == {
            "widgets.example.com": "handlers",
            "configmaps": "related objects",
            "customresourcedefinitions": "what there is",
        }
        timers = {(each["id"], each["object"]): each["due"] for each in snapshot["timers"]}
        assert timers.keys() == {("tick", "Widget/default/a"), ("tick", "Widget/default/b")}
        assert all(0 < due <= 60 for due in timers.values())
        retried, requeued = snapshot["queue"]["objects"]
        assert (requeued["object"], requeued["why"]) == ("Widget/default/a", "requeue")
        assert (retried["why"], retried["handler"], retried["error"]) == ("retry", "fails", "ValueError")
        with_messages = take_snapshot(parts[0], trio.lowlevel.current_task(), messages=True)
        assert with_messages["queue"]["objects"][0]["error"] == "ValueError: the password"


async def test_it_shows_which_handler_is_called_again_for_the_children_that_could_not_be_applied(
    bench: Bench, parts: list[Inspector], autojump_clock: MockClock
) -> None:
    @on.timer("widgets", interval=7, id="tick", registry=bench.registry)
    async def tick(**_: Any) -> None:
        raise KeyError("a newer error, which is none of the handler's")

    @on.reconcile("widgets", id="own", owns=["configmaps"], registry=bench.registry)
    async def own(**_: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "NOT_VALID"}}

    await bench.cluster.create(widget("a"))
    async with bench.running(standalone=True, live_view_endpoint="http://127.0.0.1:0"):
        await settle(60)
        [due] = shown(parts)["queue"]["objects"]
        assert (due["why"], due["handler"], due["error"]) == ("retry", "own", "Invalid")
        assert due["retry"] > 5
        [due] = take_snapshot(parts[0], trio.lowlevel.current_task(), messages=True)["queue"]["objects"]
        assert due["error"].startswith("Invalid: ConfigMap default/NOT_VALID cannot be applied: HTTP 422")


async def test_it_shows_the_error_of_an_object_that_the_operator_may_not_write_to(
    bench: Bench, parts: list[Inspector], autojump_clock: MockClock
) -> None:
    @on.create("widgets", id="make", registry=bench.registry)
    async def make(**_: Any) -> None: ...

    plan = FaultPlan()
    plan.add(Fault.status(403), verb="patch", resource="widgets")
    await bench.cluster.create(widget("a"))
    transport = FaultyTransport(bench.cluster.transport(), plan)
    async with bench.running(transport=transport, standalone=True, live_view_endpoint="http://127.0.0.1:0"):
        await settle(5)
        [due] = shown(parts)["queue"]["objects"]
        assert (due["why"], due["error"]) == ("retry", "ForbiddenError")
        assert "handler" not in due


async def test_a_snapshot_of_many_tasks_and_objects_is_quick_and_limited(
    bench: Bench, parts: list[Inspector], autojump_clock: MockClock
) -> None:
    bench.settings.queueing.worker_limit = 500
    bench.settings.persistence.write_delay = 1000

    @on.event("widgets", registry=bench.registry)
    async def work(**_: Any) -> None:
        await trio.sleep(1000)

    for number in range(5000):
        await bench.cluster.create(widget(f"w{number}"))
    async with bench.running(standalone=True) as stop:
        await settle(10)
        times = []
        for _ in range(5):
            began = time.thread_time()
            snapshot = shown(parts)
            times.append(time.thread_time() - began)
        assert len(snapshot["calls"]) == 500
        assert snapshot["queue"]["queued"] == 4500
        assert len(snapshot["queue"]["objects"]) == 200
        assert min(times) < 0.1  # 30 ms on the slowest machine it was measured on, so that this holds anywhere
        stop()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("trioperator._runtime.workqueue.WorkQueue._work", "_work"),
        ("app.make.<locals>.watch", "watch"),
        ("saver", "saver"),
        ("watch example.com/v1/widgets", "watch example.com/v1/widgets"),
        ("apiextensions.k8s.io/v1/customresourcedefinitions", "apiextensions.k8s.io/v1/customresourcedefinitions"),
    ],
)
def test_names_of_functions_are_shortened_and_names_of_kinds_are_not(name: str, shown: str) -> None:
    assert shorten_task(name) == shown
