"""Tests for :mod:`trioperator.apiserver.builtin.versions`: objects are served in the version that is asked for."""

from __future__ import annotations

from typing import Any

from trioperator.apiserver.builtin.versions import as_served
from trioperator.apiserver.model.kinds import Catalog, Kind


def kind_of(group: str, version: str, plural: str) -> Kind:
    kind = Catalog().get(group, version, plural)
    assert kind is not None
    return kind


def test_an_object_in_the_requested_version_is_not_copied() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    assert as_served(kind_of("", "v1", "pods"), pod) is pod


def test_an_autoscaler_is_served_in_v1_and_in_v2() -> None:
    target = {"type": "Utilization", "averageUtilization": 70}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    stored = {"apiVersion": "autoscaling/v2", "metadata": {}, "spec": {"maxReplicas": 3, "metrics": [metric]}}
    old = as_served(kind_of("autoscaling", "v1", "horizontalpodautoscalers"), stored)
    assert old["apiVersion"] == "autoscaling/v1"
    assert old["spec"] == {"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}
    assert as_served(kind_of("autoscaling", "v2", "horizontalpodautoscalers"), stored) is stored


def test_an_event_is_served_with_the_names_of_its_group() -> None:
    stored: dict[str, Any] = {"apiVersion": "v1", "kind": "Event", "metadata": {}, "message": "hello"}
    served = as_served(kind_of("events.k8s.io", "v1", "events"), stored)
    assert served == {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {}, "note": "hello"}
    assert as_served(kind_of("", "v1", "events"), stored) is stored


def test_another_version_with_the_same_fields_changes_only_the_api_version() -> None:
    deployment = {"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {}, "spec": {"replicas": 1}}
    served = as_served(kind_of("apps", "v1", "deployments"), deployment)
    assert served == {**deployment, "apiVersion": "apps/v1"}
    assert deployment["apiVersion"] == "apps/v1beta1"
