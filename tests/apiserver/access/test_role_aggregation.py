"""Tests for :mod:`trioperator.apiserver.access.role_aggregation`: a role has the rules of those that it selects."""

from __future__ import annotations

from typing import Any

from tests.apiserver.conftest import RBAC, Guarded, rule
from trioperator.apiserver import Cluster


async def test_an_aggregated_role_has_the_rules_of_others(guarded: Guarded) -> None:
    label = guarded.namespace
    gathering, parts = guarded.named("all"), [guarded.named("b"), guarded.named("a")]
    selectors = {"clusterRoleSelectors": [{"matchLabels": {label: "yes"}}]}
    made = await guarded.make_role(gathering, rule("get", "pods"), plural="clusterroles", aggregationRule=selectors)
    assert made.code == 201
    for name in parts:
        meta = {"name": name, "labels": {label: "yes"}}
        await guarded.make_role(name, rule("get", "things", name[0]), plural="clusterroles", metadata=meta)
    path = guarded.grants("clusterroles", gathering)
    wanted = [rule("get", "things", "a"), rule("get", "things", "b")]
    await guarded.eventually(lambda: guarded.get(path), lambda answer: answer.content["rules"] == wanted)
    await guarded.delete(guarded.grants("clusterroles", parts[1]))
    await guarded.eventually(lambda: guarded.get(path), lambda answer: answer.content["rules"] == wanted[1:])
    await guarded.delete(guarded.grants("clusterroles", parts[0]))
    await guarded.eventually(lambda: guarded.get(path), lambda answer: answer.content["rules"] is None)


# -- the embedded server alone ----------------------------------------------------------------------------------------


def cluster_role(name: str, **content: Any) -> dict[str, Any]:
    """Return a ClusterRole with a label of its name."""
    meta = {"name": name, "labels": {"is": name}}
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": meta, **content}


def aggregation(*names: str) -> dict[str, Any]:
    return {"clusterRoleSelectors": [{"matchLabels": {"is": name}} for name in names]}


async def test_a_rule_of_several_roles_is_aggregated_once() -> None:
    cluster = Cluster(authorization="rbac")
    pods, nodes = rule("get", "pods"), rule("get", "nodes")
    await cluster.create(cluster_role("a", rules=[pods]))
    await cluster.create(cluster_role("b", rules=[pods, nodes]))
    await cluster.create(cluster_role("all", aggregationRule=aggregation("a", "b")))
    assert (await cluster.get("clusterroles", "all"))["rules"] == [pods, nodes]


async def test_a_role_does_not_aggregate_itself() -> None:
    cluster = Cluster(authorization="rbac")
    await cluster.create(cluster_role("own", rules=[rule("get", "pods")], aggregationRule=aggregation("own")))
    assert (await cluster.get("clusterroles", "own"))["rules"] is None


async def test_aggregated_roles_are_aggregated_in_turn() -> None:
    cluster = Cluster(authorization="rbac")
    await cluster.create(cluster_role("top", aggregationRule=aggregation("middle")))
    await cluster.create(cluster_role("middle", aggregationRule=aggregation("bottom")))
    await cluster.create(cluster_role("bottom", rules=[rule("get", "pods")]))
    assert (await cluster.get("clusterroles", "top"))["rules"] == [rule("get", "pods")]


async def test_roles_without_aggregation_keep_their_rules() -> None:
    cluster = Cluster(authorization="rbac")
    await cluster.create(cluster_role("plain", rules=[rule("get", "pods")]))
    before = await cluster.get("clusterroles", "plain")
    await cluster.create(cluster_role("other", rules=[rule("get", "nodes")]))
    assert await cluster.get("clusterroles", "plain") == before
