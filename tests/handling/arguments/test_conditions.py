"""Tests for :mod:`trioperator._handling.arguments.conditions`, at the level of handlers and alone."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.loggers = False
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


async def conditions_of(bench: Bench) -> dict[str, dict[str, Any]]:
    body = await bench.cluster.get("widgets", "w")
    return {each["type"]: each for each in body.get("status", {}).get("conditions", [])}


def parse(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


async def test_conditions_are_written_only_where_they_differ(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.reconcile("widgets", resync=100, registry=bench.registry)
    async def reconcile(spec: Any, conditions: trioperator.Conditions) -> None:
        calls.append(spec["size"])
        conditions.set("Ready", spec["size"] > 1, reason="Sized", message=f"Size {min(spec['size'], 2)}.")

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1000)
        assert len(calls) >= 10
        assert bench.writes() == ["PATCH status"]
        first = (await conditions_of(bench))["Ready"]
        assert {key: first[key] for key in ("status", "reason", "message", "observedGeneration")} == {
            "status": "False",
            "reason": "Sized",
            "message": "Size 1.",
            "observedGeneration": 1,
        }
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1000)
        second = (await conditions_of(bench))["Ready"]
        assert (second["status"], second["observedGeneration"]) == ("True", 2)
        since = parse(second["lastTransitionTime"]) - parse(first["lastTransitionTime"])
        assert 900 <= since.total_seconds() <= 1100
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 3}})
        await settle(1000)
        third = (await conditions_of(bench))["Ready"]
        assert third == {**second, "observedGeneration": 3}, "the time is that of the status"


async def test_conditions_of_others_survive(bench: Bench, autojump_clock: MockClock) -> None:
    """Even one that is set between the last state that the handler has seen, and the write."""
    other = {
        "type": "Other",
        "status": "True",
        "reason": "X",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await bench.cluster.create(widget())

    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(conditions: trioperator.Conditions) -> None:
        await bench.cluster.patch("widgets", "w", {"status": {"conditions": [other]}}, subresource="status")
        conditions.set("Ready", True, reason="Done")

    async with bench.running():
        await settle(10)
    found = await conditions_of(bench)
    assert found["Other"] == other
    assert found["Ready"]["status"] == "True"


async def test_a_lost_response_is_no_second_transition(bench: Bench, autojump_clock: MockClock) -> None:
    plan = FaultPlan()
    plan.add(Fault.lose_answer(), times=1, method="PATCH")

    @on.reconcile("widgets", registry=bench.registry)
    def reconcile(conditions: trioperator.Conditions) -> None:
        conditions.set("Ready", "Unknown", reason="Unclear")

    await bench.cluster.create(widget())
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(60)
    assert len(await conditions_of(bench)) == 1


async def test_other_handlers_have_conditions_too(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", registry=bench.registry)
    def created(body: trioperator.Body, patch: trioperator.Patch) -> None:
        trioperator.Conditions(body, patch).set("Ready", True, reason="Created", message="It is there.")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert (await conditions_of(bench))["Ready"]["message"] == "It is there."


def test_what_is_set_is_seen_at_once() -> None:
    patch = trioperator.Patch()
    body = {"status": {"conditions": [{"type": "Old", "status": "True"}, "no condition"]}}
    conditions = trioperator.Conditions(body, patch)
    assert list(conditions) == ["Old"]
    conditions.set("New", True, reason="A")
    conditions.set("New", False, reason="B")
    conditions.remove("Old")
    conditions.remove("Unknown")
    assert list(conditions) == ["New"]
    assert conditions["New"]["reason"] == "B"
    assert len(patch.fns) == 1
    (fn,) = patch.fns
    fn(body)
    assert [each["type"] for each in body["status"]["conditions"] if isinstance(each, dict)] == ["New"]


def test_without_a_difference_nothing_is_to_be_stored() -> None:
    patch = trioperator.Patch()
    present = {"type": "Ready", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "then", "own": 1}
    conditions = trioperator.Conditions({"status": {"conditions": [present]}}, patch)
    conditions.set("Ready", True, reason="A")
    conditions.remove("Other")
    assert not patch
    assert dict(conditions) == {"Ready": present}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"type": "not a type"}, "it must be a word in CamelCase"),
        ({"type": ""}, "it must be a word in CamelCase"),
        ({"status": "maybe"}, "it must be True, False or 'Unknown'"),
        ({"status": 1}, "it must be True, False or 'Unknown'"),
        ({"status": []}, "it must be True, False or 'Unknown'"),
        ({"reason": ""}, "it must be a word in CamelCase"),
        ({"reason": "two words"}, "it must be a word in CamelCase"),
        ({"reason": "x" * 1025}, "it must be a word in CamelCase"),
        ({"message": "x" * 32769}, "at most 32768 characters"),
        ({"message": None}, "no string"),
    ],
)
def test_what_the_conventions_do_not_allow_is_an_error(arguments: dict[str, Any], message: str) -> None:
    patch = trioperator.Patch()
    with pytest.raises(ValueError, match=message):
        trioperator.Conditions({}, patch).set(**{"type": "Ready", "status": True, "reason": "A", **arguments})
    assert not patch
