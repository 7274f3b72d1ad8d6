"""Tests for :mod:`trioperator.testing.operator_runner`: the fixture ``operator``, and runners without it."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from trioperator.apiserver import Cluster
from trioperator.errors import ActivityError, ConfigError
from trioperator.testing import Fault, FaultPlan, FaultyTransport, OperatorRunner, eventually, open_runner

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}


def declare(calls: list[str] | None = None) -> None:
    @trioperator.on.create("configmaps")
    async def create_fn(name: str, logger: trioperator.ObjectLogger, patch: trioperator.Patch, **_: object) -> None:
        logger.info("Hello, %s!", name)
        patch.setdefault("data", {})["greeted"] = "yes"
        if calls is not None:
            calls.append(name)


async def test_calls_logs_events_and_writes_are_recorded_for_each_object(
    operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock
) -> None:
    declare()
    await operator.start()
    await cluster.create(CONFIG_MAP)
    await cluster.create({**CONFIG_MAP, "metadata": {"name": "other"}})
    await cluster.wait_for("configmaps", "c", lambda found: found["data"]["greeted"])
    await trio.sleep(10)
    (call,) = operator.calls.select(handler="create_fn", kind="ConfigMap", namespace="default", name="c")
    assert (call.reason, call.retry, call.error, call.final) == ("create", 0, None, True)
    assert call.kwargs["uid"] == (await cluster.get("configmaps", "c"))["metadata"]["uid"]
    (line,) = operator.logs.select(message="Hello, c!")
    assert (line.kind, line.namespace, line.name, line.level) == ("ConfigMap", "default", "c", "INFO")
    events = await operator.list_events("c", kind="ConfigMap")
    assert "Hello, c!" in [event["message"] for event in events]
    assert await operator.list_events("c", kind="Secret") == []
    path = "PATCH /api/v1/namespaces/default/configmaps/"
    assert {str(write) for write in operator.writes} == {f"{path}c", f"{path}other"}


async def test_an_operator_stops_and_starts_again_as_it_was(
    operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock
) -> None:
    ended: list[str] = []

    @trioperator.on.cleanup()
    async def cleanup_fn(**_: object) -> None:
        ended.append("in order")

    declare()
    await operator.start(namespaces=["default"])
    with pytest.raises(RuntimeError, match="is running already"):
        await operator.start()
    await operator.stop()
    assert ended == ["in order"]
    await cluster.create(CONFIG_MAP)
    await trio.sleep(100)
    assert not operator.calls.select(handler="create_fn")
    await operator.start()
    await eventually(lambda: operator.calls.select(handler="create_fn"))


async def test_a_crash_stores_nothing_and_cleans_nothing_up(
    operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock
) -> None:
    cleaned: list[bool] = []

    @trioperator.on.cleanup()
    async def cleanup_fn(**_: object) -> None:
        cleaned.append(True)

    @trioperator.on.create("configmaps")
    async def create_fn(patch: trioperator.Patch, retry: int, **_: object) -> None:
        patch["data"] = {"a": "b"}
        if len(operator.calls) == 1:
            await trio.sleep_forever()

    await operator.start()
    await cluster.create(CONFIG_MAP)
    await eventually(lambda: operator.calls)
    await operator.crash()
    assert not operator.is_running
    assert not cleaned
    assert "data" not in await cluster.get("configmaps", "c")
    await operator.start()
    await cluster.wait_for("configmaps", "c", lambda found: found["data"]["a"] == "b")
    assert all(call.ended is not None for call in operator.calls)


async def test_failures_of_handlers_fail_the_test_unless_they_are_expected(
    cluster: Cluster, autojump_clock: MockClock
) -> None:
    async def run(*expected: str | type[BaseException], error: Exception) -> None:
        async with open_runner(cluster) as operator:

            @trioperator.on.event("configmaps")
            async def event_fn(**_: object) -> None:
                raise error

            @trioperator.on.create("configmaps")
            async def waiting_fn(**_: object) -> None:
                raise trioperator.TemporaryError("not yet", delay=100)

            @trioperator.on.create("configmaps", errors=trioperator.ErrorsMode.IGNORED)
            async def ignoring_fn(**_: object) -> None:
                raise KeyError

            if expected:
                operator.expect_failures(*expected)
            await operator.start()
            await trio.sleep(1)

    await cluster.create(CONFIG_MAP)
    with pytest.raises(AssertionError, match=r"event_fn for ConfigMap default/c has failed[\s\S]*ValueError: oops"):
        await run(error=ValueError("oops"))
    await run("event_fn", error=ValueError("oops"))
    await run(ValueError, error=ValueError("oops"))
    with pytest.raises(AssertionError, match="KeyError was expected to fail, but has not"):
        await run(ValueError, KeyError, error=ValueError("oops"))


async def test_a_deletion_that_the_finalizer_blocks_fails_the_test(cluster: Cluster, autojump_clock: MockClock) -> None:
    with pytest.raises(AssertionError, match=r"still have the operator's finalizer .*: ConfigMap default/c\."):
        async with open_runner(cluster) as operator:

            @trioperator.on.delete("configmaps")
            async def delete_fn(**_: object) -> None:
                raise trioperator.TemporaryError("not yet")

            await operator.start()
            await cluster.create(CONFIG_MAP)
            await trio.sleep(10)
            await cluster.delete("configmaps", "c")


async def test_a_deletion_in_progress_at_the_end_of_a_test_is_waited_for(
    operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock
) -> None:
    @trioperator.on.delete("configmaps")
    async def delete_fn(**_: object) -> None:
        await trio.sleep(3)

    await operator.start()
    await cluster.create(CONFIG_MAP)
    await trio.sleep(10)
    await cluster.delete("configmaps", "c")


async def test_a_task_outside_of_nurseries_fails_the_test(cluster: Cluster, autojump_clock: MockClock) -> None:
    tasks: list[trio.lowlevel.Task] = []
    scope = trio.CancelScope()

    async def leak() -> None:
        with scope:
            await trio.sleep_forever()

    with pytest.raises(AssertionError, match=r"outside of nurseries are still running: leak\."):
        async with open_runner(cluster) as operator:

            @trioperator.on.startup()
            async def startup_fn(**_: object) -> None:
                tasks.append(trio.lowlevel.spawn_system_task(leak, name="leak"))

            await operator.start()
    scope.cancel()


async def test_an_operator_that_cannot_start_is_that_error_itself(
    operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    with pytest.raises(ConfigError, match="The operator has no handlers"):
        await operator.start()

    @trioperator.on.startup()
    async def startup_fn(**_: object) -> None:
        raise trioperator.PermanentError("no database")

    with pytest.raises(ActivityError, match="startup_fn: no database"):
        await operator.start()
    assert not operator.is_running
    with pytest.raises(TypeError, match="nmespaces"):
        await operator.start(nmespaces=["default"])


async def test_an_operator_that_ends_by_itself_ends_the_test(cluster: Cluster, autojump_clock: MockClock) -> None:
    with pytest.raises(SystemExit):
        async with open_runner(cluster) as operator:

            @trioperator.on.event("configmaps")
            async def event_fn(**_: object) -> None:
                raise SystemExit(3)

            await operator.start()
            await cluster.create(CONFIG_MAP)
            await trio.sleep_forever()


async def test_a_converged_operator_writes_nothing_more(
    operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock
) -> None:
    declare()
    await operator.start()
    await cluster.create(CONFIG_MAP)
    await operator.assert_converged()
    await operator.assert_idempotent()


async def test_children_that_are_applied_again_without_a_change_are_no_writes(
    operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock
) -> None:
    @trioperator.on.reconcile("configmaps", owns=["secrets"])
    async def reconcile(name: str) -> AsyncIterator[dict[str, Any]]:
        yield {"apiVersion": "v1", "kind": "Secret", "stringData": {"a": name}}

    await operator.start()
    await cluster.create(CONFIG_MAP)
    await operator.assert_converged()
    before = len(operator.writes)
    await operator.assert_idempotent()
    assert [write.changed for write in [*operator.writes][before:]] == [False]


async def test_an_operator_that_goes_on_writing_has_not_converged(
    operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock
) -> None:
    @trioperator.on.resume("configmaps")
    @trioperator.timer("configmaps", interval=600)
    async def count(patch: trioperator.Patch, **_: object) -> None:
        patch["data"] = {"at": str(trio.current_time())}

    await cluster.create(CONFIG_MAP)
    await operator.start()
    with pytest.raises(AssertionError, match=r"In 3600 seconds it wrote \d+ times:\n  PATCH /api.*/c .*\"at\":"):
        await operator.assert_converged()
    with pytest.raises(AssertionError, match=r"is not idempotent. After a restart it wrote"):
        await operator.assert_idempotent()


async def test_faults_are_injected_by_a_transport_of_the_test(
    operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock
) -> None:
    plan, calls = FaultPlan(), list[str]()
    rule = plan.add(Fault.lose_answer(), verb="patch", times=2)
    declare(calls)
    await operator.start(transport=FaultyTransport(cluster.transport(), plan))
    await cluster.create(CONFIG_MAP)
    await cluster.wait_for("configmaps", "c", lambda found: found["data"]["greeted"])
    await trio.sleep(100)
    assert rule.hits == 2
    assert calls == ["c"]


async def test_without_autojump_the_end_of_a_test_waits_for_no_time(
    operator: OperatorRunner, cluster: Cluster, mock_clock: MockClock
) -> None:
    @trioperator.on.delete("configmaps")
    async def delete_fn(**_: object) -> None: ...

    await operator.start()
    await cluster.create(CONFIG_MAP)


async def test_an_operator_runs_over_tcp_in_real_time(
    operator: OperatorRunner, cluster: Cluster, cluster_url: str
) -> None:
    calls: list[str] = []

    @trioperator.on.event("configmaps")
    def event_fn(name: str, **_: object) -> None:
        calls.append(name)

    await operator.start(connection=trioperator.ConnectionInfo(server=cluster_url))
    await cluster.create(CONFIG_MAP)
    await eventually(lambda: calls == ["c"])
    assert operator.calls.select(handler="event_fn", name="c")
    await operator.crash()


async def test_files_are_started_by_their_paths(
    operator: OperatorRunner, cluster: Cluster, autojump_clock: MockClock
) -> None:
    example = pathlib.Path(__file__).parents[2] / "examples" / "01-minimal"
    await cluster.apply(example.parent / "crd.yaml")
    await operator.start(example / "main.py")
    await cluster.apply(example.parent / "obj.yaml")
    await eventually(lambda: operator.calls.select(handler="create_fn", name="kopf-example-1"))
