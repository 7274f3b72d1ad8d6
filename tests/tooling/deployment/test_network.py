"""Tests for :mod:`trioperator._tooling.deployment.network`."""

from __future__ import annotations

import pytest

from trioperator._tooling.deployment.network import make_metrics_service, make_network_policy, make_service_monitor
from trioperator._tooling.deployment.options import DeploymentOptions
from trioperator._tooling.deployment.webhooks import make_webhook_service
from trioperator._tooling.deployment.workload import make_deployment

PORTS = {"health": 8081, "metrics": 8080, "webhooks": 9443}


def test_without_metrics_and_webhooks_nothing_may_connect() -> None:
    policy = make_network_policy(DeploymentOptions())["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert "ingress" not in policy


@pytest.mark.parametrize("serves_webhooks", [False, True])
def test_only_prometheus_may_scrape_and_anybody_may_call_webhooks(serves_webhooks: bool) -> None:
    options = DeploymentOptions(prometheus="watchers")
    policy = make_network_policy(options, serves_webhooks=serves_webhooks)["spec"]
    metrics, *webhooks = policy["ingress"]
    assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "watchers"}}}]
    assert metrics["ports"] == [{"port": "metrics"}]
    assert webhooks == ([{"ports": [{"port": "webhooks"}]}] if serves_webhooks else [])


def test_the_monitor_finds_the_service_of_metrics_alone() -> None:
    options = DeploymentOptions(prometheus="monitoring")
    service, monitor = make_metrics_service(options), make_service_monitor(options)["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    assert wanted <= service["metadata"]["labels"].items()
    assert not wanted <= make_webhook_service(options)["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def test_services_select_the_pods_and_their_ports() -> None:
    options = DeploymentOptions(prometheus="monitoring")
    template = make_deployment(options, serves_webhooks=True)["spec"]["template"]
    [container] = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == PORTS
    for service in (make_metrics_service(options)["spec"], make_webhook_service(options)["spec"]):
        assert service["selector"] == template["metadata"]["labels"]
        assert service["ports"][0]["targetPort"] in ports
    assert f"--metrics=http://0.0.0.0:{ports['metrics']}/metrics" in container["args"]
