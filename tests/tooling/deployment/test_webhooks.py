"""Tests for :mod:`trioperator._tooling.deployment.webhooks`."""

from __future__ import annotations

import copy
import functools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

import trioperator
from tests.runtime.conftest import CRD
from trioperator._concurrency.clock import wall_now
from trioperator._model.resource import Resource
from trioperator._tooling.deployment.options import DeploymentOptions
from trioperator._tooling.deployment.webhooks import (
    add_conversions,
    make_certificates,
    make_configurations,
    make_webhook_service,
)
from trioperator.apiserver import Cluster

OPTIONS = DeploymentOptions(name="it", namespace="place")
WIDGETS = Resource("example.com", "v1", "widgets", "Widget", "widget", namespaced=True)
ANNOTATION = {"cert-manager.io/inject-ca-from": "place/it-webhooks"}


@pytest.fixture
def registry() -> trioperator.OperatorRegistry:
    """Return the registry of an operator with webhooks of all kinds."""
    registry = trioperator.OperatorRegistry()

    @trioperator.on.validate("widgets", id="Check/Size", operation="UPDATE", labels={"a": "b"}, registry=registry)
    @trioperator.on.validate("widgets", id="all", subresource="*", ignore_failures=True, registry=registry)
    @trioperator.on.mutate("widgets", timeout=5, side_effects=True, registry=registry)
    @trioperator.on.mutate("nothing.example.com", registry=registry)
    @trioperator.on.convert("widgets", from_="v1", to="v2", registry=registry)
    async def handle(**_: Any) -> None:
        pass

    return registry


async def serve(fn: trioperator.WebhookFn) -> AsyncIterator[trioperator.WebhookClientConfig]:
    """Serve nothing, at the Service of the deployment."""
    yield {"service": {"namespace": "place", "name": "it-webhooks"}}
    await trio.sleep_forever()


async def test_the_configurations_are_those_that_the_operator_would_register(
    registry: trioperator.OperatorRegistry, autojump_clock: trio.testing.MockClock
) -> None:
    cluster = Cluster(clock=wall_now, seed=0)
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.admission.server = serve
    settings.admission.managed = "it.place"
    async with trio.open_nursery() as nursery:
        run = trioperator.operator
        connection = trioperator.ConnectionInfo(server="http://cluster")

        async def operate(*, task_status: trio.TaskStatus[None]) -> None:
            await run(
                registry=registry,
                settings=settings,
                clusterwide=True,
                connection=connection,
                transport=cluster.transport(),
                task_status=task_status,
            )

        await nursery.start(operate)
        names = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
        registered = [await cluster.get(name, "it.place") for name in names]
        nursery.cancel_scope.cancel()
    made = make_configurations(OPTIONS, registry.admission_handlers(), [WIDGETS])
    assert [each["kind"] for each in made] == [each["kind"] for each in registered]
    assert [each["webhooks"] for each in made] == [each["webhooks"] for each in registered]
    assert [each["metadata"]["name"] for each in made] == ["it.place"] * 2
    assert [hook["name"] for hook in made[0]["webhooks"]] == ["all.it.place", "check.size.it.place"]


def test_cert_manager_writes_the_ca_of_the_certificate(registry: trioperator.OperatorRegistry) -> None:
    made = make_configurations(OPTIONS, registry.admission_handlers(), [WIDGETS])
    assert [each["metadata"]["annotations"] for each in made] == [ANNOTATION] * 2
    selfsigned, authority, issuer, certificate = make_certificates(OPTIONS)
    assert f"{certificate['metadata']['namespace']}/{certificate['metadata']['name']}" in ANNOTATION.values()
    assert authority["spec"]["issuerRef"]["name"] == selfsigned["metadata"]["name"]
    assert issuer["spec"]["ca"]["secretName"] == authority["spec"]["secretName"]
    assert certificate["spec"]["issuerRef"]["name"] == issuer["metadata"]["name"]
    service = make_webhook_service(OPTIONS)["metadata"]
    assert certificate["spec"]["dnsNames"][0] == f"{service['name']}.{service['namespace']}.svc"
    hook = made[0]["webhooks"][0]["clientConfig"]["service"]
    assert (hook["name"], hook["namespace"]) == (service["name"], service["namespace"])


def test_a_kind_without_webhooks_has_no_configuration() -> None:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.validate("widgets", registry=registry)
    async def handle(**_: Any) -> None:
        pass

    [made] = make_configurations(OPTIONS, registry.admission_handlers(), [WIDGETS])
    assert made["kind"] == "ValidatingWebhookConfiguration"
    assert make_configurations(OPTIONS, registry.admission_handlers(), []) == []


def test_converted_crds_get_the_webhook_and_others_stay_as_they_are(registry: trioperator.OperatorRegistry) -> None:
    other = {**CRD, "spec": {**CRD["spec"], "group": "other.com"}}
    before = copy.deepcopy([CRD, other])
    handlers = registry.conversion_handlers()
    converted, same = add_conversions(OPTIONS, [CRD, other], handlers, resources=[WIDGETS])
    assert [CRD, other] == before
    assert same is other
    assert converted["metadata"]["annotations"] == ANNOTATION
    assert converted["spec"]["conversion"] == {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {
                "url": None,
                "service": {"namespace": "place", "name": "it-webhooks", "port": 443, "path": "/convert"},
            },
            "conversionReviewVersions": ["v1"],
        },
    }


async def test_the_service_replaces_the_url_of_an_operator_that_was_run_elsewhere(
    registry: trioperator.OperatorRegistry,
) -> None:
    cluster = Cluster()
    await cluster.apply(CRD)
    away = {"clientConfig": {"url": "https://laptop:9443/convert"}, "conversionReviewVersions": ["v1"]}
    await cluster.patch(
        "crd", CRD["metadata"]["name"], {"spec": {"conversion": {"strategy": "Webhook", "webhook": away}}}
    )
    handlers = registry.conversion_handlers()
    [converted] = add_conversions(OPTIONS, [CRD], handlers, resources=[WIDGETS], managed=True)
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD['metadata']['name']}"
    headers = {"Content-Type": "application/apply-patch+yaml"}
    async with cluster.client() as client:
        send = functools.partial(client.patch, path, json=converted, headers=headers)
        refused = await send(params={"fieldManager": "kubectl"})
        assert refused.status_code == 409
        assert ".spec.conversion.webhook.clientConfig.url" in refused.json()["message"]
        applied = await send(params={"fieldManager": "kubectl", "force": "true"})
    assert applied.status_code == 200, applied.text
    found = applied.json()["spec"]["conversion"]["webhook"]["clientConfig"]
    assert found == {"service": {"namespace": "place", "name": "it-webhooks", "port": 9443, "path": "/convert"}}
