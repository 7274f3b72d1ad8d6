"""Children that cannot be changed, and are created anew: also where the old ones are in the way of a dry run."""

from __future__ import annotations

from typing import Any

import trio

import trioperator
from tests.both.conftest import Body, Server
from tests.both.kinds import WIDGETS, manifest
from trioperator._model.resource import Resource

SERVICES = Resource("", "v1", "services", kind="Service")
JOBS = Resource("batch", "v1", "jobs", kind="Job")
QUOTAS = Resource("", "v1", "resourcequotas", kind="ResourceQuota")


def owning(kind: str) -> Any:
    return [trioperator.Owned(kind, strategy="recreate")]


async def test_a_service_gets_another_address_and_keeps_its_port(server: Server) -> None:
    @trioperator.on.reconcile(*WIDGETS, owns=owning("services"), registry=server.registry)
    async def reconcile(spec: trioperator.Spec) -> list[Body]:
        ports = [{"port": 80, "nodePort": spec["port"]}]
        body = {"type": "NodePort", "selector": {"a": "b"}, "ports": ports, "clusterIP": spec["address"]}
        return [{"apiVersion": "v1", "kind": "Service", "spec": body}]

    first, second = await _free_addresses(server)
    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, port=31080, address=first))
        old = await server.until(SERVICES, "one")
        await server.patch(WIDGETS, "one", {"spec": {"address": second}})
        new = await server.until(SERVICES, "one", lambda body: body["spec"]["clusterIP"] == second)
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert [port["nodePort"] for port in new["spec"]["ports"]] == [31080]


async def _free_addresses(server: Server) -> tuple[str, str]:
    """Return two addresses of Services that are free, in the range of the server."""
    found: list[str] = []
    for name in ("probe-1", "probe-2"):
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}
        made = await server.create(SERVICES, body)
        found.append(made["spec"].get("clusterIP") or f"10.96.7.{len(found) + 1}")
    for name in ("probe-1", "probe-2"):
        await server.delete(SERVICES, name)
    return found[0], found[1]


async def test_an_object_is_replaced_though_a_quota_is_used_up(server: Server) -> None:
    @trioperator.on.reconcile(*WIDGETS, owns=owning("jobs"), registry=server.registry)
    async def reconcile(spec: trioperator.Spec) -> list[Body]:
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": spec["image"]}]}
        return [{"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": True, "template": {"spec": pod}}}]

    def image_of(body: Body) -> Any:
        return body["spec"]["template"]["spec"]["containers"][0]["image"]

    quota, hard = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}, {"count/jobs.batch": "1"}
    await server.create(QUOTAS, {**quota, "spec": {"hard": hard}})
    if not server.is_real:  # what its controller writes
        await server.patch(QUOTAS, "q", {"status": {"hard": hard}}, subresource="status")
    await server.until(QUOTAS, "q", lambda body: (body.get("status") or {}).get("hard"))
    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, image="a:1"))
        await server.until(JOBS, "one")
        await trio.sleep(1 if server.is_real else 0)  # the quota controller counts
        await server.patch(WIDGETS, "one", {"spec": {"image": "a:2"}})
        await server.until(JOBS, "one", lambda body: image_of(body) == "a:2")
