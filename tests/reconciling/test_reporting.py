"""Tests for :mod:`trioperator._reconciling.reporting`: who learns that children cannot be applied, and how."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.reconciling.conftest import config_map, names_of
from tests.runtime.conftest import Bench, settle, widget
from trioperator import on
from trioperator._reconciling.failures import ChildrenError, LoopError, reason_of
from trioperator.errors import ForbiddenError, ForeignChildError, InvalidError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

NO = "configmaps is forbidden: no rights"


def forbidding(bench: Bench, times: int | None = None) -> Any:
    """Return a transport on which ConfigMaps cannot be applied, so often or always."""
    plan = FaultPlan()
    plan.add(Fault.status(403, message=NO, reason="Forbidden"), resource="configmaps", verb="patch", times=times)
    return FaultyTransport(bench.cluster.transport(), plan)


async def condition_of(bench: Bench, type: str) -> dict[str, Any]:
    status = (await bench.cluster.get("widgets", "w")).get("status") or {}
    (found,) = (each for each in status["conditions"] if each["type"] == type)
    return {key: found.get(key) for key in ("status", "reason", "message")}


async def test_a_child_that_cannot_be_applied_is_a_warning_event_of_the_object(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        return [config_map("x")]

    await bench.cluster.create(widget())
    async with bench.running(transport=forbidding(bench)):
        await settle(60)
    (event,) = await bench.cluster.list("events", "default")
    assert (event["type"], event["reason"], event["involvedObject"]["name"]) == ("Warning", "Forbidden", "w")
    assert event["message"] == f"ConfigMap default/x cannot be applied: HTTP 403 Forbidden: {NO}"
    assert event["count"] > 3


async def test_an_exception_is_an_event_and_a_temporary_error_is_none(bench: Bench, autojump_clock: MockClock) -> None:
    errors = [trioperator.TemporaryError("wait", delay=1), LookupError("no such zone")]

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        if errors:
            raise errors.pop(0)
        return []

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(60)
    (event,) = await bench.cluster.list("events", "default")
    assert event["message"] == "LookupError: no such zone"


@pytest.mark.parametrize("setting", [{"enabled": False}, {"level": 40}])
async def test_no_events_are_posted_if_the_settings_say_so(
    bench: Bench, autojump_clock: MockClock, setting: dict[str, Any]
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        return [config_map("x")]

    for name, value in setting.items():
        setattr(bench.settings.posting, name, value)
    await bench.cluster.create(widget())
    async with bench.running(transport=forbidding(bench)):
        await settle(60)
    assert await bench.cluster.list("events", "default") == []


async def test_an_error_is_one_line_and_not_repeated_at_once(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        return [config_map("x"), config_map("y")]

    caplog.set_level("INFO")
    await bench.cluster.create(widget())
    async with bench.running(transport=forbidding(bench)):
        await settle(6)
        lines = [record.getMessage() for record in caplog.records if record.name == "trioperator.objects"]
    assert len(lines) == 1, lines
    assert "ConfigMap default/x cannot be applied" in lines[0]
    assert "ConfigMap default/y cannot be applied" in lines[0]


async def test_the_same_exception_is_not_logged_again_at_once(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    errors = ["one", "one", "one", "two", "two", "two", "two"]

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        if errors:
            raise LookupError(errors.pop(0))
        return []

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(60)
    found = re.findall(r"will try again in (.*) seconds: LookupError: (.*)", caplog.text)
    assert found == [("0.1", "one"), ("0.8", "two"), ("6.4", "two")]


async def test_success_is_logged_when_the_children_are_applied(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        return [config_map("x")]

    caplog.set_level("INFO")
    await bench.cluster.create(widget())
    async with bench.running(transport=forbidding(bench, times=3)):
        await settle(60)
        lines = [record.getMessage() for record in caplog.records if record.name == "trioperator.objects"]
    name = reconcile.__qualname__
    assert [line.partition(":")[0] for line in lines] == [
        f"The children of Handler '{name}' are not as desired",
        "ConfigMap default/x is applied.",
        f"Handler '{name}' succeeded.",
    ]


async def test_what_is_granted_is_noticed_within_40_seconds(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile() -> list[dict[str, Any]]:
        return [config_map("x")]

    plan = FaultPlan()
    rule = Fault.status(403, message=NO, reason="Forbidden")
    plan.add(rule, resource="configmaps", verb="patch", times=30)
    times: list[float] = []
    plan.add(Fault.call(lambda: times.append(trio.current_time())), resource="configmaps", verb="patch")
    await bench.cluster.create(widget())
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(3600)
    assert times[0] < 30 * 40


async def test_what_is_granted_to_the_client_of_a_handler_is_noticed_within_40_seconds(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    times: list[float] = []

    @on.reconcile("widgets", registry=bench.registry)
    async def reconcile(client: trioperator.Client) -> list[Any]:
        times.append(trio.current_time())
        await client.list("configmaps")
        return []

    plan = FaultPlan()
    plan.add(Fault.status(403, message=NO, reason="Forbidden"), resource="configmaps", times=30)
    await bench.cluster.create(widget())
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(3600)
    delays = [round(later - earlier) for earlier, later in itertools.pairwise(times)]
    assert len(delays) == 30
    assert max(delays) == 30
    assert "will try again in 30 seconds" in caplog.text


async def test_an_error_of_the_function_is_not_one_of_what_it_returns(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps"], condition="Applied", registry=bench.registry)
    async def reconcile(spec: Any) -> Any:
        return [int(spec["size"])] if spec["size"] != [] else int(spec["size"])

    await bench.cluster.create(widget(size=[]))
    async with bench.running():
        await settle(1)
        condition = await condition_of(bench, "Applied")
        assert (condition["reason"], condition["message"].partition(":")[0]) == ("ReconcileFailed", "TypeError")
        for size in ("3", "three"):
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
            await settle(1)
            reason = (await condition_of(bench, "Applied"))["reason"]
            assert reason == ("InvalidChildren" if size == "3" else "ReconcileFailed")


async def test_a_condition_says_whether_the_children_are_applied(bench: Bench, autojump_clock: MockClock) -> None:
    @on.reconcile("widgets", owns=["configmaps"], condition="Applied", registry=bench.registry)
    async def reconcile(spec: trioperator.Spec, conditions: trioperator.Conditions) -> list[dict[str, Any]]:
        conditions.set("Ready", False, reason="Testing")
        return [config_map("x", size=str(spec["size"]))]

    await bench.cluster.create(widget())
    async with bench.running(transport=forbidding(bench, times=8)):
        await settle(5)
        assert await condition_of(bench, "Applied") == {
            "status": "False",
            "reason": "Forbidden",
            "message": f"ConfigMap default/x cannot be applied: HTTP 403 Forbidden: {NO}",
        }
        assert (await condition_of(bench, "Ready"))["reason"] == "Testing"
        await settle(60)
        assert await condition_of(bench, "Applied") == {"status": "True", "reason": "Applied", "message": ""}
        bench.cluster.requests.clear()
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(60)
    writes = [f"{each.verb} {each.resource}" for each in bench.cluster.requests if each.verb in ("patch", "create")]
    assert writes == ["patch configmaps", "patch widgets.example.com"], "one request, for observedGeneration"


async def test_a_condition_says_what_is_not_there_yet(bench: Bench, autojump_clock: MockClock) -> None:
    owned = trioperator.Owned("configmaps", bodies=True)

    @on.reconcile("widgets", owns=[owned], condition="Applied", registry=bench.registry)
    async def reconcile() -> list[trioperator.Child]:
        first = trioperator.Child(config_map("first"), ready=lambda body: "data" in body)
        return [first, trioperator.Child(config_map("second"), depends_on=[first])]

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(1)
        assert await condition_of(bench, "Applied") == {
            "status": "False",
            "reason": "Progressing",
            "message": "Not there yet: ConfigMap default/second",
        }
        await bench.cluster.patch("configmaps", "first", {"data": {"ready": "y"}})
        await settle(1)
        assert (await condition_of(bench, "Applied"))["status"] == "True"


async def test_a_condition_stays_where_nothing_is_said_of_children(bench: Bench, autojump_clock: MockClock) -> None:
    results: list[Any] = [[config_map("x")], trioperator.Requeue(after=1), LookupError("ignored")]

    @on.reconcile(
        "widgets",
        owns=["configmaps"],
        condition="Applied",
        errors=trioperator.ErrorsMode.IGNORED,
        registry=bench.registry,
    )
    async def reconcile(spec: trioperator.Spec) -> Any:
        result = results[spec["size"]]
        if isinstance(result, Exception):
            raise result
        return result

    await bench.cluster.create(widget(size=0))
    async with bench.running():
        await settle(1)
        before = await condition_of(bench, "Applied")
        for size in (1, 2):
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
            await settle(0.5)
            assert await condition_of(bench, "Applied") == before


@pytest.mark.parametrize("condition", ["", "not one", 3])
def test_the_type_of_a_condition_is_checked(condition: Any) -> None:
    with pytest.raises(ValueError, match="A condition has the type"):
        on.reconcile("widgets", condition=condition, registry=trioperator.OperatorRegistry())


async def test_a_handler_sees_the_last_error_and_that_it_is_over(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[str] = []

    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(last_error: Exception | None, conditions: trioperator.Conditions) -> list[dict[str, Any]]:
        seen.append("" if last_error is None else str(last_error))
        conditions.set("Ready", last_error is None, reason="Testing")
        return [config_map("x")]

    await bench.cluster.create(widget())
    async with bench.running(transport=forbidding(bench, times=2)):
        await settle(60)
        assert await names_of(bench.cluster) == ["x"]
        assert (await condition_of(bench, "Ready"))["status"] == "True"
    text = f"ConfigMap default/x cannot be applied: HTTP 403 Forbidden: {NO}"
    assert seen == ["", text, text, ""]


def test_many_problems_are_summarized() -> None:
    error = ForbiddenError("no", status=403, reason="Forbidden")
    found = ChildrenError([(f"ConfigMap {number}", error) for number in range(9)])
    assert str(found).endswith("ConfigMap 2: HTTP 403 Forbidden: no; and 6 more")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ForbiddenError("no", status=403, reason="Forbidden"), "Forbidden"),
        (InvalidError("no", status=422), "HTTP422"),
        (ForeignChildError("no"), "AlreadyExists"),
        (trioperator.PermanentError("no"), "ReconcileFailed"),
        (KeyError("no"), "ReconcileFailed"),
        (TypeError("no"), "ReconcileFailed"),
        (trioperator.ConfigError("no"), "InvalidChildren"),
    ],
)
def test_reasons_are_words_for_programs(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
    assert reason_of(ChildrenError([("x", LoopError("no", due=3))])) == "ChangedByOthers"
