"""The client of handlers and scripts on a real control plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

import trioperator
from tests.client.conftest import config_map, deployment
from tests.controlplane import ControlPlane
from tests.e2e.test_life import example, some_name
from tests.program import Program
from trioperator.client.adoption import CREATE_ONLY

OPERATOR = """
import trioperator

@trioperator.on.create('kopfexamples')
async def create(name, client, **_):
    child = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name}, 'data': {'by': 'async'}}
    await client.apply(child)

@trioperator.on.create('kopfexamples')
def sync(name, client, **_):
    client.wait_for('cm', name, condition=lambda cm: cm['data']['by'] == 'async', timeout=60)
    client.patch('configmaps', name, merge={'data': {'also': 'sync'}})
"""


async def test_requests_are_what_a_real_server_takes(controlplane: ControlPlane) -> None:
    name = some_name()
    path = controlplane.folder / "operator.kubeconfig"
    with trio.fail_after(120):
        async with trioperator.open_client(kubeconfig=path) as client:
            await check_fields(client, name)
            await check_children(client, name)
            await check_pods(client, name)


async def test_a_real_server_lets_nobody_take_the_objects_of_others(controlplane: ControlPlane) -> None:
    name, other = some_name(), some_name()
    path = controlplane.folder / "operator.kubeconfig"
    with trio.fail_after(120):
        async with trioperator.open_client(kubeconfig=path) as client:
            owner, before = await client.create(config_map(name)), await client.create(config_map(other, a="1"))
            variants: list[dict[str, Any]] = [{}, {"force": True}, {"dry_run": True}]
            for options in variants:
                with pytest.raises(trioperator.ForeignChildError):
                    await client.apply(config_map(other, b="2"), owner=owner, **options)
            # What the window between the look and the write is closed by: no object has this version.
            only_new = {"metadata": {"name": other, **CREATE_ONLY}}
            with pytest.raises(trioperator.ConflictError):
                await client.apply({**config_map(other, b="2"), **only_new}, force=True)
            with pytest.raises(trioperator.ConflictError):
                await client.apply({**config_map(other, b="2"), **only_new}, owner=owner, adopt=True, force=True)
            assert await client.get("cm", other) == before
            await client.delete("cm", other)
            created = await client.apply({**config_map(other, b="2"), **only_new}, owner=owner, adopt=True)
            assert created["data"] == {"b": "2"}
            with pytest.raises(ValueError, match="its children are in its own namespace"):
                await client.apply(config_map(name, b="2"), owner=owner, namespace="kube-system")
            for hostile in ("p/log", "..", "%2e%2e", "p%2Flog"):
                with pytest.raises(ValueError, match="is no name"):
                    await client.get("pods", hostile)
            with pytest.raises(ValueError, match="more than equality"):
                await client.list("cm", labels={"role": "a,role!=b"})
            assert await client.list("cm", fields={"metadata.name": f"zz,metadata.name!={name}"}) == []
            await client.delete("cm", name)


async def check_fields(client: trioperator.Client, name: str) -> None:
    """Apply, patch, replace and conflict."""
    applied = await client.apply(config_map(name, a="1", b="2"))
    again = await client.apply(applied)
    assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]
    assert (await client.apply(config_map(name, a="1")))["data"] == {"a": "1"}
    with pytest.raises(trioperator.ConflictError):
        await client.apply(config_map(name, a="3"), field_manager="other")
    assert (await client.apply(config_map(name, a="3"), field_manager="other", force=True))["data"] == {"a": "3"}
    with pytest.raises(trioperator.ConflictError):
        await client.replace(applied)
    with pytest.raises(trioperator.ConflictError):
        await client.create(config_map(name))
    with pytest.raises(trioperator.ConflictError):
        await client.delete("cm", name, uid="another")
    await client.delete("cm", name, dry_run=True)
    patched = await client.patch("cm", name, json=[{"op": "add", "path": "/data/c", "value": "4"}])
    assert patched["data"] == {"a": "3", "c": "4"}
    pages = client.iterate("v1", "ConfigMap", all_namespaces=True, page_size=2)
    assert name in [found["metadata"]["name"] async for found in pages]


async def check_children(client: trioperator.Client, name: str) -> None:
    """Own, scale, watch, delete."""
    owner = await client.get("cm", name)
    web = await client.apply(deployment(name), owner=owner)
    assert web["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert (await client.scale("deploy", name, replicas=2))["spec"] == {"replicas": 2}
    containers = [{"name": "more", "image": "busybox"}]
    template = {"spec": {"containers": containers}}
    patched = await client.patch(web, strategic={"spec": {"template": template}})
    assert len(patched["spec"]["template"]["spec"]["containers"]) == 2
    async with client.watch("deployments.apps", name=name) as events:
        assert (await anext(events)).type == "ADDED"
        await client.delete(web, propagation="Background")
        async for event in events:
            if event.type == "DELETED":
                break
    await client.wait_deleted(web, timeout=60)


async def check_pods(client: trioperator.Client, name: str) -> None:
    """Evict, read logs, create a subresource."""
    pod: dict[str, Any] = {**deployment(name)["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
    created = await client.create({**pod, "metadata": {"name": name}})
    assert await client.logs(name) == ""
    await client.evict(created)
    await client.wait_deleted(created, timeout=60)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await client.create(account)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    assert (await client.create(request, "sa", name, subresource="token"))["status"]["token"]


def test_handlers_have_children_that_belong_to_their_object(
    controlplane: ControlPlane, start_operator: Callable[..., Program]
) -> None:
    name = some_name()
    operator = start_operator(OPERATOR)
    controlplane.apply(example(name))
    operator.wait_for(f"[default/{name}] Creation is processed: 2 succeeded; 0 failed.")
    child = controlplane.get("configmaps", name)
    assert child["data"] == {"by": "async", "also": "sync"}
    owner = controlplane.get("kex", name)
    assert [reference["uid"] for reference in child["metadata"]["ownerReferences"]] == [owner["metadata"]["uid"]]
