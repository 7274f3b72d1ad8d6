"""Tests for :mod:`trioperator._tooling.deployment.workload`."""

from __future__ import annotations

from trioperator._model.jsontypes import JsonObject
from trioperator._tooling.deployment.options import DeploymentOptions
from trioperator._tooling.deployment.workload import (
    make_deployment,
    make_disruption_budget,
    make_namespace,
    make_service_account,
)
from trioperator.settings import OperatorSettings


def pod(options: DeploymentOptions) -> JsonObject:
    spec: JsonObject = make_deployment(options)["spec"]["template"]["spec"]
    return spec


def test_the_pod_is_as_the_strictest_standard_of_pod_security_demands() -> None:
    options = DeploymentOptions()
    spec = pod(options)
    [container] = spec["containers"]
    assert make_namespace(options)["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] != 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["terminationGracePeriodSeconds"] > OperatorSettings().process.grace


def test_probes_and_resources_are_set() -> None:
    [container] = pod(DeploymentOptions())["containers"]
    assert container["ports"] == [{"name": "health", "containerPort": 8081}]
    assert "--health=http://0.0.0.0:8081" in container["args"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"memory"}


def test_a_single_pod_is_recreated_and_replicas_with_a_lease_overlap() -> None:
    assert make_deployment(DeploymentOptions())["spec"]["strategy"] == {"type": "Recreate"}
    assert "topologySpreadConstraints" not in pod(DeploymentOptions(leader_elect=True))
    options = DeploymentOptions(replicas=3, leader_elect=True)
    spec = make_deployment(options)["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    [constraint] = pod(options)["topologySpreadConstraints"]
    assert constraint["labelSelector"] == spec["selector"]
    assert make_disruption_budget(options)["spec"] == {"maxUnavailable": 1, "selector": spec["selector"]}


def test_the_certificate_is_mounted_for_webhooks() -> None:
    options = DeploymentOptions(name="it", prometheus="monitoring")
    spec = make_deployment(options, serves_webhooks=True, mounts_certificate=True)["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert [port["name"] for port in container["ports"]] == ["health", "metrics", "webhooks"]
    [mount], [volume] = container["volumeMounts"], spec["volumes"]
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
    assert volume["secret"] == {"secretName": "it-webhooks"}
    [container] = make_deployment(options, serves_webhooks=True)["spec"]["template"]["spec"]["containers"]
    assert "volumeMounts" not in container
    assert container["ports"][-1]["name"] == "webhooks"


def test_the_identity_of_a_replica_is_its_pod() -> None:
    [container] = pod(DeploymentOptions())["containers"]
    assert container["env"] == [{"name": "POD_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]


def test_the_pod_has_its_service_account() -> None:
    options = DeploymentOptions(name="it")
    assert make_service_account(options)["metadata"]["name"] == pod(options)["serviceAccountName"] == "it"
