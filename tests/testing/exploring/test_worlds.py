"""Tests for :mod:`trioperator.testing.exploring.worlds`."""

from __future__ import annotations

import pytest

from tests.testing.exploring.operators import CRD
from tests.testing.exploring.written import DEPLOYMENT
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError
from trioperator.testing.exploring.worlds import StatusRule, scale_targets, set_statuses


async def test_autoscalers_bring_their_targets_to_the_minimum(cluster: Cluster) -> None:
    await cluster.create(DEPLOYMENT)
    for name in ("d", "missing"):
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        spec = {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 5}
        scaler = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}}
        await cluster.create({**scaler, "spec": spec})
    await scale_targets(cluster)
    assert (await cluster.get("deployments", "d"))["spec"]["replicas"] == 3


async def test_a_rule_sets_a_condition_once_for_each_generation(cluster: Cluster) -> None:
    await cluster.apply(CRD)
    await cluster.create({"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": "a"}, "spec": {}})
    rule = StatusRule.parse("webapps.example.com=Ready")
    revisions = []
    for size in (1, 1, 2):
        await cluster.patch("webapps", "a", {"spec": {"size": size}})
        await set_statuses(cluster, rule)
        revisions.append(cluster.revision)
        (condition,) = (await cluster.get("webapps", "a"))["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Ready", "True")
    assert revisions[0] == revisions[1] < revisions[2]
    assert condition["observedGeneration"] == (await cluster.get("webapps", "a"))["metadata"]["generation"]


@pytest.mark.parametrize("text", ["certificates", "=Ready", "certificates="])
def test_rules_name_a_kind_and_a_condition(text: str) -> None:
    with pytest.raises(ConfigError, match="KIND=CONDITION"):
        StatusRule.parse(text)
