"""Readiness: an operator that is ready says what it does not handle, and warns of it once."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._kube.api_client import open_client
from trioperator._model.namespaces import NamespacePattern
from trioperator._runtime.watching.readiness import describe_unmatched, describe_unwatched
from trioperator._runtime.watching.reflector import Reflector
from trioperator._runtime.watching.scope import ObservedItems
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
WIDGETS = "/apis/example.com/v1/widgets"
NAME = "widgets.v1.example.com"


def handle(bench: Bench, *selector: str) -> list[str]:
    """Register a handler, and return the objects for which it is called."""
    seen: list[str] = []

    @on.create(*selector, id="create", registry=bench.registry)
    async def create(namespace: str, name: str, **_: Any) -> None:
        seen.append(f"{namespace}/{name}")

    return seen


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was warned of, without the summary of it when the operator is ready."""
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [text for text in messages if not text.startswith("The operator is ready.")]


def readiness(caplog: pytest.LogCaptureFixture) -> str:
    [text] = [text for text in caplog.messages if text.startswith("The operator is ready.")]
    return text


async def test_an_operator_that_handles_everything_is_just_ready(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handle(bench, "widgets")
    async with bench.running(namespaces=["default", re.compile("kube-.*")]):
        await settle(100)
    assert readiness(caplog) == "The operator is ready."
    assert warnings(caplog) == []


async def test_no_handlers_are_warned_of(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    @on.startup(registry=bench.registry)
    async def start(**_: Any) -> None:
        pass

    async with bench.running():
        await settle(1000)
    [warning] = warnings(caplog)
    assert warning.startswith("There are no handlers of resources. Nothing is watched.")
    assert readiness(caplog).endswith("It does not handle everything: There are no handlers of resources.")
    assert [record.levelname for record in caplog.records if "is ready" in record.getMessage()] == ["WARNING"]


async def test_a_kind_that_must_not_be_listed_is_warned_of_until_it_may_be(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen = handle(bench, "widgets")
    plan = FaultPlan()
    rule = plan.add(Fault.status(403), resource="widgets")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(20)
        [warning] = warnings(caplog)
        assert warning.startswith(f"Cannot list {WIDGETS}, trying again in 0.")
        assert "HTTP 403" in warning
        assert warning.endswith(". Its handlers are not called until then.")
        assert readiness(caplog).endswith("widgets.v1.example.com cannot be watched (HTTP 403).")
        plan.remove(rule)
        await bench.cluster.create(widget())
        await settle(60)
    assert seen == ["default/w"]
    assert not [text for text in caplog.messages if "interrupted" in text]
    assert f"Watching {WIDGETS} begins." in caplog.messages


@pytest.mark.parametrize("code", [403, 404])
async def test_a_kind_without_rights_delays_its_own_handlers_only(
    code: int, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    widgets, gadgets = handle(bench, "widgets"), handle(bench, "gadgets")
    plan = FaultPlan()
    rule = plan.add(Fault.status(code), resource="widgets")
    await bench.cluster.create(widget())
    await bench.cluster.create(widget("g", kind="Gadget"))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        assert readiness(caplog).endswith(f"It does not handle everything: {NAME} cannot be watched (HTTP {code}).")
        await settle(600)
        assert (widgets, gadgets) == ([], ["default/g"])
        plan.remove(rule)
        await settle(60)
    assert widgets == ["default/w"]


async def test_a_right_that_is_taken_away_for_a_while_delays_changes_only(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen = handle(bench, "widgets")
    plan = FaultPlan()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        rule = plan.add(Fault.status(403), resource="widgets")
        await settle(1000)  # until the watch has ended
        await bench.cluster.create(widget())
        await settle(100)
        assert seen == []
        assert any(f"Watching {WIDGETS} is interrupted" in text for text in warnings(caplog))
        plan.remove(rule)
        await settle(60)
    assert seen == ["default/w"]


async def test_a_kind_that_may_be_listed_and_not_watched_is_warned_of(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    handle(bench, "widgets")
    plan = FaultPlan()
    plan.add(Fault.status(403), resource="widgets", watch=True)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(20)
    [warning] = warnings(caplog)
    assert warning.startswith(f"Cannot watch {WIDGETS}, trying again in 0.")


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("nope", "The namespace nope does not exist."),
        ("team-*", "No namespace matches team-*."),
        (re.compile("team-[0-9]+"), "No namespace matches team-[0-9]+."),
    ],
)
async def test_namespaces_that_do_not_exist_are_warned_of_and_handled_as_soon_as_they_do(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, pattern: Any, problem: str
) -> None:
    caplog.set_level(logging.INFO)
    seen = handle(bench, "widgets")
    async with bench.running(namespaces=["default", pattern]):
        await settle(1000)
        assert warnings(caplog) == [f"{problem} Namespaces are watched as soon as they are created."]
        assert readiness(caplog) == f"The operator is ready. It does not handle everything: {problem}"
        name = "nope" if pattern == "nope" else "team-1"
        await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        manifest = widget()
        manifest["metadata"]["namespace"] = name
        await bench.cluster.create(manifest)
        await settle(60)
    assert seen == [f"{name}/w"]


@pytest.mark.parametrize("path", ["customresourcedefinitions", "namespaces"])
async def test_what_must_not_be_observed_is_warned_of_once(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level(logging.INFO)
    handle(bench, "widgets")
    plan = FaultPlan()
    plan.add(Fault.status(403), resource=path)
    transport = FaultyTransport(bench.cluster.transport(), plan)
    async with bench.running(transport=transport, namespaces=["def*"]):
        await settle(3600)
    warning, *others = warnings(caplog)
    assert "not noticed until then." in warning
    assert warning.endswith("If that is intended, set settings.scanning.disabled.")
    assert others == []
    assert f"{path} cannot be watched (HTTP 403)." in readiness(caplog)


async def test_namespaces_need_not_be_observed_for_exact_names(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen = handle(bench, "widgets")
    plan = FaultPlan()
    plan.add(Fault.status(403), resource="namespaces")
    transport = FaultyTransport(bench.cluster.transport(), plan)
    await bench.cluster.create(widget())
    async with bench.running(transport=transport, namespaces=["default", "nope"]):
        await settle(3600)
    assert seen == ["default/w"]
    assert warnings(caplog) == []
    assert readiness(caplog) == "The operator is ready."


async def test_a_kind_whose_list_hangs_is_said_to_be_missing(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handle(bench, "widgets")
    plan = FaultPlan()
    plan.add(Fault.stall(), resource="widgets")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(1)
    assert readiness(caplog).endswith("widgets.v1.example.com is not listed yet.")


async def test_a_kind_that_does_not_exist_is_said_to_be_missing(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handle(bench, "things")
    async with bench.running():
        await settle(1)
    assert readiness(caplog).endswith("Not all handlers of things are called.")


async def test_many_problems_are_said_in_part(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handle(bench, "widgets")
    async with bench.running(namespaces=[f"nope-{number}" for number in range(30)]):
        await settle(1)
    assert readiness(caplog).endswith("The namespace nope-19 does not exist. And 10 more.")


def test_patterns_that_match_something_are_no_problem() -> None:
    patterns: list[NamespacePattern] = ["a", "b", "c*,!cd", re.compile("d.")]
    assert list(describe_unmatched(patterns, {"a", "ca", "dd"})) == ["The namespace b does not exist."]
    assert list(describe_unmatched(patterns, {"a", "b", "cd", "d"})) == [
        "No namespace matches c*,!cd.",
        "No namespace matches d..",
    ]


async def test_an_error_is_described_without_its_message(cluster: Cluster, autojump_clock: MockClock) -> None:
    settings, plan = trioperator.OperatorSettings(), FaultPlan()
    plan.add(Fault.refuse())
    info = trioperator.ConnectionInfo(server="http://embedded")
    transport = FaultyTransport(cluster.transport(), plan)
    async with open_client(lambda: info, settings=settings, transport=transport) as client, trio.open_nursery() as n:
        reflector = Reflector(client, "/api/v1/pods", ObservedItems(lambda obj: obj.name, lambda: None))
        assert list(describe_unwatched("pods", reflector)) == ["pods is not listed yet."]
        await n.start(reflector.serve)
        assert list(describe_unwatched("pods", reflector)) == ["pods cannot be watched (no complete response)."]
        plan.clear()
        await settle(60)
        assert list(describe_unwatched("pods", reflector)) == []
        n.cancel_scope.cancel()
