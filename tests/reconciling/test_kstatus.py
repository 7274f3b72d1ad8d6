"""Tests for :mod:`trioperator._reconciling.kstatus`: what kubectl wait, Argo CD and Flux read of the status."""

from __future__ import annotations

import copy
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.reconciling.conftest import children_of, config_map
from tests.runtime.conftest import CRD, Bench, settle, widget
from tests.runtime.pausing import WIDGET
from tests.runtime.test_restored import running
from trioperator import on
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport
from trioperator.testing.plans import Selection

# All writes of widgets, and those of their statuses only.
WRITES: list[Selection] = [{"verb": "patch", "resource": "widgets"}, {"verb": "patch", "subresource": "status"}]

CONDITION = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        name: {"type": "integer" if name == "observedGeneration" else "string"}
        for name in ("type", "status", "reason", "message", "lastTransitionTime", "observedGeneration")
    },
}


def crd(*, observed: bool = True, **condition: Any) -> dict[str, Any]:
    """Return the CRD of widgets, whose status has conditions."""
    made = copy.deepcopy(CRD)
    properties = {"conditions": {"type": "array", "items": {**CONDITION, **condition}}}
    if observed:
        properties["observedGeneration"] = {"type": "integer"}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"] = {"spec": free, "status": {"type": "object", "properties": properties}}
    return made


@pytest.fixture
async def bench(bench: Bench) -> Bench:
    await bench.cluster.apply(crd())
    return bench


async def status_of(bench: Bench) -> dict[str, Any]:
    found: dict[str, Any] = (await bench.cluster.get("widgets", "w")).get("status", {})
    return found


async def shown(bench: Bench) -> dict[str, str]:
    """Return the conditions of the widget: their statuses and reasons, by their types."""
    conditions = (await status_of(bench)).get("conditions", [])
    return {each["type"]: f"{each['status']} {each['reason']}" for each in conditions}


def kstatus(body: dict[str, Any]) -> str:
    """Return the status of an object as kstatus computes it from conditions: its rules, in its order."""
    status = body.get("status", {})
    if status.get("observedGeneration", body["metadata"]["generation"]) != body["metadata"]["generation"]:
        return "InProgress"
    conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
    if conditions.get("Stalled") == "True":
        return "Failed"
    if conditions.get("Reconciling") == "True" or conditions.get("Ready", "True") != "True":
        return "InProgress"
    return "Current"


def add_handler(bench: Bench, **options: Any) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry, **options)
    async def reconcile(spec: Any) -> Any:
        return children_of(spec)


def refuse(bench: Bench, name: str, status: int = 403) -> FaultPlan:
    """Return a plan by which the server refuses a child."""
    plan = FaultPlan()
    plan.add(Fault.status(status, message="quota exceeded"), verb="patch", resource="configmaps", name=name)
    return plan


def status_writes(bench: Bench) -> int:
    return sum(each.subresource == "status" and each.verb == "patch" for each in bench.cluster.requests)


async def test_an_object_whose_children_are_applied_is_ready(bench: Bench, autojump_clock: MockClock) -> None:
    add_handler(bench)
    async with bench.running():
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Reconciled"}
        assert (await status_of(bench))["observedGeneration"] == 1
        assert kstatus(await bench.cluster.get("widgets", "w")) == "Current"
        assert status_writes(bench) == 1
        await settle(3600)
        assert status_writes(bench) == 1


