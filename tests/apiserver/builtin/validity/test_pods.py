"""Tests for :mod:`trioperator.apiserver.builtin.validity.pods`: Pods and the templates of Pods are valid."""

from __future__ import annotations

from typing import Any, Final

import pytest

from trioperator.apiserver.builtin.validity.pods import check_pod, check_pod_spec

MAIN: Final = {"name": "main", "image": "one"}


def fields_of(**container: Any) -> list[str]:
    """Return the invalid fields of a Pod's only container."""
    spec = {"volumes": [{"name": "data", "emptyDir": {}}], "containers": [{**MAIN, **container}]}
    return [cause.field.removeprefix("spec.containers[0].") for cause in check_pod({"spec": spec})]


def test_a_pod_needs_a_container() -> None:
    (cause,) = check_pod_spec({}, "spec.template.spec")
    assert (cause.field, cause.message) == ("spec.template.spec.containers", "Required value")
    assert list(check_pod({"spec": {"containers": [MAIN]}})) == []


def test_container_names_are_unique_with_those_of_init_containers() -> None:
    causes = check_pod({"spec": {"containers": [MAIN], "initContainers": [MAIN]}})
    assert [cause.field for cause in causes] == ["spec.initContainers[0].name"]


@pytest.mark.parametrize(
    ("container", "fields"),
    [
        ({"image": " one"}, ["image"]),
        ({"imagePullPolicy": "Sometimes"}, ["imagePullPolicy"]),
        ({"ports": [{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}]}, ["ports[1].name"]),
        ({"ports": [{}, {"containerPort": 70000}]}, ["ports[0].containerPort", "ports[1].containerPort"]),
        ({"env": [{"name": "A=B"}, {"name": ""}]}, ["env[0].name", "env[1].name"]),
        ({"env": [{"name": "A", "value": "b", "valueFrom": {"fieldRef": {}}}]}, ["env[0].valueFrom"]),
        ({"envFrom": [{"configMapRef": {}}, {}]}, ["envFrom"]),
        ({"volumeMounts": [{"name": "data", "mountPath": "/a"}]}, []),
        ({"volumeMounts": [{"name": "other", "mountPath": "/a"}]}, ["volumeMounts[0].name"]),
        ({"volumeMounts": [{"name": "data", "mountPath": "/a"}] * 2}, ["volumeMounts[1].mountPath"]),
        ({"livenessProbe": {}}, ["livenessProbe"]),
        ({"readinessProbe": {"exec": {"command": ["a"]}, "httpGet": {"port": 1}}}, ["readinessProbe.httpGet"]),
        ({"startupProbe": {"tcpSocket": {"port": 1}, "periodSeconds": -1}}, ["startupProbe.periodSeconds"]),
    ],
)
def test_fields_of_containers_are_valid(container: dict[str, Any], fields: list[str]) -> None:
    assert fields_of(**container) == fields


@pytest.mark.parametrize(
    ("requests", "limits", "fields"),
    [
        ({"cpu": "500m"}, {"cpu": "1"}, []),
        ({"cpu": "1"}, {"cpu": "1000m"}, []),
        ({"cpu": "2"}, {"cpu": "1500m"}, ["resources.requests"]),
        ({"memory": "-1"}, {}, ["resources.requests[memory]"]),
        ({}, {"a.dev/gpu": "1", "hugepages-2Mi": "1"}, []),
        ({}, {"gpu": "1"}, ["resources.limits[gpu]"] * 2),
    ],
)
def test_requests_are_at_most_the_limits(requests: dict[str, str], limits: dict[str, str], fields: list[str]) -> None:
    assert fields_of(resources={"requests": requests, "limits": limits}) == fields


@pytest.mark.parametrize(
    ("volume", "fields"),
    [
        ({"name": "a", "configMap": {"name": "b"}}, []),
        ({"name": "a", "configMap": {}}, ["configMap.name"]),
        ({"name": "a", "emptyDir": {}, "hostPath": {}}, ["hostPath"]),
        ({"name": "A", "emptyDir": {}}, ["name"]),
    ],
)
def test_a_volume_has_a_name_and_one_source(volume: dict[str, Any], fields: list[str]) -> None:
    causes = check_pod({"spec": {"containers": [MAIN], "volumes": [volume]}})
    assert [cause.field.removeprefix("spec.volumes[0].") for cause in causes] == fields


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"restartPolicy": "Sometimes"}, "restartPolicy"),
        ({"dnsPolicy": "Mine"}, "dnsPolicy"),
        ({"nodeSelector": {"a b": "c"}}, "nodeSelector"),
        ({"serviceAccountName": "A"}, "serviceAccountName"),
        ({"activeDeadlineSeconds": 0}, "activeDeadlineSeconds"),
        ({"activeDeadlineSeconds": 2**31}, "activeDeadlineSeconds"),
    ],
)
def test_fields_of_a_pod_are_valid(spec: dict[str, Any], field: str) -> None:
    causes = check_pod({"spec": {"containers": [MAIN], **spec}})
    assert [cause.field for cause in causes] == [f"spec.{field}"]
