"""Tests for :mod:`trioperator.apiserver.builtin.preparation`: what the server sets in new and changed objects."""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from tests.apiserver.conftest import Answer, Target
from trioperator.apiserver.builtin.preparation import assign_addresses, encode_secret, prepare_changed, prepare_new
from trioperator.apiserver.model.kinds import Catalog, Kind

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


# -- without a server -------------------------------------------------------------------------------------------------


def builtin(name: str) -> Kind:
    kind = Catalog().find(name)
    assert kind is not None
    return kind


def service(uid: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid}, "spec": {"type": "ClusterIP", "ports": [PORT], **spec}}


def test_texts_of_a_secret_are_encoded_over_its_data() -> None:
    secret = {"stringData": {"a": "1"}, "data": {"a": "b2xk", "b": "Yg=="}}
    encode_secret(secret)
    assert secret == {"data": {"a": "MQ==", "b": "Yg=="}}


def test_a_secret_without_texts_is_unchanged() -> None:
    secret: dict[str, Any] = {"metadata": {}}
    encode_secret(secret)
    assert secret == {"metadata": {}}


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ([{}], "BestEffort"),
        ([{"limits": {"a.dev/gpu": "1"}}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
    ],
)
def test_the_resources_of_a_pod_determine_its_quality(resources: list[dict[str, Any]], quality: str) -> None:
    containers = [{"name": "a", "resources": item} for item in resources]
    pod: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"containers": containers}}
    prepare_new(builtin("pods"), pod)
    assert pod["status"]["qosClass"] == quality


def test_a_pod_tolerates_that_nodes_fail_unless_it_says_otherwise() -> None:
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
    pod: dict[str, Any] = {"metadata": {}, "spec": {"tolerations": [own]}}
    prepare_new(builtin("pods"), pod)
    assert pod["spec"]["tolerations"][0] == own
    assert [item["key"] for item in pod["spec"]["tolerations"][1:]] == ["node.kubernetes.io/unreachable"]