async def test_an_object_is_not_ready_while_a_kind_of_its_children_does_not_exist(
    bench: Bench, autojump_clock: MockClock
) -> None:
    add_handler(bench)

    @on.reconcile("widgets", owns=["gadgets.example.com"], condition="GadgetsApplied", registry=bench.registry)
    async def gadgets(spec: Any) -> Any:
        return [{"apiVersion": "example.com/v1", "kind": "Gadget"}] if spec.get("gadget") else []

    names = {"kind": "Gadget", "plural": "gadgets", "singular": "gadget"}
    definition = {**CRD, "metadata": {"name": "gadgets.example.com"}, "spec": {**CRD["spec"], "names": names}}
    waiting = {
        "Applied": "False Progressing",
        "GadgetsApplied": "False Progressing",
        "Ready": "False Progressing",
        "Reconciling": "True Progressing",
    }
    done = {"Applied": "True Applied", "GadgetsApplied": "True Applied", "Ready": "True Reconciled"}
    async with bench.running():
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        assert await shown(bench) == waiting
        assert "example.com/gadgets (did you mean widgets?) does not exist yet" in str(await status_of(bench))
        assert (await status_of(bench))["observedGeneration"] == 1
        await settle(3600)
        assert status_writes(bench) == 1
        await bench.cluster.create(definition)
        await settle(5)
        assert await shown(bench) == done
        await bench.cluster.delete("customresourcedefinitions", "gadgets.example.com")
        await settle(5)
        assert await shown(bench) == waiting
        await bench.cluster.patch("widgets", "w", {"spec": {"gadget": True}})
        await settle(5)
        assert await shown(bench) == waiting
        assert kstatus(await bench.cluster.get("widgets", "w")) == "InProgress"
        assert (await status_of(bench))["observedGeneration"] == 2
        await bench.cluster.create(definition)
        await settle(5)
        assert await shown(bench) == done
        assert await bench.cluster.find("gadgets", "w") is not None


async def test_an_object_is_not_ready_while_its_children_cannot_be_listed(
    bench: Bench, autojump_clock: MockClock
) -> None:
    add_handler(bench)
    plan = FaultPlan()
    plan.add(Fault.status(403, message="no right to list"), verb="list", resource="configmaps")
    await bench.cluster.create(widget(maps={"a": {}}))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(0.5)
        assert await shown(bench) == {}, "the first refusals may be hiccups"
        await settle(10)
        assert await shown(bench) == {
            "Applied": "False Forbidden",
            "Ready": "False Progressing",
            "Reconciling": "True Progressing",
        }
        text = "configmaps cannot be listed: HTTP 403 Forbidden: no right to list. `trioperator rbac`"
        assert text in str(await status_of(bench))
        await settle(3600)
        assert status_writes(bench) == 1
        plan.clear()
        await settle(60)
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Reconciled"}
        assert await bench.cluster.find("configmaps", "a") is not None


async def test_an_object_waits_quietly_while_children_of_other_namespaces_cannot_be_listed(
    bench: Bench, autojump_clock: MockClock
) -> None:
    add_handler(bench)
    await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    await bench.cluster.create(widget(maps={"a": {}}))
    plan = FaultPlan()
    plan.add(Fault.status(403), verb="list", resource="configmaps", namespace="other")
    plan.add(Fault.delay(before=20), verb="list", resource="configmaps", namespace="default")
    async with bench.running(
        transport=FaultyTransport(bench.cluster.transport(), plan), namespaces=["default", "other"], clusterwide=False
    ):
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"a": "b"}}})
        await settle(10)
        assert await shown(bench) == {}
        await settle(20)
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Reconciled"}


async def test_each_generation_costs_one_write(bench: Bench, autojump_clock: MockClock) -> None:
    add_handler(bench, resync=60)
    async with bench.running():
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(300)
        assert status_writes(bench) == 1
        await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"b": {}}}})
        await settle(300)
        status = await status_of(bench)
        assert status_writes(bench) == 2
        assert {each["observedGeneration"] for each in status["conditions"]} == {status["observedGeneration"]} == {2}


async def test_nothing_is_written_after_a_restart(bench: Bench, autojump_clock: MockClock) -> None:
    add_handler(bench)
    async with bench.running():
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
    async with bench.running():
        await settle(5)
    assert status_writes(bench) == 1


