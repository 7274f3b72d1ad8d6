"""What has come for objects, as the ledger has it."""

from typing import Any

import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.databases import CRD, database
from trioperator._telemetry.why import Occurrence
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner


def causes(operator: OperatorRunner) -> list[str]:
    occurrences = operator.why("orders", kind="databases").occurrences
    return [cause.partition(" ")[0] for each in occurrences for cause in each.causes]


def busy(operator: OperatorRunner) -> list[Occurrence]:
    return [each for each in operator.why("orders").occurrences if not each.is_idle]


async def test_a_watch_event_has_its_version_and_what_it_has_changed(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.create("databases")
    @trioperator.on.update("databases")
    async def resize(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["phase"] = "Ready"

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    await trio.sleep(1)
    changed = await cluster.patch("databases", "orders", {"spec": {"size": 2}})
    await trio.sleep(1)
    last = busy(operator)[-1]
    assert last.causes == (f"MODIFIED {changed['metadata']['resourceVersion']}",)
    assert [(each.field, each.manager) for each in last.changes] == [("spec.size", "unknown")]
    assert last.requests == ("patch databases/orders/status 200", "patch databases/orders 200")


async def test_fields_are_known_without_change_handlers_where_the_state_before_is_kept(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.reconcile("databases", owns=["configmaps"])
    async def provide(name: str, spec: trioperator.Spec, **_: Any) -> Any:
        data = {"size": str(spec["size"])}
        return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}]

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    await trio.sleep(1)
    assert operator.why("orders").writes == 1
    await cluster.patch("databases", "orders", {"spec": {"size": 2}, "metadata": {"labels": {"a": "b"}}})
    await trio.sleep(1)
    last = busy(operator)[-1]
    assert {each.field for each in last.changes} == {"spec.size", "metadata.labels.a"}
    assert last.requests == ("patch configmaps/orders 200",)
    await cluster.patch("configmaps", "orders", {"data": {"size": "7"}})
    await trio.sleep(1)
    assert busy(operator)[-1].causes == ("child configmaps orders",)
    assert operator.why("orders").writes == 3


async def test_retries_resyncs_and_requests_are_told_apart(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    failures = iter([True])

    @trioperator.on.create("databases", backoff=5)
    async def create(**_: Any) -> None:
        if next(failures, False):
            raise trioperator.TemporaryError("not yet", delay=5)

    @trioperator.on.reconcile("databases", resync=300)
    async def provide(**_: Any) -> None: ...

    @trioperator.timer("databases", interval=100, initial_delay=100)
    async def tick(patch: trioperator.Patch, retry: int, **_: Any) -> None:
        patch.status["ticks"] = "some"

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    await trio.sleep(20)
    assert "retry" in causes(operator)
    await trio.sleep(90)
    assert {"timer", "patch"} <= set(causes(operator))
    await trio.sleep(300)
    assert "resync" in causes(operator)


async def test_the_end_of_a_daemon_is_no_resync(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.reconcile("databases", resync=300)
    async def provide(**_: Any) -> None: ...

    @trioperator.daemon("databases")
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    await trio.sleep(1)
    await cluster.patch("databases", "orders", {"metadata": {"annotations": {"trioperator.dev/paused": "true"}}})
    await trio.sleep(10)
    assert "due" in causes(operator)
    assert "resync" not in causes(operator)


async def test_objects_of_the_start_are_told_from_new_ones(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.resume("databases")
    @trioperator.on.create("databases")
    async def begin(**_: Any) -> None: ...

    await cluster.apply(CRD)
    await cluster.create(database(size=1))
    await operator.start()
    await trio.sleep(1)
    assert causes(operator)[0] == "start"
    assert operator.why("nobody") == operator.why("nobody")
    assert operator.why("nobody").writes == 0


async def test_what_follows_an_own_write_is_no_retry_of_a_handler_that_waits(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    @trioperator.on.create("databases", backoff=60)
    async def fail(**_: Any) -> None:
        raise trioperator.TemporaryError("not yet", delay=60)

    @trioperator.daemon("databases", initial_delay=10)
    async def measure(patch: trioperator.Patch, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        patch.status["size"] = 7
        await stopped.wait()

    @trioperator.on.event("databases")
    async def mark(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["marked"] = True

    await cluster.apply(CRD)
    await operator.start()
    await cluster.create(database(size=1))
    await trio.sleep(50)
    assert "own write" in [cause for each in operator.why("orders").occurrences for cause in each.causes]
    assert "retry" not in causes(operator)
    await trio.sleep(15)
    assert causes(operator).count("retry") == 1
