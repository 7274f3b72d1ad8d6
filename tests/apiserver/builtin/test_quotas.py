"""What objects count as, and whether one more fits."""

from __future__ import annotations

from typing import Any

import pytest

from trioperator.apiserver.builtin.quotas import matches_scopes, problem_of, usage_of, used_of
from trioperator.apiserver.model.kinds import Catalog, Kind


def kind(plural: str, group: str = "") -> Kind:
    found = Catalog().by_resource((group, plural))
    assert found is not None
    return found


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [], **spec}}


def container(**requests: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}}


def quota(hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}, "status": {"hard": hard}}


def test_an_object_counts_by_its_kind() -> None:
    assert usage_of(kind("replicasets", "apps"), {"metadata": {}}) == {"count/replicasets.apps": 1}
    assert usage_of(kind("secrets"), {"metadata": {}}) == {"count/secrets": 1, "secrets": 1}


def test_containers_add_up_and_init_containers_need_their_own_at_least() -> None:
    spec = {"containers": [container(cpu="1"), container(cpu="500m")], "initContainers": [container(cpu="2")]}
    found = usage_of(kind("pods"), pod(**spec, overhead={"cpu": "100m"}))
    assert found["cpu"] == found["requests.cpu"] == 2
    assert usage_of(kind("pods"), pod(containers=[container(cpu="1")], overhead={"cpu": "1"}))["cpu"] == 2


def test_a_pod_that_has_ended_needs_nothing() -> None:
    ended = {**pod(containers=[container(cpu="1")]), "status": {"phase": "Failed"}}
    assert usage_of(kind("pods"), ended) == {"count/pods": 1}


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [("In", ["high"], True), ("In", ["low"], False), ("NotIn", ["low"], True), ("Exists", [], True)],
)
def test_priority_classes_are_selected(operator: str, values: list[str], expected: bool) -> None:
    scope = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    selecting = quota({"pods": "1"}, scopeSelector={"matchExpressions": [scope]})
    assert matches_scopes(selecting, kind("pods"), pod(priorityClassName="high")) is expected


def test_a_quota_with_scopes_is_for_pods_only() -> None:
    assert not matches_scopes(quota({}, scopes=["BestEffort"]), kind("secrets"), {"metadata": {}})


def test_amounts_are_written_as_the_quota_writes_them() -> None:
    objects = [(kind("pods"), pod(containers=[container(memory="512Mi", cpu="250m")]))] * 2
    assert used_of(quota({"memory": "4Gi", "cpu": "2", "services": "1"}), objects) == {
        "memory": "1Gi",
        "cpu": "500m",
        "services": "0",
    }


def test_a_quota_without_a_status_has_no_effect() -> None:
    bare = {"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "0"}}}
    assert problem_of(bare, kind("secrets"), {"metadata": {"name": "s"}}, {}) == ""


def test_a_load_balancer_takes_node_ports_unless_it_says_otherwise() -> None:
    def ports(**spec: Any) -> tuple[int, int]:
        found = usage_of(kind("services"), {"metadata": {}, "spec": {"ports": [{"port": 1}], **spec}})
        return int(found["services.nodeports"]), int(found["services.loadbalancers"])

    assert ports(type="LoadBalancer") == (1, 1)
    assert ports(type="LoadBalancer", allocateLoadBalancerNodePorts=False) == (0, 1)
    assert ports(type="ClusterIP") == (0, 0)