async def test_an_object_is_not_ready_while_a_child_is_refused(bench: Bench, autojump_clock: MockClock) -> None:
    add_handler(bench)
    plan = refuse(bench, "b")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget(maps={"a": {}, "b": {}}))
        await settle(5)
        assert await shown(bench) == {
            "Applied": "False Forbidden",
            "Ready": "False Retrying",
            "Reconciling": "True Retrying",
        }
        conditions = (await status_of(bench))["conditions"]
        assert all("quota exceeded" in each["message"] for each in conditions)
        assert kstatus(await bench.cluster.get("widgets", "w")) == "InProgress"
        events = await bench.cluster.list("events", "default")
        assert ("Warning", "Forbidden") in {(each["type"], each["reason"]) for each in events}
        writes = status_writes(bench)
        await settle(120)
        assert status_writes(bench) == writes  # the same error is not written again
        plan.clear()
        await settle(1200)
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Reconciled"}


async def test_an_object_that_only_a_change_can_mend_is_stalled(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(spec: Any) -> None:
        if spec["size"] < 0:
            raise trioperator.PermanentError("A size is 0 or more.")

    async with bench.running():
        await bench.cluster.create(widget(size=-1))
        await settle(5)
        assert (await shown(bench))["Stalled"] == "True Failed"
        assert kstatus(await bench.cluster.get("widgets", "w")) == "Failed"
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 1}})
        await settle(5)
        assert kstatus(await bench.cluster.get("widgets", "w")) == "Current"


async def test_children_that_are_not_ready_are_in_progress(bench: Bench, autojump_clock: MockClock) -> None:
    owned = trioperator.Owned("configmaps", bodies=True)

    @on.reconcile("widgets", owns=[owned], registry=bench.registry)
    async def reconcile() -> Any:
        return [trioperator.Child(config_map("a"), ready=lambda body: "ready" in body["metadata"].get("labels", {}))]

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        assert await shown(bench) == {
            "Applied": "True Applied",
            "Ready": "False Progressing",
            "Reconciling": "True Progressing",
        }
        await bench.cluster.patch("configmaps", "a", {"metadata": {"labels": {"ready": "yes"}}}, "default")
        await settle(5)
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Reconciled"}


async def test_handlers_write_their_own_conditions(bench: Bench, autojump_clock: MockClock) -> None:
    name = "Rea" + "dy"  # not a constant in the function

    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(conditions: trioperator.Conditions, spec: Any) -> None:
        if spec["size"] == 1:
            conditions.set(name, False, reason="Mine")

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(5)
        assert (await shown(bench))["Ready"] == "False Mine"
    async with bench.running():  # by its reason, as nothing else is known
        await settle(5)
        assert (await shown(bench))["Ready"] == "False Mine"
        assert (await shown(bench))["Applied"] == "True Applied"


async def test_conditions_of_other_handlers_are_theirs(bench: Bench, autojump_clock: MockClock) -> None:
    add_handler(bench)

    @on.update("widgets", registry=bench.registry)
    async def update(body: Any, patch: Any, **_: Any) -> None:
        trioperator.Conditions(body, patch).set("Ready", True, reason="Reconciled")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        assert await shown(bench) == {"Applied": "True Applied"}