@pytest.mark.parametrize(
    ("spec", "selector"),
    [
        ({}, {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}),
        ({"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}}, {"matchLabels": {"a": "b"}}),
    ],
)
def test_a_job_selects_its_pods_by_its_uid(spec: dict[str, Any], selector: dict[str, Any]) -> None:
    job: dict[str, Any] = {"metadata": {"name": "a", "uid": "u"}, "spec": {**spec, "template": {}}}
    prepare_new(builtin("jobs"), job)
    assert job["spec"]["selector"] == selector
    labels = (job["spec"]["template"].get("metadata") or {}).get("labels") or {}
    assert (labels.get("job-name") == "a") is ("manualSelector" not in spec)


@pytest.mark.parametrize(("spec", "generation"), [({"template": {"a": 1}}, "1"), ({"template": {"a": 2}}, "2")])
def test_each_template_of_a_daemon_set_has_a_generation(spec: dict[str, Any], generation: str) -> None:
    old: dict[str, Any] = {"metadata": {}, "spec": {"template": {"a": 1}}}
    prepare_new(builtin("daemonsets"), old)
    new: dict[str, Any] = {"metadata": {}, "spec": spec}
    prepare_changed(builtin("daemonsets"), new, old)
    assert new["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": generation}


def test_a_changed_service_keeps_its_address_and_node_ports() -> None:
    old = service("u", type="NodePort", clusterIP="10.96.0.9", clusterIPs=["10.96.0.9"])
    old["spec"]["ports"] = [{"port": 80, "protocol": "TCP", "nodePort": 30007}]
    new = service("u", type="NodePort", ports=[{"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "TCP"}])
    prepare_changed(builtin("services"), new, old)
    assert (new["spec"]["clusterIP"], new["spec"]["clusterIPs"]) == ("10.96.0.9", ["10.96.0.9"])
    assert [port["nodePort"] for port in new["spec"]["ports"]] == [30007, None]  # the second is to be assigned


def test_services_have_different_addresses_and_node_ports() -> None:
    services = [service(str(number), type="NodePort") for number in range(3)]
    for at, each in enumerate(services):
        assign_addresses(each, services[:at])
    assert [each["spec"]["clusterIP"] for each in services] == ["10.96.0.2", "10.96.0.3", "10.96.0.4"]
    assert [each["spec"]["ports"][0]["nodePort"] for each in services] == [30000, 30001, 30002]


@pytest.mark.parametrize("spec", [{"clusterIP": "None"}, {"clusterIP": "10.96.1.1"}, {"type": "ExternalName"}])
def test_a_service_keeps_the_address_that_it_asks_for(spec: dict[str, Any]) -> None:
    asked = service("u", **spec)
    assigned = copy.deepcopy(asked)
    assign_addresses(assigned, [])
    assert assigned == asked


class TestNodePorts:
    ALLOCATED: Final = "provided port is already allocated"

    @staticmethod
    async def create(target: Target, name: str, *ports: tuple[str, int], type: str = "NodePort") -> Answer:
        """Create a Service with these node ports, each with its protocol."""
        numbered = [
            {"name": f"p{at}", "port": 80 + at * (protocol == "TCP"), "protocol": protocol, "nodePort": number}
            for at, (protocol, number) in enumerate(ports)
        ]
        spec = {"type": type, "externalName": "a.b", "ports": numbered}
        return await target.request("POST", target.path("services"), {"metadata": {"name": name}, "spec": spec})

    async def test_belong_to_one_service(self, target: Target) -> None:
        assert (await self.create(target, "a", ("TCP", 31100))).code == 201
        for answer, wrong in (
            (await self.create(target, "b", ("TCP", 31100)), "[0].nodePort: Invalid value: 31100"),
            (await self.create(target, "b", ("UDP", 31100)), "[0].nodePort: Invalid value: 31100"),
            (await self.create(target, "b", ("TCP", 31101), ("TCP", 31100)), "[1].nodePort: Invalid value: 31100"),
            (await self.create(target, "b", ("TCP", 31102), ("TCP", 31102)), "[1].nodePort: Invalid value: 31102"),
        ):
            expected = f'Service "b" is invalid: spec.ports{wrong}: {self.ALLOCATED}'
            assert (answer.code, answer.message) == (422, expected)
        assert (await self.create(target, "b", ("TCP", 31103), ("UDP", 31103))).code == 201

    async def test_are_free_when_their_service_is_changed_or_gone(self, target: Target) -> None:
        assert (await self.create(target, "a", ("TCP", 31110))).code == 201
        assert (await target.merge(target.path("services", "a"), {"spec": {"type": "ClusterIP"}})).code == 200
        assert (await self.create(target, "b", ("TCP", 31110))).code == 201
        ports = [{"port": 80, "nodePort": 31110}]
        answer = await target.merge(target.path("services", "a"), {"spec": {"type": "NodePort", "ports": ports}})
        expected = f'Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 31110: {self.ALLOCATED}'
        assert (answer.code, answer.message) == (422, expected)
        assert (await target.request("DELETE", target.path("services", "b"))).code == 200
        answer = await target.merge(target.path("services", "a"), {"spec": {"type": "NodePort", "ports": ports}})
        assert answer.content["spec"]["ports"][0]["nodePort"] == 31110

    async def test_are_not_taken_by_external_names(self, target: Target) -> None:
        assert (await self.create(target, "a", ("TCP", 31120), type="ExternalName")).code == 201
        assert (await self.create(target, "b", ("TCP", 31120))).code == 201

    @pytest.mark.parametrize("number", [1000, 29999, 32768, 70000, -1])
    async def test_are_in_a_range(self, target: Target, number: int) -> None:
        answer = await self.create(target, "a", ("TCP", number))
        text = "provided port is not in the valid range. The range of valid ports is 30000-32767"
        expected = f'Service "a" is invalid: spec.ports[0].nodePort: Invalid value: {number}: {text}'
        assert (answer.code, answer.message) == (422, expected)
