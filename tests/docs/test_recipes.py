"""The recipes of docs/reconcile.md do what the page says, on a cluster with the controllers that they count on."""

from __future__ import annotations

import base64
from typing import Any

import trio
from trio.testing import MockClock

from tests.docs.test_takeovers import definition, load_example
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner


def webapp(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Webapp", "metadata": {"name": "shop"}, "spec": spec}


async def ids_of(cluster: Cluster, kind: str) -> dict[str, str]:
    """Return the uids of the objects of a kind in the default namespace by their names."""
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in await cluster.list(kind, "default")}


async def test_volumes_grow_and_the_pods_of_the_statefulset_stay(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    storage: dict[str, Any] = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "x"}
    default = {"name": "growing", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    await cluster.apply({**storage, "metadata": default, "allowVolumeExpansion": True})
    await cluster.apply(definition("webapps", "Webapp", "Namespaced"))
    async with cluster.open_controllers("workloads", "pods", "volumes"):
        await operator.start(registry=load_example("reconcile.md", 'propagation="Orphan"'))
        await cluster.create(webapp(storage="1Gi", image="web"), "default")
        await trio.sleep(30)
        pods, sets, claims = [await ids_of(cluster, kind) for kind in ("pods", "statefulsets", "pvc")]
        assert [*pods] == ["shop-0"]
        await cluster.patch("webapps", "shop", {"spec": {"storage": "2Gi"}}, "default")
        await trio.sleep(60)
        assert await ids_of(cluster, "pods") == pods
        assert await ids_of(cluster, "pvc") == claims
        assert (await ids_of(cluster, "statefulsets"))["shop"] != sets["shop"]
        (claim,) = await cluster.list("pvc", "default")
        assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
        pod = await cluster.get("pods", "shop-0", "default")
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner["uid"] == (await ids_of(cluster, "statefulsets"))["shop"]


async def test_a_password_is_generated_once_and_anew_when_its_secret_is_deleted(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    async def read() -> str:
        secret = await cluster.get("secrets", "shop-password", "default")
        return base64.b64decode(secret["data"]["password"]).decode()

    await cluster.apply(definition("webapps", "Webapp", "Namespaced"))
    await operator.start(registry=load_example("reconcile.md", "secrets.token_urlsafe()"))
    await cluster.create(webapp(size=1), "default")
    await trio.sleep(10)
    password = await read()
    await cluster.patch("webapps", "shop", {"spec": {"size": 2}}, "default")
    await trio.sleep(10)
    await operator.stop()
    await operator.start()
    await trio.sleep(10)
    assert await read() == password
    await cluster.delete("secrets", "shop-password", namespace="default")
    await trio.sleep(10)
    assert await read() != password
