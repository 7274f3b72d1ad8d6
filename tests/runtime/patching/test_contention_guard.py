"""Fights that others have published, replayed in virtual time: who is named, how often we write, and how it ends."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.databases import CRD, database
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport, OperatorRunner

PAUSED = "trioperator.dev/paused"
LAST_HANDLED = "trioperator.dev/last-handled-configuration"
OBJECT = "/apis/example.com/v1/namespaces/default/databases/orders"


class Other:
    """Somebody else, who writes under a name of its own."""

    def __init__(self, client: Any, manager: str) -> None:
        self._client = client
        self.manager = manager
        self.writes = 0

    async def merge(self, patch: dict[str, Any], path: str = OBJECT) -> None:
        response = await self._client.patch(
            f"http://cluster{path}?fieldManager={self.manager}",
            json=patch,
            headers={"Content-Type": "application/merge-patch+json"},
        )
        response.raise_for_status()
        self.writes += 1

    async def apply(self, body: dict[str, Any]) -> None:
        response = await self._client.patch(
            f"http://cluster{OBJECT}?fieldManager={self.manager}&force=true",
            content=json.dumps(body),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        response.raise_for_status()

    async def get(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self._client.get(f"http://cluster{OBJECT}")).json()
        return found


@contextlib.asynccontextmanager
async def fighting(
    cluster: Cluster, manager: str, fight: Callable[[Other], Awaitable[None]]
) -> AsyncIterator[tuple[Other, trio.CancelScope]]:
    """Let somebody fight with the operator in the block, until the scope is cancelled."""
    import httpx

    async with httpx.AsyncClient(transport=cluster.transport()) as client, trio.open_nursery() as nursery:
        other, scope = Other(client, manager), trio.CancelScope()

        async def run() -> None:
            with scope:
                await fight(other)

        nursery.start_soon(run)
        yield other, scope
        scope.cancel()


def own_writes(operator: OperatorRunner, since: float) -> int:
    return sum(write.time >= since and write.path.partition("?")[0].startswith(OBJECT) for write in operator.writes)


async def last_handled_size(cluster: Cluster) -> int:
    """Return the size in the last-handled configuration that is stored."""
    found = await cluster.get("databases", "orders")
    size: int = json.loads(found["metadata"]["annotations"][LAST_HANDLED])["spec"]["size"]
    return size


async def stomp_label(other: Other) -> None:
    """Set a label back, 13 times a second, whatever it is."""
    while True:
        await other.merge({"metadata": {"labels": {"team": "theirs"}}})
        await trio.sleep(1 / 13)


async def scale(other: Other) -> None:
    """Set the replicas whenever they differ from what another operator wants."""
    while True:
        found = await other.get()
        if found["spec"].get("replicas") != 5:
            await other.merge({"spec": {"replicas": 5}})
        await trio.sleep(0.5)


async def apply_label(other: Other) -> None:
    """Apply a label five times a second, with force, as tools for GitOps do."""
    label = {"name": "orders", "labels": {"team": "theirs"}}
    while True:
        await other.apply({"apiVersion": "example.com/v1", "kind": "Database", "metadata": label})
        await trio.sleep(0.2)


async def annotate(other: Other) -> None:
    """Write an annotation with the state of a load balancer, as the controller of network endpoint groups does."""
    number = 0
    while True:
        number += 1
        found = await other.get()
        if not str(found["metadata"].get("annotations", {}).get("neg-status", "")).startswith("zone"):
            await other.merge({"metadata": {"annotations": {"neg-status": f"zone-{number}"}}})
        await trio.sleep(1)


FIGHTS: list[Any] = [
    pytest.param(stomp_label, {"metadata": {"labels": {"team": "ours"}}}, "metadata.labels.team", id="label"),
    pytest.param(apply_label, {"metadata": {"labels": {"team": "ours"}}}, "metadata.labels.team", id="applied label"),
    pytest.param(scale, {"spec": {"replicas": 3}}, "spec.replicas", id="replicas"),
    pytest.param(
        annotate, {"metadata": {"annotations": {"neg-status": ""}}}, "metadata.annotations.neg-status", id="neg"
    ),
]


@pytest.mark.parametrize(("fight", "wanted", "field"), FIGHTS)
async def test_a_fight_is_named_slowed_down_and_ends(
    fight: Callable[[Other], Awaitable[None]],
    wanted: dict[str, Any],
    field: str,
    cluster: Cluster,
    operator: OperatorRunner,
    autojump_clock: MockClock,
) -> None:
    @trioperator.on.event("databases")
    async def insist(patch: trioperator.Patch, type: str, **_: Any) -> None:
        patch.update(wanted)

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create({**database(size=1), "status": {"conditions": []}})
    async with fighting(cluster, "stomper", fight) as (other, scope):
        await trio.sleep(10)
        [warning] = [line for line in operator.logs if line.level == "WARNING"]
        assert f"{field} is changed by stomper repeatedly" in str(warning)
        [event] = [event for event in await operator.list_events("orders") if event["reason"] == "Contended"]
        assert field in event["message"]
        since = trio.current_time()
        await trio.sleep(200)
        assert own_writes(operator, since) <= 4
        scope.cancel()
        await trio.sleep(120)
        found = await other.get()
        section, _, name = field.rpartition(".")
        value: Any = found
        for key in section.split("."):
            value = value[key]
        expected: Any = wanted
        for key in field.split("."):
            expected = expected[key]
        assert value[name] == expected
    await trio.sleep(120)
    assert any("no longer contended" in str(line) for line in operator.logs)


async def stomp_each_change(other: Other) -> None:
    """Set a label back as soon as it differs."""
    while True:
        found = await other.get()
        if found["metadata"].get("labels", {}).get("team") != "theirs":
            await other.merge({"metadata": {"labels": {"team": "theirs"}}})
        await trio.sleep(0.1)


def declare(calls: list[str]) -> None:
    @trioperator.on.create("databases")
    @trioperator.on.update("databases")
    async def insist(patch: trioperator.Patch, spec: trioperator.Spec, **_: Any) -> None:
        calls.append("insist")
        patch.metadata.labels["team"] = "ours"
        patch.status["size"] = spec["size"]


async def test_everything_else_is_stored_meanwhile(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    declare([])
    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    async with fighting(cluster, "stomper", stomp_each_change) as (other, scope):
        await trio.sleep(10)
        assert operator.logs.select(level="WARNING")
        await cluster.patch("databases", "orders", {"spec": {"size": 7}})
        await trio.sleep(1)
        assert (await other.get())["status"]["size"] == 7
        assert (await other.get())["metadata"]["labels"]["team"] == "theirs"
        since = trio.current_time()
        await trio.sleep(240)
        labels = [write for write in operator.writes if write.time >= since and b'"labels":{"team"' in write.body]
        assert len(labels) <= 4
        # For each label: it, the status, and that it is handled; the status after it is undone, and what is seen then.
        assert own_writes(operator, since) <= 4 * 5
        scope.cancel()
        await trio.sleep(120)
        assert (await other.get())["metadata"]["labels"]["team"] == "ours"
    await operator.assert_converged()


async def test_what_is_held_does_not_count_as_handled_after_a_crash(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    calls: list[str] = []
    declare(calls)
    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    async with fighting(cluster, "stomper", stomp_each_change) as (other, scope):
        await trio.sleep(10)
        assert operator.logs.select(level="WARNING")
        scope.cancel()
        await operator.crash()
        assert (await other.get())["metadata"]["labels"]["team"] == "theirs"
        await operator.start()
        await trio.sleep(5)
        assert (await other.get())["metadata"]["labels"]["team"] == "ours"
    assert operator.is_running


async def test_a_held_write_is_made_in_the_end_though_records_are_rejected_when_that_is_announced(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.create("databases")
    @trioperator.on.update("databases")
    async def insist(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["phase"] = "Ready"

    await cluster.apply(CRD)
    await operator.start()
    manifest = database(size=1)
    notes = {"notes": "x" * (256 * 1024 - 6)}  # so there is no room for records
    await cluster.create({**manifest, "metadata": {**manifest["metadata"], "annotations": notes}})
    await cluster.patch("databases", "orders", {"status": {"conditions": []}}, subresource="status")
    async with fighting(cluster, "stomper", degrade_each_change):
        for size in range(2, 20):
            await cluster.patch("databases", "orders", {"spec": {"size": size}})
            await trio.sleep(2)
    body = await cluster.get("databases", "orders")
    assert body["status"]["phase"] == "Degraded"
    assert list_conditions(body)["Contended"]["status"] == "True"
    await trio.sleep(200)
    assert (await cluster.get("databases", "orders"))["status"]["phase"] == "Ready"


@pytest.mark.parametrize("is_slow", [True, False])
@pytest.mark.parametrize("is_down", [True, False])
async def test_a_change_that_is_taken_back_is_handled_though_the_operator_crashes_while_something_is_held(
    is_down: bool, is_slow: bool, cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    seen: list[int] = []

    @trioperator.on.create("databases")
    @trioperator.on.update("databases")
    async def insist(patch: trioperator.Patch, spec: trioperator.Spec, **_: Any) -> None:
        patch.status["phase"] = "Ready"
        seen.append(spec["size"])

    @trioperator.on.update("databases")
    async def follow(spec: trioperator.Spec, **_: Any) -> None:
        if spec["size"] == 10 and is_slow:
            raise trioperator.TemporaryError("not yet", delay=10)

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    async with fighting(cluster, "stomper", degrade_each_change):
        for size in range(2, 10):
            await cluster.patch("databases", "orders", {"spec": {"size": size}})
            await trio.sleep(1)
        assert operator.logs.select(level="WARNING")
        stored = await last_handled_size(cluster)
        await cluster.patch("databases", "orders", {"spec": {"size": 10}})
        await trio.sleep(2)
        assert seen[-1] == 10
        assert await last_handled_size(cluster) == stored  # what belongs to it is held
        if not is_down:
            await cluster.patch("databases", "orders", {"spec": {"size": stored}})
            await trio.sleep(15)
            assert seen[-1] == stored
        await operator.crash()
        if is_down:
            await cluster.patch("databases", "orders", {"spec": {"size": stored}})
    seen.clear()
    await operator.start()
    await trio.sleep(240)
    found = await cluster.get("databases", "orders")
    assert found["status"] == {"phase": "Ready"}
    assert seen == [stored]
    left = {name.rpartition("/")[2] for name in found["metadata"]["annotations"]}
    assert left == {"kopf-managed", "last-handled-configuration"}
    assert await last_handled_size(cluster) == stored


async def test_handlers_are_tried_again_as_announced_while_something_is_held(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    attempts: list[float] = []

    @trioperator.on.create("databases")
    @trioperator.on.update("databases")
    async def insist(patch: trioperator.Patch, spec: trioperator.Spec, **_: Any) -> None:
        patch.status["phase"] = "Ready"
        if spec["size"] == 10:
            attempts.append(trio.current_time())
            if len(attempts) < 3:
                raise trioperator.TemporaryError("not yet", delay=10)

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    async with fighting(cluster, "stomper", degrade_each_change):
        for size in range(2, 11):
            await cluster.patch("databases", "orders", {"spec": {"size": size}})
            await trio.sleep(1)
        assert operator.logs.select(level="WARNING")
        await trio.sleep(25)
    assert [later - one for one, later in itertools.pairwise(attempts)] == pytest.approx([10, 10])


@pytest.mark.parametrize("is_crowded", [False, True])
async def test_what_is_held_is_stored_when_the_contention_is_over(
    is_crowded: bool,
    cluster: Cluster,
    operator: OperatorRunner,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trioperator._runtime.patching.contention_guard._MAX_WATCHED", 1)

    @trioperator.on.event("databases")
    async def insist(patch: trioperator.Patch, spec: trioperator.Spec, **_: Any) -> None:
        patch.status["phase"] = f"Ready {spec['size']}"

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    while not operator.logs.select(level="WARNING"):
        await trio.sleep(1)
        await cluster.patch("databases", "orders", {"status": {"phase": "Degraded"}}, subresource="status")
        await trio.sleep(1)
    await cluster.patch("databases", "orders", {"spec": {"size": 2}})
    await trio.sleep(10)
    assert (await cluster.get("databases", "orders"))["status"] == {"phase": "Ready 1"}
    if is_crowded:  # others are watched, too
        await cluster.create({**database(size=0), "metadata": {"name": "bills", "namespace": "default"}})
        for size in range(10):
            await cluster.patch("databases", "bills", {"spec": {"size": size}})
            await trio.sleep(1)
    await trio.sleep(70)  # the other one has left
    assert (await cluster.get("databases", "orders"))["status"] == {"phase": "Ready 2"}


@pytest.mark.parametrize("is_slow", [True, False])
async def test_later_changes_are_handled_while_something_is_held(
    is_slow: bool, cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    seen: list[int] = []

    @trioperator.on.create("databases")
    @trioperator.on.update("databases")
    async def first(patch: trioperator.Patch, spec: trioperator.Spec, **_: Any) -> None:
        patch.status["first"] = spec["size"]

    @trioperator.on.create("databases")
    @trioperator.on.update("databases")
    async def insist(patch: trioperator.Patch, spec: trioperator.Spec, **_: Any) -> None:
        await trio.sleep(0.5 if is_slow else 0)  # so that it is stored meanwhile that the first one has ended, or not
        patch.status["phase"] = "Ready"
        seen.append(spec["size"])

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    sizes = [1, 2, 3, 4] * 3 if is_slow else [1, 2] * 6
    async with fighting(cluster, "stomper", degrade_each_change):
        for size in sizes:
            await cluster.patch("databases", "orders", {"spec": {"size": size}})
            await trio.sleep(2)
        assert operator.logs.select(level="WARNING")
    assert seen == sizes
    await trio.sleep(240)
    found = await cluster.get("databases", "orders")
    assert found["status"] == {"first": sizes[-1], "phase": "Ready"}
    left = {name.rpartition("/")[2] for name in found["metadata"]["annotations"]}
    assert left == {"kopf-managed", "last-handled-configuration"}
    assert seen == sizes


async def test_a_change_that_is_taken_back_is_handled_while_something_is_held(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    seen: list[int] = []

    @trioperator.on.create("databases")
    @trioperator.on.update("databases")
    async def insist(patch: trioperator.Patch, spec: trioperator.Spec, **_: Any) -> None:
        patch.status["phase"] = "Ready"
        seen.append(spec["size"])

    @trioperator.on.update("databases")
    async def never_ready(spec: trioperator.Spec, **_: Any) -> None:
        if spec["size"] == 10:
            raise trioperator.TemporaryError("not yet", delay=10)

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    sizes = [*range(1, 10), 10, 9]
    async with fighting(cluster, "stomper", degrade_each_change):
        for size in sizes:
            await cluster.patch("databases", "orders", {"spec": {"size": size}})
            await trio.sleep(1)
        assert operator.logs.select(level="WARNING")
    assert seen == sizes


async def test_what_is_held_is_written_when_the_operator_stops(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    declare([])
    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    async with fighting(cluster, "stomper", stomp_each_change) as (other, scope):
        await trio.sleep(10)
        scope.cancel()
        await operator.stop()
        assert (await other.get())["metadata"]["labels"]["team"] == "ours"


async def degrade_each_change(other: Other) -> None:
    """Set the phase back as soon as it differs."""
    while True:
        found = await other.get()
        if found.get("status", {}).get("phase", "Degraded") != "Degraded":
            await other.merge({"status": {"phase": "Degraded"}}, path=f"{OBJECT}/status")
        await trio.sleep(0.1)


def set_phase(patch: trioperator.Patch, phase: str, *, by_function: bool) -> None:
    def write(body: dict[str, Any]) -> None:
        body.setdefault("status", {})["phase"] = phase

    if by_function:
        patch.fns.append(write)
    else:
        patch.status["phase"] = phase


@pytest.mark.parametrize("functions", [(False, False), (False, True), (True, True)])
async def test_what_is_held_gives_way_to_what_is_wanted_later(
    functions: tuple[bool, bool], cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.create("databases")
    @trioperator.on.update("databases")
    async def insist(patch: trioperator.Patch, **_: Any) -> None:
        set_phase(patch, "Working", by_function=functions[0])
        await patch.store()
        set_phase(patch, "Ready", by_function=functions[1])

    async def find_phase() -> str:
        return str((await cluster.get("databases", "orders"))["status"]["phase"])

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    async with fighting(cluster, "stomper", degrade_each_change) as (_, scope):
        for size in range(2, 10):
            await cluster.patch("databases", "orders", {"spec": {"size": size}})
            await trio.sleep(1)
        assert operator.logs.select(level="WARNING")
        scope.cancel()
    assert sum(b'"Ready"' in write.body for write in operator.writes) <= 5  # whatever functions would make of it
    await trio.sleep(80)
    assert await find_phase() == "Ready"  # written once, and still contended
    await cluster.patch("databases", "orders", {"spec": {"size": 1}})
    await trio.sleep(240)
    assert await find_phase() == "Ready"
    assert any("no longer contended" in str(line) for line in operator.logs)
    await operator.assert_converged()


async def test_a_value_that_is_set_later_wins_over_functions_that_are_held(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.create("databases")
    @trioperator.on.update("databases")
    async def insist(patch: trioperator.Patch, spec: trioperator.Spec, **_: Any) -> None:
        set_phase(patch, f"Ready {spec['size']}", by_function=spec["size"] % 2 == 1)

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    async with fighting(cluster, "stomper", degrade_each_change):
        for size in range(2, 11):
            await cluster.patch("databases", "orders", {"spec": {"size": size}})
            await trio.sleep(1)
        assert operator.logs.select(level="WARNING")
    await trio.sleep(240)
    assert (await cluster.get("databases", "orders"))["status"]["phase"] == "Ready 10"


async def test_an_object_with_conditions_says_that_it_is_contended(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    declare([])
    await cluster.apply(CRD)
    await cluster.create(database(size=1))
    await cluster.patch("databases", "orders", {"status": {"conditions": []}}, subresource="status")
    await operator.start()

    async def find() -> dict[str, Any]:
        found = (await cluster.get("databases", "orders"))["status"]["conditions"]
        conditions: dict[str, dict[str, Any]] = {each["type"]: each for each in found}
        return conditions.get("Contended", {})

    async with fighting(cluster, "stomper", stomp_each_change) as (_, scope):
        await cluster.patch("databases", "orders", {"spec": {"size": 2}})
        await trio.sleep(10)
        condition = await find()
        assert (condition["status"], condition["reason"]) == ("True", "ChangedByOthers")
        assert "metadata.labels.team is changed by stomper" in condition["message"]
        scope.cancel()
    await trio.sleep(240)
    assert ((await find())["status"], (await find())["reason"]) == ("False", "Settled")
    [event] = [event for event in await operator.list_events("orders") if event["reason"] == "ContentionEnded"]
    assert event["type"] == "Normal"


class _Steps(trio.abc.Instrument):
    """Cancels a scope when tasks have been scheduled more often than anything explains: virtual time stands still."""

    def __init__(self, scope: trio.CancelScope, limit: int = 50_000) -> None:
        self._scope = scope
        self._left = limit

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


@contextlib.contextmanager
def limiting_steps() -> Iterator[None]:
    with trio.CancelScope() as scope:
        instrument = _Steps(scope)
        trio.lowlevel.add_instrument(instrument)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(instrument)
    assert not scope.cancelled_caught, "an object is reconciled again and again"


async def test_a_write_that_is_held_waits_for_the_end_of_a_pause(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.event("databases")
    async def insist(patch: trioperator.Patch, **_: Any) -> None:
        patch.update({"metadata": {"labels": {"team": "ours"}}})

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    async with fighting(cluster, "stomper", stomp_label) as (other, scope):
        await trio.sleep(10)
        scope.cancel()
        await other.merge({"metadata": {"labels": {"team": "theirs"}}})
    await trio.sleep(1)  # the write is held
    await cluster.patch("databases", "orders", {"metadata": {"annotations": {PAUSED: "true"}}})
    with limiting_steps():
        await trio.sleep(3600)
    assert (await cluster.get("databases", "orders"))["metadata"]["labels"]["team"] == "theirs"
    await cluster.patch("databases", "orders", {"metadata": {"annotations": {PAUSED: None}}})
    with limiting_steps():
        await trio.sleep(240)
    assert (await cluster.get("databases", "orders"))["metadata"]["labels"]["team"] == "ours"


async def test_functions_that_are_held_do_not_pile_up(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    calls = applied = 0

    @trioperator.on.startup()
    async def configure(settings: trioperator.OperatorSettings, **_: Any) -> None:
        settings.contention.interval = 3600

    @trioperator.on.event("databases")
    async def insist(patch: trioperator.Patch, **_: Any) -> None:
        nonlocal calls
        calls += 1
        await trio.sleep(1.1)  # so that the times of the writes differ, by which the server tells whose was the last

        def set_label(body: Any) -> None:
            nonlocal applied
            applied += 1
            body["metadata"].setdefault("labels", {})["team"] = f"ours-{applied}"

        patch.fns.append(set_label)

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    async with fighting(cluster, "stomper", stomp_differently):
        await trio.sleep(1500)
    assert calls > 400
    assert applied < 25 * calls
    assert own_writes(operator, 10) < calls / 5


async def stomp_differently(other: Other) -> None:
    """Set a label to something else, every few seconds."""
    while True:
        await other.merge({"metadata": {"labels": {"team": f"theirs-{other.writes}"}}})
        await trio.sleep(3.3)


def make_crd_with_conditions() -> dict[str, Any]:
    crd = copy.deepcopy(CRD)
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    status = {**free, "properties": {"conditions": {"type": "array", "items": free}}}
    schema = {**free, "properties": {"status": status}}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema  # type: ignore[index]
    return crd


def list_conditions(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in found.get("status", {}).get("conditions", [])}


async def test_an_object_without_conditions_of_a_kind_that_has_some_says_that_it_is_contended(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    declare([])
    await cluster.apply(make_crd_with_conditions())
    await cluster.create(database(size=1))
    await operator.start()
    async with fighting(cluster, "stomper", stomp_each_change) as (_, scope):
        await cluster.patch("databases", "orders", {"spec": {"size": 2}})
        await trio.sleep(10)
        condition = list_conditions(await cluster.get("databases", "orders"))["Contended"]
        assert (condition["status"], condition["reason"]) == ("True", "ChangedByOthers")
        scope.cancel()
    await trio.sleep(240)
    assert list_conditions(await cluster.get("databases", "orders"))["Contended"]["status"] == "False"


@pytest.mark.parametrize("conditions", [None, []])
async def test_without_the_right_to_write_the_status_a_contended_object_is_handled_all_the_same(
    conditions: list[Any] | None, cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.create("databases")
    @trioperator.on.update("databases")
    async def insist(patch: trioperator.Patch, **_: Any) -> None:
        patch.metadata.labels["team"] = "ours"

    await cluster.apply(make_crd_with_conditions())
    await cluster.create(database(size=1))
    if conditions is not None:
        await cluster.patch("databases", "orders", {"status": {"conditions": conditions}}, subresource="status")
    plan = FaultPlan()
    plan.add(Fault.status(403), subresource="status", verb="patch")
    await operator.start(transport=FaultyTransport(cluster.transport(), plan))
    async with fighting(cluster, "stomper", stomp_each_change) as (_, scope):
        await cluster.patch("databases", "orders", {"spec": {"size": 2}})
        await trio.sleep(10)
        assert [line for line in operator.logs if "is changed by stomper" in str(line)]
        await trio.sleep(110)
        scope.cancel()
    await trio.sleep(240)
    found = await cluster.get("databases", "orders")
    assert found["metadata"]["labels"]["team"] == "ours"
    assert not list_conditions(found)
    errors = [str(line) for line in operator.logs if line.level == "ERROR"]
    assert 1 <= len(errors) <= 2  # when it begins, and when it ends
    assert all("the changes by the guard against contention are dropped" in line for line in errors)


async def test_what_was_contended_under_a_leadership_that_is_lost_is_no_longer_reported(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    declare([])
    await cluster.apply(make_crd_with_conditions())
    await cluster.create(database(size=1))
    plan = FaultPlan()
    settings = trioperator.OperatorSettings()
    settings.leadership.enabled = True
    await operator.start(transport=FaultyTransport(cluster.transport(), plan), settings=settings)
    async with fighting(cluster, "stomper", stomp_each_change) as (_, scope):
        await cluster.patch("databases", "orders", {"spec": {"size": 2}})
        await trio.sleep(10)
        assert operator.why("orders").contended
        plan.add(Fault.status(503), resource="leases", until=trio.current_time() + 60)
        await trio.sleep(40)
        assert not operator.why("orders").contended  # it is on standby: an alert would never end
        scope.cancel()
    await trio.sleep(300)
    assert list_conditions(await cluster.get("databases", "orders"))["Contended"]["status"] == "False"


async def test_a_condition_that_was_left_before_a_pause_ends_after_it(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    declare([])
    await cluster.apply(make_crd_with_conditions())
    await cluster.create(database(size=1))
    await operator.start()
    async with fighting(cluster, "stomper", stomp_each_change):
        await cluster.patch("databases", "orders", {"spec": {"size": 2}})
        await trio.sleep(10)
    await operator.crash()
    assert list_conditions(await cluster.get("databases", "orders"))["Contended"]["status"] == "True"
    await cluster.patch("databases", "orders", {"metadata": {"annotations": {PAUSED: "true"}}})
    await operator.start()
    await trio.sleep(10)
    await cluster.patch("databases", "orders", {"metadata": {"annotations": {PAUSED: None}}})
    await trio.sleep(10)
    assert list_conditions(await cluster.get("databases", "orders"))["Contended"]["status"] == "False"


async def test_own_writes_by_other_means_are_nobody_elses(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.event("databases")
    async def contradict(patch: trioperator.Patch, name: str, client: trioperator.Client, **_: Any) -> None:
        patch.metadata.labels["team"] = "ours"
        body = {**database(), "metadata": {"name": name, "namespace": "default", "labels": {"team": "other"}}}
        await client.apply(body, field_manager="databases-labels", force=True)

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    await trio.sleep(30)
    assert not [line for line in operator.logs if "is changed by" in str(line)]
    assert [line for line in operator.logs if "nobody else changes it" in str(line)]


@pytest.mark.parametrize("applies", [False, True])
async def test_the_operator_is_not_blamed_for_what_its_own_client_undoes(
    applies: bool, cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.event("databases")
    async def insist(patch: trioperator.Patch, labels: trioperator.Labels, **_: Any) -> None:
        if labels.get("team") != "ours":
            patch.metadata.labels["team"] = "ours"

    @trioperator.timer("databases", interval=1)
    async def undo(name: str, namespace: str, client: trioperator.Client, **_: Any) -> None:
        labels = {"labels": {"team": "theirs"}}
        if applies:
            body = {**database(), "metadata": {"name": name, "namespace": namespace, **labels}}
            await client.apply(body, field_manager="databases-labels", force=True)
        else:
            await client.patch("databases", name, namespace=namespace, merge={"metadata": labels})

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    await trio.sleep(50)
    assert not operator.logs.select(level="WARNING")
    assert own_writes(operator, 0) > 90  # nothing was held


async def test_what_a_timer_writes_is_not_held_when_the_other_one_has_left(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    ticks = 0

    @trioperator.timer("databases", interval=5)
    async def count(patch: trioperator.Patch, **_: Any) -> None:
        nonlocal ticks
        ticks += 1
        patch.metadata.labels["team"] = str(ticks)

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    async with fighting(cluster, "stomper", stomp_label):
        await trio.sleep(60)
    await trio.sleep(182)
    assert (await cluster.get("databases", "orders"))["metadata"]["labels"]["team"] == str(ticks)


async def test_writes_that_change_nothing_are_left_out_after_some(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.timer("databases", interval=1)
    async def repeat(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["phase"] = "Ready"

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    await trio.sleep(30)
    since = trio.current_time()
    await trio.sleep(240)
    assert own_writes(operator, since) <= 4
    assert len(operator.calls) > 200
    assert [line for line in operator.logs if "status.phase is written repeatedly" in str(line)]


async def test_it_can_be_switched_off(cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock) -> None:
    @trioperator.on.startup()
    async def configure(settings: trioperator.OperatorSettings, **_: Any) -> None:
        settings.contention.enabled = False

    declare([])
    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    async with fighting(cluster, "stomper", stomp_each_change):
        await trio.sleep(10)
    assert not [line for line in operator.logs if "is changed by" in str(line)]
    assert own_writes(operator, 0) > 30
