"""Conformance: quotas count what there is, and refuse what is too much."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import Target
from tests.apiserver.controllers.objects import Object, pod


async def quota(target: Target, hard: dict[str, str], **spec: Any) -> str:
    """Create a quota, and wait until it is in effect."""
    path = f"/api/v1/namespaces/{target.namespace}/resourcequotas"
    manifest = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}
    assert (await target.request("POST", path, manifest)).code == 201
    await target.eventually(
        lambda: target.get(f"{path}/q"), lambda answer: set((answer.content["status"] or {}).get("used", ())) == {*hard}
    )
    return f"{path}/q"


async def used(target: Target, path: str, wanted: dict[str, str]) -> dict[str, str]:
    """Wait until so much is used; return what is used."""
    answer = await target.eventually(
        lambda: target.get(path), lambda answer: wanted.items() <= answer.content["status"]["used"].items()
    )
    found: dict[str, str] = answer.content["status"]["used"]
    return found


async def post(target: Target, plural: str, manifest: Object) -> Any:
    return await target.request("POST", f"/api/v1/namespaces/{target.namespace}/{plural}", manifest)


def containers(**requests: str) -> list[Object]:
    return [{"name": "c", "image": "i", "resources": {"requests": requests}}]


def config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def service(name: str, **spec: Any) -> Object:
    ports = [{"port": 80}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": ports, **spec}}


async def test_objects_are_counted_as_they_come_and_go(plane: Target) -> None:
    path = await quota(plane, {"count/secrets": "5", "secrets": "5", "services": "3", "services.nodeports": "2"})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    for plural, manifest in (
        ("secrets", secret),
        ("services", service("s")),
        ("services", service("n", type="NodePort")),
    ):
        assert (await post(plane, plural, manifest)).code == 201
    wanted = {"count/secrets": "1", "secrets": "1", "services": "2", "services.nodeports": "1"}
    assert await used(plane, path, wanted) == wanted
    await plane.delete(f"/api/v1/namespaces/{plane.namespace}/secrets/s")
    await used(plane, path, {"secrets": "0"})


async def test_what_exceeds_a_quota_is_forbidden(plane: Target) -> None:
    hard = {"pods": "5", "requests.cpu": "1", "memory": "1Gi"}
    path = await quota(plane, hard)
    answer = await post(plane, "pods", pod("a", containers=containers(cpu="700m", memory="512Mi")))
    assert answer.code == 201
    assert await used(plane, path, {"pods": "1"}) == {"pods": "1", "requests.cpu": "700m", "memory": "512Mi"}
    answer = await post(plane, "pods", pod("b", containers=containers(cpu="400m", memory="1Mi")))
    assert (answer.code, answer.content["reason"]) == (403, "Forbidden")
    text = "exceeded quota: q, requested: requests.cpu=400m, used: requests.cpu=700m, limited: requests.cpu=1"
    assert answer.content["message"] == f'pods "b" is forbidden: {text}'


async def test_containers_must_say_what_a_quota_limits(plane: Target) -> None:
    await quota(plane, {"cpu": "1", "limits.memory": "1Gi"})
    answer = await post(plane, "pods", pod("a"))
    text = "failed quota: q: must specify cpu for: c; limits.memory for: c"
    assert (answer.code, answer.content["message"]) == (403, f'pods "a" is forbidden: {text}')


@pytest.mark.parametrize(
    ("scope", "inside", "outside"),
    [
        ("BestEffort", {}, {"containers": containers(cpu="1m")}),
        ("NotBestEffort", {"containers": containers(cpu="1m")}, {}),
        ("Terminating", {"activeDeadlineSeconds": 5}, {}),
        ("NotTerminating", {}, {"activeDeadlineSeconds": 5}),
    ],
)
async def test_scopes_choose_pods(plane: Target, scope: str, inside: Object, outside: Object) -> None:
    path = await quota(plane, {"pods": "1"}, scopes=[scope])
    assert (await post(plane, "pods", pod("in", **inside))).code == 201
    assert (await post(plane, "pods", pod("out", **outside))).code == 201
    await used(plane, path, {"pods": "1"})
    assert (await post(plane, "pods", pod("second", **inside))).code == 403


async def test_claims_count_by_storage_class(plane: Target) -> None:
    prefix = "gold.storageclass.storage.k8s.io"
    path = await quota(
        plane, {"requests.storage": "3Gi", f"{prefix}/requests.storage": "3Gi", f"{prefix}/persistentvolumeclaims": "9"}
    )
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}, "storageClassName": "gold"}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": spec}
    assert (await post(plane, "persistentvolumeclaims", claim)).code == 201
    wanted = {"requests.storage": "2Gi", f"{prefix}/requests.storage": "2Gi", f"{prefix}/persistentvolumeclaims": "1"}
    assert await used(plane, path, wanted) == wanted
    claim["metadata"] = {"name": "d"}
    assert (await post(plane, "persistentvolumeclaims", claim)).code == 403


async def test_a_dry_run_is_refused_as_well(plane: Target) -> None:
    await quota(plane, {"configmaps": "0"})
    answer = await plane.request(
        "POST", f"/api/v1/namespaces/{plane.namespace}/configmaps", config_map("m"), dryRun="All"
    )
    assert answer.code == 403