async def test_conditions_that_others_set_at_the_same_time_stay(bench: Bench, autojump_clock: MockClock) -> None:
    """The list is atomic: whoever writes it as it was before loses what others have set."""

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(name: str, spec: Any, **_: Any) -> Any:
        return [config_map(name, size=str(spec["size"]))]

    async def set_condition(message: str) -> None:
        body = copy.deepcopy(await bench.cluster.get("widgets", "w"))
        conditions = [each for each in body["status"]["conditions"] if each["type"] != "Theirs"]
        body["status"]["conditions"] = [*conditions, {"type": "Theirs", "status": "True", "message": message}]
        response = await client.put(f"{WIDGET}/status?fieldManager=theirs", json=body)
        if response.status_code == 409:
            await set_condition(message)

    async with bench.running(), httpx.AsyncClient(transport=bench.cluster.transport()) as client:
        await bench.cluster.create(widget())
        await settle(5)
        for number in range(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(set_condition, f"{number}")
                nursery.start_soon(bench.cluster.patch, "widgets", "w", {"spec": {"size": number + 2}})
        await settle(5)
        found = {each["type"]: each for each in (await status_of(bench))["conditions"]}
        assert found["Theirs"]["message"] == "19"
        assert found["Ready"]["status"] == "True"
        assert found["Ready"]["observedGeneration"] == 21
        assert len((await status_of(bench))["conditions"]) == len(found)


async def test_conditions_that_somebody_has_removed_come_back_with_the_next_call(
    bench: Bench, autojump_clock: MockClock
) -> None:
    add_handler(bench, resync=60)
    async with bench.running(), httpx.AsyncClient(transport=bench.cluster.transport()) as client:
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        before = await status_of(bench)
        body = {**await bench.cluster.get("widgets", "w"), "status": {}}
        assert (await client.put(f"{WIDGET}/status", json=body)).status_code == 200
        assert await status_of(bench) == {}
        await settle(60)
        after = await status_of(bench)
        assert after["observedGeneration"] == before["observedGeneration"] == 1
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Reconciled"}


async def test_failures_that_are_over_at_once_are_no_contention(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The server records the times of writes in seconds, so two in one second leave the same record."""

    failed = {0}

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(spec: Any) -> Any:
        if spec["fails"] not in failed:
            failed.add(spec["fails"])
            raise trioperator.TemporaryError("once", delay=0.1)
        return [config_map("a")]

    async with bench.running():
        await bench.cluster.create(widget(fails=0))
        for number in range(1, 8):
            await bench.cluster.patch("widgets", "w", {"spec": {"fails": number}})
            await settle(3)
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Reconciled"}
    assert "repeatedly" not in caplog.text


@pytest.mark.parametrize("own", [False, True])
async def test_a_condition_that_is_held_gives_way_to_what_is_true_later(
    own: bool, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    is_up = True

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(conditions: trioperator.Conditions) -> Any:
        if own:
            conditions.set("Up", is_up, reason="Seen")
        elif not is_up:
            raise trioperator.TemporaryError("down", delay=5)
        return [config_map("a")]

    async def call() -> None:
        await bench.cluster.delete("configmaps", "a", "default")
        await settle(2)

    async with bench.running(), httpx.AsyncClient(transport=bench.cluster.transport()) as client:
        await bench.cluster.create(widget())
        await settle(5)
        while "status.conditions is changed by" not in caplog.text:
            body = {**await bench.cluster.get("widgets", "w"), "status": {}}
            assert (await client.put(f"{WIDGET}/status?fieldManager=theirs", json=body)).status_code == 200
            await settle(2)
            await call()
        before = await shown(bench)
        is_up = False
        await call()
        assert (await shown(bench))["Ready"] == before["Ready"] == "True Reconciled"  # it is held
        is_up = True
        if own:
            await call()
        for _ in range(200):
            await settle(2)
            assert not own or (await shown(bench))["Up"] == "True Seen"
        assert {**before, "Contended": "False Settled"} == await shown(bench)


async def test_the_list_is_left_to_a_handler_that_replaces_it(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps"], resync=60, registry=bench.registry)
    async def reconcile(spec: Any, patch: Any) -> Any:
        patch.status["conditions"] = [{"type": "Mine", "status": "True", "reason": "Because"}]
        return children_of(spec)

    async with bench.running():
        await bench.cluster.create(widget(maps={"a": {}}))
        for _ in range(5):
            await settle(60)
            assert await shown(bench) == {"Mine": "True Because"}
        assert (await status_of(bench))["observedGeneration"] == 1
        assert status_writes(bench) == 1


@pytest.mark.parametrize("slow", ["/api/v1/configmaps", "/apis/example.com/v1/widgets"])
async def test_after_a_restore_the_conditions_are_set_again(slow: str, autojump_clock: MockClock) -> None:
    registry = trioperator.OperatorRegistry()

    @on.reconcile("widgets", owns=["configmaps"], registry=registry)
    async def reconcile(spec: Any) -> Any:
        return children_of(spec)

    async with running(registry) as it:
        await it.old.apply(crd())
        await settle(5)
        await it.old.create(widget(maps={"a": {}}))
        it.back_up()
        await settle(10)
        assert (await it.old.get("widgets", "w"))["status"]["observedGeneration"] == 1
        new = await it.restore(outage=60, slow=slow)  # one of them is listed after the other
        await settle(30)
        it.switch.slow = None
        await settle(600)  # what has had no response is requested again
        assert kstatus(await new.get("widgets", "w")) == "Current"
        assert (await new.get("widgets", "w"))["status"]["observedGeneration"] == 1


async def test_the_condition_of_an_option_is_not_written_twice(bench: Bench, autojump_clock: MockClock) -> None:
    add_handler(bench, condition="Ready")
    async with bench.running():
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Applied"}
        assert status_writes(bench) == 1


async def test_an_option_switches_it_off(bench: Bench, autojump_clock: MockClock) -> None:
    add_handler(bench, kstatus=False)
    async with bench.running():
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        assert await status_of(bench) == {}
        assert status_writes(bench) == 0


@pytest.mark.parametrize(
    "condition",
    [
        {"properties": {"type": {"type": "string"}, "status": {"type": "string"}}},
        {"required": ["lastHeartbeatTime"], "x-kubernetes-preserve-unknown-fields": True},
        {"properties": {**CONDITION["properties"], "type": {"type": "string", "enum": ["Up"]}}},  # type: ignore[dict-item]
    ],
)
async def test_conditions_that_the_server_would_not_keep_are_not_written(
    condition: dict[str, Any], bench: Bench, autojump_clock: MockClock
) -> None:
    await bench.cluster.apply(crd(**condition))
    add_handler(bench)
    async with bench.running():
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(60)
        assert status_writes(bench) == 0


async def test_a_kind_that_gets_conditions_later_has_them_after_a_while(
    bench: Bench, autojump_clock: MockClock
) -> None:
    await bench.cluster.apply(CRD)
    add_handler(bench, resync=100)
    async with bench.running():
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        assert await status_of(bench) == {}
        await bench.cluster.apply(crd())
        await settle(800)
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Reconciled"}


async def test_a_kind_whose_schema_is_published_after_its_objects_are_made_has_conditions_at_once(
    bench: Bench, autojump_clock: MockClock
) -> None:
    await bench.cluster.apply(crd())
    add_handler(bench)
    plan = FaultPlan()
    plan.add(Fault.status(404), path="/openapi/", until=trio.current_time() + 2)  # API servers take a second
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Reconciled"}


async def test_conditions_that_were_rejected_once_are_set_with_the_next_call(
    bench: Bench, autojump_clock: MockClock
) -> None:
    add_handler(bench, resync=100)
    plan = FaultPlan()
    plan.add(Fault.status(422), **WRITES[1], times=1)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        assert await status_of(bench) == {}
        await settle(100)
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Reconciled"}


async def test_without_an_observed_generation_in_the_schema_the_conditions_have_it(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.cluster.apply(crd(observed=False))
    add_handler(bench)
    async with bench.running():
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        status = await status_of(bench)
        assert status.keys() == {"conditions"}
        assert {each["observedGeneration"] for each in status["conditions"]} == {1}
    assert "inconsistencies" not in caplog.text


async def test_several_handlers_are_as_good_as_the_worst(bench: Bench, autojump_clock: MockClock) -> None:
    add_handler(bench)
    broken = True

    @on.reconcile("widgets", registry=bench.registry, backoff=60)
    async def other() -> None:
        if broken:
            raise RuntimeError("not yet")

    async with bench.running():
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        assert (await shown(bench))["Ready"] == "False Retrying"
        broken = False
        await settle(60)
        assert (await shown(bench))["Ready"] == "True Reconciled"


async def test_a_handler_that_says_nothing_of_children_leaves_the_status(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> Any:
        return trioperator.Requeue(after=60)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(300)
        assert await status_of(bench) == {}


async def test_without_the_right_to_write_them_everything_else_goes_on(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    add_handler(bench)
    plan = FaultPlan()
    plan.add(Fault.status(403), verb="patch", resource="widgets")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"b": {}}}})
        await settle(5)
        assert await bench.cluster.find("configmaps", "b", "default") is not None
    assert caplog.text.count("The conditions of reconciling cannot be set") == 1
    assert "could not be handled" not in caplog.text


@pytest.mark.parametrize("selection", WRITES)
@pytest.mark.parametrize("seconds", [0, 90])
async def test_conditions_that_were_forbidden_once_or_for_a_while_are_set_later(
    seconds: float, selection: Selection, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    add_handler(bench)
    plan = FaultPlan()
    rule = plan.add(Fault.status(403), **selection, times=None if seconds else 2)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(seconds)
        plan.remove(rule)
        await settle(130)
        assert await shown(bench) == {"Applied": "True Applied", "Ready": "True Reconciled"}
        mark = status_writes(bench)
        await settle(3600)
        assert status_writes(bench) == mark
    assert caplog.text.count("The conditions of reconciling cannot be set; the next try is in 60 s.") == 1


@pytest.mark.parametrize("selection", WRITES)
async def test_conditions_that_stay_forbidden_are_tried_for_one_object_a_minute(
    selection: Selection, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    add_handler(bench)
    plan = FaultPlan()
    rule = plan.add(Fault.status(403), **selection)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        for number in range(10):
            await bench.cluster.create({**widget(f"w{number}"), "spec": {"maps": {f"a{number}": {}}}})
        await settle(50)
        mark = rule.hits
        await settle(600)
        assert rule.hits - mark <= 2 * 10 + 2  # a try, and whether it is about what was to be written
    assert caplog.text.count("The conditions of reconciling cannot be set") == 1
    assert "could not be handled" not in caplog.text


async def test_conditions_that_were_forbidden_do_not_wait_for_objects_whose_conditions_are_right(
    bench: Bench, autojump_clock: MockClock
) -> None:
    fails = False

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry, resync=10)
    async def reconcile(spec: Any) -> Any:
        if fails:
            raise trioperator.TemporaryError("not yet", delay=1)
        return children_of(spec)

    plan = FaultPlan()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        for name in ("w1", "w2", "w3", "w"):
            await bench.cluster.create(widget(name, maps={}))
        await settle(5)
        rule = plan.add(Fault.status(403), verb="patch", subresource="status")
        await bench.cluster.create(widget("denied", maps={}))
        await settle(1)
        await bench.cluster.delete("widgets", "denied")
        fails = True
        await settle(15)
        fails = False
        await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"a": {}}}})
        await settle(15)
        plan.remove(rule)
        assert (await status_of(bench))["observedGeneration"] == 1
        await settle(40)
        assert (await status_of(bench))["observedGeneration"] == 2


async def test_a_server_that_cannot_show_the_schema_is_asked_again(bench: Bench, autojump_clock: MockClock) -> None:
    add_handler(bench)
    bench.settings.networking.error_backoffs = ()
    plan = FaultPlan()
    plan.add(Fault.status(503), path="/openapi/")
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget(maps={"a": {}}))
        await settle(5)
        assert await bench.cluster.find("configmaps", "a", "default") is not None
        plan.clear()
        await settle(60)
        assert (await shown(bench))["Ready"] == "True Reconciled"


async def test_built_in_kinds_keep_their_status(cluster: Cluster, autojump_clock: MockClock) -> None:
    registry = trioperator.OperatorRegistry()

    @on.reconcile("services", registry=registry)
    async def reconcile() -> None: ...

    bench = Bench(cluster, registry, trioperator.OperatorSettings())
    async with bench.running():
        spec = {"ports": [{"port": 80}]}
        metadata = {"name": "s", "namespace": "default"}
        await cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        await settle(5)
        assert "conditions" not in (await cluster.get("services", "s"))["status"]
