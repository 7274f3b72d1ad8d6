"""The examples of the documentation under attack: whoever may create owners must not get at the objects of others."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from trioperator._handling.handlers.handler import ChangeHandler
from trioperator.apiserver import Cluster
from trioperator.testing import OperatorRunner

ROOT = pathlib.Path(__file__).parents[2]
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "victim"},
    "spec": {
        "selector": {"matchLabels": {"app": "victim"}},
        "template": {
            "metadata": {"labels": {"app": "victim"}},
            "spec": {"containers": [{"name": "bank", "image": "bank:1"}]},
        },
    },
}


def load_example(page: str, words: str) -> trioperator.OperatorRegistry:
    """Return the handlers of the first block of a page that contains *words*."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    source = next(block for block in blocks if words in block)
    registry = trioperator.OperatorRegistry()
    before = trioperator.get_default_registry()
    trioperator.set_default_registry(registry)
    try:
        exec(compile(source, page, "exec"), {"trioperator": trioperator})
    finally:
        trioperator.set_default_registry(before)
    return registry


def definition(plural: str, kind: str, scope: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": scope,
            "names": {"plural": plural, "kind": kind},
            "versions": [version],
        },
    }


async def attack(
    cluster: Cluster, operator: OperatorRunner, registry: trioperator.OperatorRegistry, attacker: dict[str, Any]
) -> None:
    """Create an object that is named after another one, let the operator handle it, and delete it again."""
    kinds = {"Webapp": "webapps", "WebApp": "webapps", "Tenant": "tenants"}
    if any(isinstance(handler, ChangeHandler) for handler in registry.resource_handlers()):
        operator.expect_failures()
    await operator.start(registry=registry)
    await cluster.create(attacker)
    await trio.sleep(120)
    name, plural = attacker["metadata"]["name"], kinds[attacker["kind"]]
    await cluster.patch(plural, name, {"spec": {"replicas": 7}}, attacker["metadata"].get("namespace"))
    await trio.sleep(120)
    await cluster.delete(plural, name, attacker["metadata"].get("namespace"))
    await trio.sleep(600)


@pytest.mark.parametrize(("page", "words"), [("client.md", "async def deploy"), ("reconcile.md", "owns=")])
async def test_an_owner_named_like_a_deployment_gets_nothing_of_it(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock, page: str, words: str
) -> None:
    await cluster.apply(definition("webapps", "WebApp", "Namespaced"))
    victim = await cluster.create(DEPLOYMENT)
    metadata = {"name": "victim", "namespace": "default", "labels": {"app": "victim"}}
    attacker = {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": metadata, "spec": {"image": "evil:666"}}
    await attack(cluster, operator, load_example(page, words), attacker)
    left = await cluster.get("deployments", "victim", "default")
    assert left["spec"] == victim["spec"]
    assert "ownerReferences" not in left["metadata"]


async def test_a_tenant_named_like_a_namespace_gets_nothing_of_it(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    await cluster.apply(definition("tenants", "Tenant", "Cluster"))
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-prod"}})
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    attacker = {
        "apiVersion": "example.com/v1",
        "kind": "Tenant",
        "metadata": {"name": "prod", "labels": labels},
        "spec": {},
    }
    await attack(cluster, operator, load_example("namespaces.md", "tenant-"), attacker)
    left = await cluster.get("namespaces", "tenant-prod")
    assert "ownerReferences" not in left["metadata"]
    assert "deletionTimestamp" not in left["metadata"]
    assert not labels.keys() & (left["metadata"].get("labels") or {}).keys()
    assert await cluster.find("configmaps", "quota", "tenant-prod") is None


async def test_a_handler_that_returns_what_it_has_applied_shows_nothing_of_others(
    cluster: Cluster, operator: OperatorRunner, autojump_clock: MockClock
) -> None:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.create("webapps", id="create", registry=registry)
    async def create(name: str, client: trioperator.Client, **_: Any) -> Any:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"by": "operator"}}
        return await client.apply(secret, force=True)

    await cluster.apply(definition("webapps", "WebApp", "Namespaced"))
    metadata = {"name": "victim", "namespace": "default"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key": "cGF5cm9sbA=="}}
    await cluster.create(secret)
    operator.expect_failures()
    await operator.start(registry=registry)
    for name in ("victim", "other"):
        body = {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {**metadata, "name": name}, "spec": {}}
        await cluster.create(body)
    await trio.sleep(600)
    left, other = [await cluster.get("webapps", name, "default") for name in ("victim", "other")]
    assert other["status"]["create"]["data"], "what is its own is shown"
    assert "cGF5cm9sbA==" not in str(left)
    assert (await cluster.get("secrets", "victim", "default"))["data"] == {"key": "cGF5cm9sbA=="}
