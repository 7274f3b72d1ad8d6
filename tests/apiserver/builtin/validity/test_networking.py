"""Tests for :mod:`trioperator.apiserver.builtin.validity.networking`: Services and Ingresses are valid."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.apiserver.conftest import Target
from trioperator.apiserver.builtin.validity.networking import check_ingress, check_network_policy, check_service

PORT: Final = {"name": "p", "port": 80}
BACKEND: Final = {"service": {"name": "a", "port": {"number": 80}}}


async def test_a_headless_service_has_no_node_port(target: Target) -> None:
    spec = {"clusterIP": "None", "type": "NodePort", "ports": [PORT]}
    answer = await target.request("POST", target.path("services"), {"metadata": {"name": "a"}, "spec": spec})
    expected = "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services"
    assert (answer.code, answer.message) == (422, f'Service "a" is invalid: {expected}')


async def test_a_service_inside_the_cluster_has_no_node_port(target: Target) -> None:
    path = target.path("services")
    spec = {"ports": [PORT]}
    assert (await target.request("POST", path, {"metadata": {"name": "a"}, "spec": spec})).code == 201
    spec = {"ports": [{**PORT, "nodePort": 30100}]}
    created = await target.request("POST", path, {"metadata": {"name": "b"}, "spec": spec})
    changed = await target.merge(target.path("services", "a"), {"spec": spec})
    expected = "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"
    assert (created.code, created.message) == (422, f'Service "b" is invalid: {expected}')
    assert (changed.code, changed.message) == (422, f'Service "a" is invalid: {expected}')


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"ports": [PORT]}, []),
        ({}, ["spec.ports"]),
        ({"clusterIP": "None"}, []),
        ({"type": "ExternalName", "externalName": "a.b"}, []),
        ({"type": "ExternalName"}, ["spec.externalName"]),
        ({"ports": [PORT], "clusterIP": "10.96.0"}, ["spec.clusterIPs[0]"]),
        ({"ports": [PORT], "clusterIP": "fd00::1"}, []),
        ({"ports": [PORT], "type": "Other"}, ["spec.type"]),
        ({"ports": [PORT], "sessionAffinity": "Other"}, ["spec.sessionAffinity"]),
        ({"ports": [{"port": 0}]}, ["spec.ports[0].port"]),
        ({"ports": [{"port": 1, "targetPort": "a--b"}]}, ["spec.ports[0].targetPort"]),
        ({"ports": [{"port": 1, "protocol": "HTTP"}]}, ["spec.ports[0].protocol"]),
    ],
)
def test_fields_of_a_service_are_valid(spec: dict[str, Any], fields: list[str]) -> None:
    causes = check_service({"spec": {"type": "ClusterIP", **spec}})
    assert [cause.field for cause in causes] == fields


def test_several_ports_of_a_service_have_different_names_and_numbers() -> None:
    ports = [{"name": "a", "port": 80}, {"name": "a", "port": 80}, {"port": 81}]
    causes = check_service({"spec": {"type": "ClusterIP", "ports": ports}})
    assert [(cause.field, cause.reason) for cause in causes] == [
        ("spec.ports[1].name", "FieldValueDuplicate"),
        ("spec.ports[2].name", "FieldValueRequired"),
        ("spec.ports[1]", "FieldValueDuplicate"),
    ]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"defaultBackend": BACKEND}, None),
        ({"rules": [{"host": "*.a.dev"}]}, None),
        ({}, "spec"),
        ({"rules": [{"host": "A"}]}, "spec.rules[0].host"),
        ({"defaultBackend": {}}, "spec.defaultBackend"),
        ({"defaultBackend": {"service": {"name": "", "port": {"name": "p"}}}}, "spec.defaultBackend.service.name"),
        ({"defaultBackend": {"service": {"name": "a", "port": {}}}}, "spec.defaultBackend"),
    ],
)
def test_an_ingress_has_a_backend_or_rules(spec: dict[str, Any], field: str | None) -> None:
    assert [cause.field for cause in check_ingress({"spec": spec})] == ([field] if field else [])


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ({"pathType": "Prefix", "path": "/a"}, None),
        ({"pathType": "ImplementationSpecific", "path": "a"}, None),
        ({"pathType": "Exact", "path": "a"}, "path"),
        ({"pathType": "Other", "path": "/a"}, "pathType"),
        ({"path": "/a"}, "pathType"),
    ],
)
def test_paths_of_an_ingress_are_absolute(path: dict[str, Any], field: str | None) -> None:
    rule = {"http": {"paths": [{**path, "backend": BACKEND}]}}
    causes = check_ingress({"spec": {"rules": [rule]}})
    assert [cause.field for cause in causes] == ([f"spec.rules[0].http.paths[0].{field}"] if field else [])


def test_the_types_of_a_network_policy_are_directions() -> None:
    causes = check_network_policy({"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Both"]}})
    assert [cause.field for cause in causes] == ["spec.policyTypes[1]"]
