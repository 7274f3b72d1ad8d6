"""Tests for :mod:`trioperator.apiserver.builtin.preparation`: what the server sets in new and changed objects."""

from __future__ import annotations

from typing import Final

from tests.apiserver.conftest import Target

POD: Final = {"containers": [{"name": "main", "image": "one"}]}
PORT: Final = {"name": "p", "port": 80}


async def test_fields_of_a_service_type_are_dropped_with_the_type(target: Target) -> None:
    path = target.path("services", "1a")
    spec = {"type": "LoadBalancer", "ports": [{**PORT, "targetPort": 0}]}
    answer = await target.request("POST", target.path("services"), {"metadata": {"name": "1a"}, "spec": spec})
    assert answer.content["spec"]["ports"][0]["targetPort"] == 80
    answer = await target.merge(f"{path}/status", {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})
    assert answer.content["status"]["loadBalancer"] == {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}
    service = (await target.merge(path, {"spec": {"type": "ClusterIP"}})).content
    assert service["status"] == {"loadBalancer": {}}
    assert "nodePort" not in service["spec"]["ports"][0]
    assert not {"allocateLoadBalancerNodePorts", "externalTrafficPolicy"} & set(service["spec"])
    answer = await target.merge(f"{path}/status", {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})
    expected = "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
    assert (answer.code, answer.message) == (422, f'Service "1a" is invalid: {expected}')
    assert (
        "clusterIP"
        not in (await target.merge(path, {"spec": {"type": "ExternalName", "externalName": "a.b"}})).content["spec"]
    )


async def test_fields_that_admission_sets_in_pods_have_no_manager(target: Target) -> None:
    pod = (await target.create("pods", "a", spec=POD)).content
    assert (len(pod["spec"]["tolerations"]), pod["spec"]["priority"]) == (2, 0)
    assert not {"f:priority", "f:tolerations"} & set(pod["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"])
    pod["spec"].pop("priority")
    answer = await target.request("PUT", target.path("pods", "a"), pod)
    assert (answer.code, answer.content["spec"]["priority"]) == (200, 0)
