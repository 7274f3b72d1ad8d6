"""Tests for :mod:`trioperator._tooling.uninstalling`: what is left of an operator, and the order in which it goes."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD
from trioperator._kube.discovery import discover
from trioperator._tooling.uninstalling import Installation, Run, Step, needs_managed, plan_steps
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.errors import NotFoundError
from trioperator.testing import Fault, FaultPlan

FINALIZER = "trioperator.dev/finalizer"
CLIENT = {"url": "https://localhost:1/x", "caBundle": ""}


@pytest.fixture
def registry() -> trioperator.OperatorRegistry:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.delete("widgets", registry=registry)
    async def delete(**_: Any) -> None:
        pass

    @trioperator.on.event("pods", registry=registry)
    async def watch(**_: Any) -> None:
        pass

    @trioperator.on.validate("widgets", registry=registry)
    async def check(**_: Any) -> None:
        pass

    return registry


async def find_steps(client: Client, installation: Installation) -> list[Step]:
    return await plan_steps(client, installation, (await discover(await client._connect())).resources)


async def run_all(steps: list[Step], *, dry_run: bool = False) -> tuple[list[str], bool]:
    lines: list[str] = []
    done = [await step.run(Run(lines.append, dry_run)) for step in steps]
    return lines, all(done)


@pytest.fixture
async def installed(cluster: Cluster) -> Cluster:
    """Return a cluster in which an operator has left all that it can."""
    await cluster.apply(CRD)
    metadata = {"name": "w", "namespace": "default", "finalizers": [FINALIZER]}
    await cluster.create({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata})
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "hooks"}}
        await cluster.create({**body, "webhooks": []})
    for name in ("op", "op-0", "op-11", "op-members", "op-other", "others"):
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {}}
        await cluster.create({**lease, "metadata": {"name": name, "namespace": "default"}})
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": CLIENT, "conversionReviewVersions": ["v1"]}}
    await cluster.patch("customresourcedefinitions", "widgets.example.com", {"spec": {"conversion": conversion}})
    return cluster


async def test_all_that_is_left_goes_in_an_order_in_which_nothing_blocks(
    installed: Cluster, client: Client, registry: trioperator.OperatorRegistry, autojump_clock: MockClock
) -> None:
    @trioperator.on.convert("example.com", "widgets", from_="v1", to="v2", registry=registry)
    def convert(**_: Any) -> None:
        pass

    installation = Installation(handlers=tuple(registry), managed="hooks", lease=("default", "op"))
    steps = await find_steps(client, installation)
    assert [step.title.split(":")[0] for step in steps] == [
        "Delete the mutatingwebhookconfiguration hooks",
        "Delete the validatingwebhookconfiguration hooks",
        "Convert widgets.example.com without a webhook, which no longer responds",
        "Remove the finalizers of all widgets.v1.example.com",
        *(f"Delete the lease default/{name}" for name in ("op", "op-0", "op-11", "op-members")),
    ]
    lines, is_done = await run_all(steps)
    assert is_done
    assert f"default/w: {FINALIZER}" in lines
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        with pytest.raises(NotFoundError):
            await client.get(kind, "hooks")
    crd = await client.get("customresourcedefinitions", "widgets.example.com")
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    leases = await client.list("leases", namespace="default")
    assert [each["metadata"]["name"] for each in leases] == ["op-other", "others"]
    assert "finalizers" not in (await client.get("widgets", "w", namespace="default"))["metadata"]
    assert [step.title for step in await find_steps(client, installation)] == [steps[3].title]  # it may be repeated


async def test_objects_of_other_namespaces_stay_as_they_are(
    installed: Cluster, client: Client, registry: trioperator.OperatorRegistry, autojump_clock: MockClock
) -> None:
    await installed.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    metadata = {"name": "w", "namespace": "other", "finalizers": [FINALIZER]}
    await installed.create({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata})
    steps = await find_steps(client, Installation(handlers=tuple(registry), namespaces=("other",)))
    lines, _ = await run_all(steps)
    assert lines == [f"other/w: {FINALIZER}"]


async def test_a_dry_run_names_what_is_to_be_done_and_changes_nothing(
    installed: Cluster, client: Client, registry: trioperator.OperatorRegistry
) -> None:
    steps = await find_steps(client, Installation(handlers=tuple(registry), managed="hooks", lease=("default", "op")))
    count = len(installed.requests)
    lines, is_done = await run_all(steps, dry_run=True)
    assert is_done
    assert "hooks: to be done" in lines
    assert {request.verb for request in list(installed.requests)[count:]} == {"list"}


async def test_what_cannot_be_removed_is_reported_and_the_rest_goes(
    installed: Cluster, client: Client, registry: trioperator.OperatorRegistry, plan: FaultPlan
) -> None:
    plan.add(Fault.status(403, message="no"), resource="leases", verb="delete", times=1)
    lines, is_done = await run_all(await find_steps(client, Installation(handlers=(), lease=("default", "op"))))
    assert not is_done
    assert "op: failed: HTTP 403 Forbidden: no" in lines
    assert "op-0: done" in lines


@pytest.mark.parametrize(
    "selector",
    [{"matchLabels": {"app": "op"}}, {"matchExpressions": [{"key": "app", "operator": "In", "values": ["op", "x"]}]}],
)
async def test_the_operator_is_stopped_before_anything_is_removed(
    cluster: Cluster, client: Client, autojump_clock: MockClock, selector: dict[str, Any]
) -> None:
    labels = {"app": "op"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    spec = {"replicas": 1, "selector": selector, "template": pod}
    metadata = {"name": "op", "namespace": "default"}
    await cluster.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    await cluster.create({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {**metadata, "labels": labels}})
    [stop] = await find_steps(client, Installation(handlers=(), deployment=("default", "op")))
    lines: list[str] = []
    assert not await stop.run(Run(lines.append))
    assert lines == ["op: its pods are still there after 60 s."]
    assert (await cluster.get("deployments", "op", namespace="default"))["spec"]["replicas"] == 0

    async def end() -> None:
        await trio.sleep(20)
        await cluster.delete("pods", "op", namespace="default")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        assert await stop.run(Run(lines.append))
    assert lines[1:] == ["op: done"]


def test_webhook_configurations_are_asked_for_by_their_name(registry: trioperator.OperatorRegistry) -> None:
    assert needs_managed(Installation(handlers=tuple(registry)))
    assert not needs_managed(Installation(handlers=tuple(registry), managed="hooks"))
    assert not needs_managed(Installation(handlers=()))
