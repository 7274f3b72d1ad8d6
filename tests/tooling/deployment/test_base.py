"""Tests for :mod:`trioperator._tooling.deployment.base`."""

from __future__ import annotations

from typing import Any

import pytest

import trioperator
from tests.runtime.conftest import CRD
from trioperator._model.resource import Resource
from trioperator._model.rights import Rule
from trioperator._tooling.deployment.base import FILES, KUSTOMIZATION, OperatorParts, make_base
from trioperator._tooling.deployment.options import DeploymentOptions
from trioperator._tooling.permissions import Permissions

WIDGETS = Resource("example.com", "v1", "widgets", "Widget", "widget", namespaced=True)
RULES = (Rule("example.com", "widgets", frozenset({"list", "watch"})),)
PLAIN = OperatorParts(permissions=Permissions(RULES, {}))


def make_parts(**options: Any) -> OperatorParts:
    registry = trioperator.OperatorRegistry()

    @trioperator.on.validate("widgets", registry=registry)
    @trioperator.on.convert("widgets", from_="v1", to="v2", registry=registry)
    async def handle(**_: Any) -> None:
        pass

    return OperatorParts(
        permissions=Permissions(RULES, {"team": RULES}),
        definitions=[CRD],
        resources=[WIDGETS],
        admission=registry.admission_handlers(),
        conversion=registry.conversion_handlers(),
        **options,
    )


def kinds(base: dict[str, list[dict[str, Any]]], name: str) -> list[str]:
    return [each["kind"] for each in base[name]]


def test_a_plain_operator_has_what_it_needs_and_nothing_else() -> None:
    base = make_base(DeploymentOptions(), PLAIN)
    names = ["namespace", "serviceaccount", "rbac", "networkpolicy", "deployment"]
    assert list(base) == [KUSTOMIZATION, *(f"{name}.yaml" for name in names)]
    assert base[KUSTOMIZATION][0]["resources"] == list(base)[1:]
    assert kinds(base, "rbac.yaml") == ["ClusterRole", "ClusterRoleBinding"]
    assert "namespace.yaml" not in make_base(DeploymentOptions(create_namespace=False), PLAIN)


def test_an_operator_with_everything_has_all_files() -> None:
    options = DeploymentOptions(replicas=2, leader_elect=True, prometheus="monitoring", alerts=True)
    base = make_base(options, make_parts())
    assert tuple(base) == (KUSTOMIZATION, *FILES[:-1])
    assert kinds(base, "certificates.yaml") == ["Issuer", "Certificate", "Issuer", "Certificate"]
    assert kinds(base, "webhooks.yaml") == ["Service", "ValidatingWebhookConfiguration"]
    assert base["crds.yaml"][0]["spec"]["conversion"]["strategy"] == "Webhook"
    assert kinds(base, "servicemonitor.yaml") == ["Service", "ServiceMonitor"]
    assert kinds(base, "alerts.yaml") == ["PrometheusRule"]
    assert kinds(base, "rbac.yaml") == ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    plain = make_base(DeploymentOptions(prometheus="monitoring", service_monitor=False, alerts=True), PLAIN)
    assert list(plain)[-1] == FILES[-1] == "metrics.yaml"
    assert kinds(plain, "metrics.yaml") == ["Service"]


def test_roles_in_other_namespaces_are_bound_to_the_account_of_the_pods() -> None:
    base = make_base(DeploymentOptions(name="it", namespace="place"), make_parts())
    for role in base["rbac.yaml"]:
        assert role["metadata"]["labels"] == {"app.kubernetes.io/name": "it"}
    binding = base["rbac.yaml"][-1]
    assert binding["metadata"]["namespace"] == "team"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "it", "namespace": "place"}]
    assert "namespace" not in base[KUSTOMIZATION][0]  # of kustomize: it would move the role


def test_what_the_operator_writes_itself_is_left_to_it() -> None:
    base = make_base(DeploymentOptions(), make_parts(registers=True, converts=True))
    assert kinds(base, "webhooks.yaml") == ["Service"]
    assert [port["port"] for port in base["webhooks.yaml"][0]["spec"]["ports"]] == [443, 9443]
    assert "certificates.yaml" in base


def test_objects_are_not_relabelled_before_the_operator_writes_how_they_are_converted() -> None:
    base = make_base(DeploymentOptions(name="it", namespace="place"), make_parts(converts=True))
    [definition] = base["crds.yaml"]
    assert definition["metadata"] == CRD["metadata"]  # nothing for cert-manager
    assert definition["spec"]["conversion"] == {
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {
                "url": None,
                "service": {"namespace": "place", "name": "it-webhooks", "port": 9443, "path": "/convert"},
            },
        },
    }


@pytest.mark.parametrize("ca_secret", [None, "place/ca"])
def test_an_operator_with_a_ca_of_its_own_needs_no_certificate(ca_secret: str | None) -> None:
    base = make_base(DeploymentOptions(name="it"), make_parts(registers=True, ca_secret=ca_secret))
    pod = base["deployment.yaml"][0]["spec"]["template"]["spec"]
    assert ("certificates.yaml" in base) is ("volumes" in pod) is (ca_secret is None)
    assert {"name": "webhooks", "containerPort": 9443} in pod["containers"][0]["ports"]
    variables = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert variables["TRIOPERATOR_WEBHOOKS_HOST"] == "it-webhooks.trioperator.svc"
    assert variables["TRIOPERATOR_WEBHOOKS_PORT"] == "9443"
    assert variables.get("TRIOPERATOR_WEBHOOKS_CA_SECRET") == ca_secret
    assert ("TRIOPERATOR_WEBHOOKS_CERTIFICATES" in variables) is (ca_secret is None)
