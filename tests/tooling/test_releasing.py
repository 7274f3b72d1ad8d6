"""Tests for :mod:`trioperator._tooling.releasing`: what operators leave on objects, and how it is removed."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

import trioperator
from tests.levels import TOO_MANY
from tests.rewriting import WITHOUT_UIDS, Rewriting
from trioperator._tooling.releasing import Place, Releaser, Traces
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.errors import ConfigError, NotFoundError
from trioperator.testing import Fault, FaultPlan, OperatorRunner

EVERYWHERE = Place(all_namespaces=True)
OURS, KOPFS, OTHERS = "trioperator.dev/finalizer", "kopf.zalando.org/KopfFinalizerMarker", "others.dev/finalizer"


def config_map(name: str, *finalizers: str, **metadata: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "finalizers": list(finalizers), **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


async def finalizers_of(cluster: Cluster, name: str) -> list[str]:
    found = await cluster.get("configmaps", name, namespace="default")
    finalizers: list[str] = found["metadata"].get("finalizers", [])
    return finalizers


async def test_finalizers_of_operators_are_removed_and_those_of_others_stay(
    cluster: Cluster, client: Client, autojump_clock: MockClock
) -> None:
    for body in (config_map("a", OTHERS, OURS), config_map("b", KOPFS), config_map("c", OTHERS)):
        await cluster.create(body)
    lines: list[str] = []
    summary = await Releaser(client, Traces(), lines.append).release("configmaps", EVERYWHERE)
    assert [await finalizers_of(cluster, name) for name in "abc"] == [[OTHERS], [], [OTHERS]]
    assert lines == [f"default/a: {OURS}", f"default/b: {KOPFS}"]
    assert (summary.seen, summary.released, summary.failed, summary.again) == (3, 2, 0, 0)


async def test_objects_without_a_uid_are_told_apart_by_their_names(cluster: Cluster, autojump_clock: MockClock) -> None:
    for body in (config_map("a", OURS), config_map("b", OTHERS)):
        await cluster.create(body)
    transport = Rewriting(cluster.transport(), WITHOUT_UIDS, plural="configmaps")
    connection = trioperator.ConnectionInfo(server="http://cluster")
    async with trioperator.open_client(connection=connection, transport=transport) as client:
        summary = await Releaser(client, Traces(), print).release("configmaps", EVERYWHERE)
    assert [await finalizers_of(cluster, name) for name in "ab"] == [[], [OTHERS]]
    assert (summary.seen, summary.released, summary.failed, summary.again) == (2, 1, 0, 0)


async def test_objects_that_are_being_deleted_go(cluster: Cluster, client: Client, autojump_clock: MockClock) -> None:
    await cluster.create(config_map("a", OURS))
    await cluster.delete("configmaps", "a", namespace="default")
    await Releaser(client, Traces(state=True), print).release("configmaps", EVERYWHERE)
    with pytest.raises(NotFoundError):
        await client.get("configmaps", "a", namespace="default")


async def test_a_dry_run_changes_nothing(cluster: Cluster, client: Client, autojump_clock: MockClock) -> None:
    await cluster.create(config_map("a", OURS))
    lines: list[str] = []
    summary = await Releaser(client, Traces(), lines.append, dry_run=True).release("configmaps", EVERYWHERE)
    assert (summary.released, lines) == (1, [f"default/a: {OURS}"])
    assert await finalizers_of(cluster, "a") == [OURS]


async def test_only_the_named_objects_of_the_namespace_are_released(
    cluster: Cluster, client: Client, autojump_clock: MockClock
) -> None:
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    for body in (config_map("a", OURS), config_map("b", OURS), config_map("a", OURS, namespace="other")):
        await cluster.create(body)
    summary = await Releaser(client, Traces(), print).release("configmaps", Place(names=("a",)))
    assert (summary.seen, summary.released) == (1, 1)
    assert await finalizers_of(cluster, "b") == [OURS]
    with pytest.raises(NotFoundError, match="absent"):
        await Releaser(client, Traces(), print).release("configmaps", Place(names=("absent",)))


async def test_the_state_of_an_operator_is_removed_with_its_annotations_and_status(
    cluster: Cluster, client: Client, autojump_clock: MockClock
) -> None:
    annotations = {"trioperator.dev/last-handled-configuration": "{}", "kopf.zalando.org/fn": "{}", "mine": "stays"}
    status = {"kopf": {"progress": {"fn": {}}}, "trioperator": {}, "phase": "Running"}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "main", "image": "x"}]}}
    await cluster.create({**pod, "metadata": {"name": "a", "namespace": "default", "annotations": annotations}})
    await cluster.patch("pods", "a", {"status": status}, namespace="default", subresource="status")
    await Releaser(client, Traces(state=True), print).release("pods", EVERYWHERE)
    found = await cluster.get("pods", "a", namespace="default")
    assert found["metadata"]["annotations"] == {"mine": "stays"}
    assert "kopf" not in found["status"]
    assert found["status"]["phase"] == "Running"


async def test_what_people_have_paused_stays_paused(
    cluster: Cluster, client: Client, autojump_clock: MockClock
) -> None:
    theirs = {"trioperator.dev/paused": "true", "trioperator.dev/reconcile-requested-at": "now"}
    await cluster.create(config_map("a", OURS, annotations={**theirs, "trioperator.dev/last-handled": "{}"}))
    await Releaser(client, Traces(state=True), print).release("configmaps", EVERYWHERE)
    found = await cluster.get("configmaps", "a", namespace="default")
    assert found["metadata"]["annotations"] == theirs


async def test_an_object_that_changes_meanwhile_is_released_in_its_new_version(
    cluster: Cluster, client: Client, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("a", OURS))
    plan.add(Fault.delay(before=2), resource="configmaps", verb="patch", times=1)

    async def change() -> None:
        await trio.sleep(1)
        await cluster.patch("configmaps", "a", {"metadata": {"finalizers": [OTHERS, OURS]}}, namespace="default")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        summary = await Releaser(client, Traces(), print).release("configmaps", EVERYWHERE)
    assert (summary.released, summary.failed) == (1, 0)
    assert await finalizers_of(cluster, "a") == [OTHERS]


async def test_an_operator_that_still_runs_is_noticed(
    cluster: Cluster, client: Client, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.delete("configmaps", registry=registry)
    async def delete(**_: Any) -> None:
        pass

    await cluster.create(config_map("a"))
    await operator.start(registry)
    await client.wait_for("configmaps", "a", condition=lambda body: OURS in body["metadata"].get("finalizers", ()))
    await cluster.create(config_map("b", OTHERS))
    summary = await Releaser(client, Traces(), print).release("configmaps", EVERYWHERE)
    assert summary.released >= 1
    assert summary.again >= 1


async def test_an_object_that_cannot_be_changed_is_reported_and_the_others_are_released(
    cluster: Cluster, client: Client, autojump_clock: MockClock, plan: FaultPlan
) -> None:
    for name in "ab":
        await cluster.create(config_map(name, OURS))
    plan.add(Fault.status(403), resource="configmaps", verb="patch", times=1)
    lines: list[str] = []
    summary = await Releaser(client, Traces(), lines.append).release("configmaps", EVERYWHERE)
    assert (summary.released, summary.failed) == (1, 1)
    assert lines[0].startswith("default/a: not released: ")
    assert await finalizers_of(cluster, "b") == []


async def test_an_object_that_cannot_be_read_is_not_taken_for_released(
    client: Client, autojump_clock: MockClock, plan: FaultPlan
) -> None:
    deep = b'{"metadata": {"name": "deep"}, "data": ' + b"[" * TOO_MANY + b"]" * TOO_MANY + b"}"
    listed = b'{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [' + deep + b"]}"
    plan.add(Fault.answer(200, listed), resource="configmaps", verb="list")
    summary = await Releaser(client, Traces(), print).release("configmaps", EVERYWHERE)
    assert (summary.seen, summary.failed) == (0, 1)


@pytest.mark.parametrize("prefix", ["kubernetes.io", "k8s.io", "snapshot.storage.kubernetes.io"])
def test_finalizers_of_kubernetes_itself_are_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="Kubernetes' own"):
        Traces(prefixes=(prefix,))


NAMES = st.sampled_from([OURS, KOPFS, OTHERS, "plain", "trioperator.dev", "my.trioperator.dev/x", "trioperator.dev/y"])


@given(st.lists(NAMES, unique=True), st.frozensets(NAMES), st.booleans())
def test_a_patch_keeps_the_order_of_what_stays(names: list[str], named: frozenset[str], state: bool) -> None:
    traces = Traces(prefixes=("trioperator.dev",), finalizers=named, state=state)
    body = config_map("a", *names, resourceVersion="5", annotations=dict.fromkeys(names, "x"))
    patch = traces.build_patch(body)
    gone = {name for name in names if name in named or name.startswith("trioperator.dev/")}
    found = {"finalizers": names, **(patch or {}).get("metadata", {})}
    assert found["finalizers"] == [name for name in names if name not in gone]
    removed = set(found.get("annotations", ()))
    assert removed == {name for name in names if state and name.startswith("trioperator.dev/")}
    assert patch is None or patch["metadata"]["resourceVersion"] == "5"
