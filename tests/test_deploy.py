"""The manifests for deployment, tried: an operator with the rights of its service account, and with one less."""

from __future__ import annotations

import logging
import pathlib
from typing import Any

import pytest
import trio
import yaml

import trioperator
from trioperator.apiserver import Cluster
from trioperator.apiserver.model.user import ANONYMOUS
from trioperator.clock import wall_now

ROOT = pathlib.Path(__file__).parents[1]
ROBOT = "system:serviceaccount:trioperator:trioperator"
EXAMPLE = {
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {"field": "value"},
}


def manifests() -> list[dict[str, Any]]:
    paths = [ROOT / "examples" / "crd.yaml", ROOT / "deploy/base/namespace.yaml", ROOT / "deploy/base/rbac.yaml"]
    return [obj for path in paths for obj in yaml.safe_load_all(path.read_text()) if obj]


class Deployment:
    """Run an operator as the service account of the deployment."""

    def __init__(self, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
        self.cluster = cluster
        self.registry = trioperator.OperatorRegistry()
        self.settings = trioperator.OperatorSettings()
        self._caplog = caplog

    async def token(self) -> str:
        async with self.cluster.client() as client:
            path = "/api/v1/namespaces/trioperator/serviceaccounts/trioperator/token"
            response = await client.post(path, json={"spec": {"expirationSeconds": 7200}})
            return str(response.json()["status"]["token"])

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await trioperator.operator(
            registry=self.registry,
            settings=self.settings,
            namespaces=["def*"],
            transport=self.cluster.transport(user=ANONYMOUS),
            connection=trioperator.ConnectionInfo(server="http://cluster", token=await self.token()),
            task_status=task_status,
        )

    async def take_away(self, resource: str, verb: str) -> None:
        """Take one verb for one resource out of the rules."""
        role = await self.cluster.get("clusterroles", "trioperator")
        for rule in role["rules"]:
            if rule["resources"] == [resource]:
                rule["verbs"].remove(verb)
        await self.cluster.replace({**role, "rules": [rule for rule in role["rules"] if rule["verbs"]]})

    def forbidden(self) -> list[tuple[str, str]]:
        """Return what the service account was not allowed: verbs and resources."""
        records = self.cluster.requests.select(user=ROBOT, status=403)
        return sorted({(record.verb, f"{record.resource}/{record.subresource}".rstrip("/")) for record in records})

    def said(self, text: str) -> list[str]:
        """Return the warnings and errors in which the text is."""
        records = [record for record in self._caplog.records if record.levelno >= logging.WARNING]
        return [record.getMessage() for record in records if text in record.getMessage()]


@pytest.fixture
async def deployment(caplog: pytest.LogCaptureFixture) -> Deployment:
    cluster = Cluster(clock=wall_now, seed=0, authorization="rbac")
    await cluster.apply(manifests())
    return Deployment(cluster, caplog)


async def live(deployment: Deployment) -> list[str]:
    """Create, change and delete an object while the operator runs; return what was handled."""
    handled: list[str] = []

    @trioperator.on.create("kopf.dev", "v1", "kopfexamples", registry=deployment.registry)
    @trioperator.on.update("kopf.dev", "v1", "kopfexamples", registry=deployment.registry)
    @trioperator.on.delete("kopf.dev", "v1", "kopfexamples", registry=deployment.registry)
    async def handle(reason: str) -> str | None:
        handled.append(str(reason))
        if reason != "delete":
            return str(reason)
        # Somebody changes the object at the same time, and it has to be looked at again.
        await deployment.cluster.patch("kex", "one", {"metadata": {"labels": {"in": "between"}}})
        return None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deployment.run)
        await trio.sleep(30)
        await deployment.cluster.apply(EXAMPLE)
        await trio.sleep(10)
        await deployment.cluster.patch("kex", "one", {"spec": {"field": "other"}})
        await trio.sleep(10)
        await deployment.cluster.delete("kex", "one")
        await trio.sleep(10)
        nursery.cancel_scope.cancel(reason="it has been seen enough")
    return handled


async def test_the_deployment_has_all_rights_that_it_needs(
    deployment: Deployment, autojump_clock: trio.testing.MockClock
) -> None:
    assert await live(deployment) == ["create", "update", "delete"]
    assert await deployment.cluster.list("kex") == []
    assert deployment.forbidden() == []
    assert {record.user for record in deployment.cluster.requests} == {"kubernetes-admin", ROBOT}
    assert deployment.said("") == []


@pytest.mark.parametrize(
    ("resource", "verb", "handled"),
    [
        ("kopfexamples", "list", []),
        ("kopfexamples", "watch", []),
        ("kopfexamples", "patch", []),
        ("kopfexamples", "get", ["create", "update", "delete"]),
        ("kopfexamples/status", "patch", ["create", "delete"]),
        ("namespaces", "list", []),
        ("namespaces", "watch", ["create", "update", "delete"]),
        ("customresourcedefinitions", "list", ["create", "update", "delete"]),
        ("customresourcedefinitions", "watch", ["create", "update", "delete"]),
    ],
)
async def test_a_missing_permission_is_logged(
    deployment: Deployment, autojump_clock: trio.testing.MockClock, resource: str, verb: str, handled: list[str]
) -> None:
    await deployment.take_away(resource, verb)
    assert list(dict.fromkeys(await live(deployment))) == handled
    plural, _, subresource = resource.partition("/")
    group = {"namespaces": "", "customresourcedefinitions": "apiextensions.k8s.io"}.get(plural, "kopf.dev")
    shown = f"{plural}.{group}" if group else plural
    assert deployment.forbidden() == [(verb, f"{shown}/{subresource}" if subresource else shown)]
    assert deployment.said(f'User "{ROBOT}" cannot {verb} resource "{resource}" in API group "{group}"')


async def test_an_operator_without_any_permission_logs_that(
    deployment: Deployment, autojump_clock: trio.testing.MockClock
) -> None:
    await deployment.cluster.delete("clusterrolebindings", "trioperator")
    assert await live(deployment) == []
    assert deployment.said(f'User "{ROBOT}" cannot list resource "namespaces"')
