"""Tests for :mod:`trioperator.client.client`: what clients write."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.client.conftest import config_map, deployment, handling, opened
from tests.kube.conftest import Memory, ok, status
from trioperator.apiserver import Cluster
from trioperator.client import Client
from trioperator.errors import (
    ConflictError,
    ConnectionLostError,
    InvalidError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
)
from trioperator.testing import Fault, FaultPlan


async def test_an_object_is_created_in_the_default_namespace(client: Client, cluster: Cluster) -> None:
    created = await client.create(config_map("one", key="value"))
    assert created == await cluster.get("configmaps", "one", "default")
    assert created["data"] == {"key": "value"}


async def test_what_is_sent_is_left_as_it_is(client: Client, owner: dict[str, Any]) -> None:
    manifest = config_map("one")
    with handling(owner):
        await client.create(manifest)
    assert manifest == config_map("one")


async def test_a_number_that_is_none_is_an_error_as_null_would_remove_the_field(client: Client) -> None:
    manifest = config_map("one")
    for write in (client.create, client.apply, client.replace):
        with pytest.raises(ValueError, match=r"data\.share is nan, which is no number in JSON"):
            await write({**manifest, "data": {"share": float("nan")}})
    await client.create(manifest)
    with pytest.raises(ValueError, match=r"data\.share is inf"):
        await client.patch("configmaps", "one", merge={"data": {"share": float("inf")}})


async def test_an_object_that_exists_is_not_created_again(client: Client, autojump_clock: MockClock) -> None:
    await client.create(config_map("one"))
    with pytest.raises(ConflictError, match="already exists"):
        await client.create(config_map("one"))
    assert trio.current_time() == 0


@pytest.mark.parametrize("verb", ["create", "apply"])
async def test_an_object_belongs_to_the_one_that_is_handled(
    client: Client, cluster: Cluster, owner: dict[str, Any], verb: str
) -> None:
    with handling(owner):
        child = await getattr(client, verb)(config_map("child"))
    (reference,) = child["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == (owner["metadata"]["uid"], True)
    assert "labels" not in child["metadata"]  # the owner has some
    await cluster.delete("configmaps", "owner", "default")
    assert await cluster.find("configmaps", "child", "default") is None


@pytest.mark.parametrize("verb", ["create", "apply"])
async def test_an_object_belongs_to_nobody_if_that_is_wanted(client: Client, owner: dict[str, Any], verb: str) -> None:
    with handling(owner):
        created = await getattr(client, verb)(config_map("child"), owner=None)
    assert "ownerReferences" not in created["metadata"]


async def test_another_owner_can_be_passed(client: Client, owner: dict[str, Any]) -> None:
    child = await client.create(config_map("child"), owner=owner)
    assert child["metadata"]["ownerReferences"][0]["name"] == "owner"


async def test_a_child_without_a_name_is_named_after_its_owner(client: Client, owner: dict[str, Any]) -> None:
    with handling(owner):
        child = await client.create({"apiVersion": "v1", "kind": "ConfigMap"})
    assert child["metadata"]["name"].startswith("owner-")


async def test_the_handled_object_does_not_own_itself(client: Client, owner: dict[str, Any]) -> None:
    with handling(owner):
        applied = await client.apply(config_map("owner", key="value"))
    assert applied["metadata"]["uid"] == owner["metadata"]["uid"]
    assert "ownerReferences" not in applied["metadata"]


@pytest.mark.parametrize(
    "child",
    [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "kube-system"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}},
    ],
    ids=["another namespace", "cluster-scoped"],
)
async def test_a_child_that_would_be_garbage_at_once_is_an_error(
    client: Client, cluster: Cluster, owner: dict[str, Any], child: dict[str, Any]
) -> None:
    with handling(owner), pytest.raises(ValueError, match="Pass owner=None"):
        await client.create(child)
    with handling(owner):
        await client.create(child, owner=None)
    assert await cluster.find(child["kind"], "x", child["metadata"].get("namespace")) is not None


@pytest.mark.parametrize("manifest", [{"metadata": {"name": "x"}}, {"kind": "Pod", "metadata": {"name": "x"}}])
async def test_an_object_without_a_kind_is_an_error(client: Client, manifest: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no apiVersion or no kind"):
        await client.create(manifest)


async def test_only_what_has_a_name_is_applied(client: Client) -> None:
    with pytest.raises(ValueError, match=r"metadata\.name"):
        await client.apply({"apiVersion": "v1", "kind": "ConfigMap"})


async def test_applying_creates_changes_and_removes(client: Client) -> None:
    created = await client.apply(config_map("one", a="1", b="2"))
    assert created["data"] == {"a": "1", "b": "2"}
    changed = await client.apply(config_map("one", a="3"))
    assert changed["data"] == {"a": "3"}
    (manager,) = changed["metadata"]["managedFields"]
    assert (manager["manager"], manager["operation"]) == ("trioperator", "Apply")


async def test_an_object_that_was_read_can_be_applied(client: Client) -> None:
    applied = await client.apply(config_map("one", a="1"))
    assert (await client.apply(applied))["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]


async def test_a_replaced_object_is_as_it_was_sent(client: Client) -> None:
    read = await client.create(config_map("one", a="1"))
    read["data"] = {"b": "2"}
    assert (await client.replace(read))["data"] == {"b": "2"}
    with pytest.raises(ConflictError):  # the version is the old one
        await client.replace(read)


async def test_patches_are_of_three_kinds(client: Client, cluster: Cluster) -> None:
    await cluster.create(deployment("web"))
    target = ("deployments", "web")
    merged = await client.patch(*target, merge={"spec": {"replicas": 2}})
    assert merged["spec"]["replicas"] == 2
    changed = await client.patch(*target, json=[{"op": "replace", "path": "/spec/replicas", "value": 3}])
    assert changed["spec"]["replicas"] == 3
    container = {"name": "more", "image": "busybox"}
    pod = {"template": {"spec": {"containers": [container]}}}
    strategic = await client.patch(*target, strategic={"spec": pod})
    assert [each["name"] for each in strategic["spec"]["template"]["spec"]["containers"]] == ["more", "main"]


@pytest.mark.parametrize("patches", [{}, {"merge": {}, "json": []}])
async def test_a_patch_is_of_one_kind(client: Client, patches: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="exactly one"):
        await client.patch("configmaps", "one", **patches)


async def test_the_status_is_a_subresource(client: Client, cluster: Cluster) -> None:
    await cluster.create(deployment("web"))
    changed = await client.patch("deployments", "web", merge={"status": {"replicas": 1}}, subresource="status")
    assert changed["status"]["replicas"] == 1
    changed["status"]["replicas"] = 2
    changed["spec"]["replicas"] = 7
    replaced = await client.replace(changed, subresource="status")
    assert (replaced["status"]["replicas"], replaced["spec"]["replicas"]) == (2, 1)


async def test_a_deployment_is_scaled(client: Client, cluster: Cluster) -> None:
    await cluster.create(deployment("web"))
    scale = await client.scale("deployments", "web", replicas=3)
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 3)
    assert (await cluster.get("deployments", "web", "default"))["spec"]["replicas"] == 3


async def test_a_subresource_is_created_of_its_parent(client: Client, cluster: Cluster) -> None:
    await cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = await client.create(request, "serviceaccounts", "bot", subresource="token")
    assert token["status"]["token"]


async def test_a_deleted_object_is_gone(client: Client, cluster: Cluster) -> None:
    await cluster.create(config_map("one"))
    await client.delete("configmaps", "one")
    assert await cluster.find("configmaps", "one", "default") is None
    with pytest.raises(NotFoundError):
        await client.delete("configmaps", "one")
    await client.delete("configmaps", "one", missing_ok=True)


async def test_a_deleted_object_may_leave_orphans(client: Client, cluster: Cluster, owner: dict[str, Any]) -> None:
    await client.create(config_map("child"), owner=owner)
    await client.delete(owner, propagation="Orphan")
    child = await cluster.get("configmaps", "child", "default")
    assert "ownerReferences" not in child["metadata"]


async def test_no_other_object_of_the_same_name_is_deleted(
    client: Client, cluster: Cluster, owner: dict[str, Any], autojump_clock: MockClock
) -> None:
    with pytest.raises(ConflictError):
        await client.delete(owner, uid="another")
    assert trio.current_time() == 0
    assert await cluster.find("configmaps", "owner", "default") is not None
    await client.delete(owner, uid=owner["metadata"]["uid"])
    assert await cluster.find("configmaps", "owner", "default") is None


async def test_a_deletion_whose_response_is_lost_has_succeeded(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    await cluster.create(config_map("one"))
    plan.add(Fault.lose_answer(), times=1, verb="delete")
    await client.delete("configmaps", "one")
    assert await cluster.find("configmaps", "one", "default") is None


async def test_a_dry_run_changes_nothing(client: Client, cluster: Cluster) -> None:
    await client.create(config_map("one"), dry_run=True)
    await client.apply(config_map("one"), dry_run=True)
    assert await cluster.find("configmaps", "one", "default") is None
    await cluster.create(config_map("one", a="1"))
    await client.patch("configmaps", "one", merge={"data": {"a": "2"}}, dry_run=True)
    await client.delete("configmaps", "one", dry_run=True)
    assert (await cluster.get("configmaps", "one", "default"))["data"] == {"a": "1"}


async def test_writes_are_by_the_field_manager_of_the_settings(cluster: Cluster) -> None:
    async with opened(cluster.transport()) as client:
        kube = await client._connect()
        kube.settings.persistence.field_manager = "mine"
        await client.create(config_map("one"))
        applied = await client.apply(config_map("one", a="1"))
        assert {entry["manager"] for entry in applied["metadata"]["managedFields"]} == {"mine"}


async def test_the_delay_that_the_server_asks_for_is_kept(
    client: Client, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    plan.add(Fault.status(429, retry_after=30), times=1, resource="configmaps")
    await client.create(config_map("one"))
    assert trio.current_time() == 30


async def test_a_create_that_may_have_been_processed_is_not_repeated(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    plan.add(Fault.status(500), times=1, verb="create")
    with pytest.raises(ServerError):
        await client.create(config_map("one"))


async def test_a_json_patch_whose_response_is_lost_is_not_applied_twice(
    client: Client, cluster: Cluster, plan: FaultPlan, autojump_clock: MockClock
) -> None:
    await cluster.create({**config_map("one"), "data": {}, "metadata": {"name": "one", "finalizers": ["a.b/c"]}})
    append: list[dict[str, Any]] = [{"op": "add", "path": "/metadata/finalizers/-", "value": "d.e/f"}]
    rule = plan.add(Fault.lose_answer(), times=1, verb="patch")
    with pytest.raises(ConnectionLostError):
        await client.patch("configmaps", "one", json=append)
    assert rule.hits == 1
    assert (await cluster.get("configmaps", "one"))["metadata"]["finalizers"] == ["a.b/c", "d.e/f"]


async def test_an_invalid_object_is_an_error(client: Client) -> None:
    with pytest.raises(InvalidError):
        await client.create(config_map("Not A Name"))


async def test_a_pod_is_evicted() -> None:
    server = Memory([ok({"kind": "Status"})])
    async with opened(server) as client:
        await client.evict("web-0", grace_period=5)
    (request,) = server.requests
    assert (request.method, request.url.path) == ("POST", "/api/v1/namespaces/default/pods/web-0/eviction")
    assert b'"deleteOptions":{"gracePeriodSeconds":5}' in request.content


async def test_an_eviction_waits_for_disruption_budgets(autojump_clock: MockClock) -> None:
    budget = status(429, "Cannot evict pod as it would violate the pod's disruption budget.", Retry_After="10")
    server = Memory([budget, budget, ok({"kind": "Status"})])
    async with opened(server) as client:
        await client.evict({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "prod"}})
    assert server.times == [0, 10, 20]
    assert {request.url.path for request in server.requests} == {"/api/v1/namespaces/prod/pods/web-0/eviction"}


async def test_an_eviction_that_is_never_allowed_is_an_error(autojump_clock: MockClock) -> None:
    async with opened(Memory([status(429)]), error_backoffs=[1]) as client:
        with pytest.raises(TooManyRequestsError):
            await client.evict("web-0")


async def test_any_other_request_can_be_sent(client: Client) -> None:
    assert b"gitVersion" in await client.request("GET", "/version")


@pytest.mark.parametrize("method", ["get", "list", "watch"])
async def test_a_kind_whose_version_is_not_served_any_more_is_looked_up_again(method: str) -> None:
    served = {"v1": True}

    def respond(request: httpx.Request) -> httpx.Response:
        version = "v1" if served["v1"] else "v2"
        group = {"name": "x.org", "versions": [{"version": version}], "preferredVersion": {"version": version}}
        things = {"name": "things", "kind": "Thing", "namespaced": True, "verbs": ["get"]}
        paths = {
            "/apis": {"kind": "APIGroupList", "groups": [group]},
            f"/apis/x.org/{version}": {"kind": "APIResourceList", "resources": [things]},
            f"/apis/x.org/{version}/namespaces/default/things/one": thing(version),
            f"/apis/x.org/{version}/namespaces/default/things": listed(version),
        }
        found = paths.get(request.url.path)
        return ok(found) if found else status(404, "the server could not find the requested resource", details={})

    async def read(client: Client) -> Any:
        if method == "get":
            return await client.get("things.x.org", "one")
        if method == "list":
            return (await client.list("things.x.org"))[0]
        async with client.watch("things.x.org") as events:
            return (await anext(events)).object

    async with opened(Memory(respond)) as client:
        assert (await read(client))["apiVersion"] == "x.org/v1"
        served["v1"] = False
        with pytest.raises(NotFoundError):
            await read(client)
        assert (await read(client))["apiVersion"] == "x.org/v2"


def thing(version: str) -> dict[str, Any]:
    return {"kind": "Thing", "apiVersion": f"x.org/{version}", "metadata": {"name": "one"}}


def listed(version: str) -> dict[str, Any]:
    metadata = {"resourceVersion": "1"}
    return {"kind": "ThingList", "apiVersion": f"x.org/{version}", "metadata": metadata, "items": [thing(version)]}


@pytest.mark.parametrize("name", ["owner", "child"])
@pytest.mark.parametrize("verb", ["create", "apply"])
async def test_an_owner_has_no_children_in_a_namespace_that_is_passed(
    client: Client, cluster: Cluster, owner: dict[str, Any], verb: str, name: str
) -> None:
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
    before = await client.create(config_map(name, payroll="secret"), namespace="elsewhere", owner=None)
    with handling(owner), pytest.raises(ValueError, match="its children are in its own namespace"):
        await getattr(client, verb)(config_map(name, key="value"), namespace="elsewhere")
    assert await cluster.get("configmaps", name, "elsewhere") == before
