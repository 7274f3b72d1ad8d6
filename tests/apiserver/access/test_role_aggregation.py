"""Tests for :mod:`trioperator.apiserver.access.role_aggregation`: a role has the rules of those that it selects."""

from __future__ import annotations

from tests.apiserver.conftest import Guarded, rule


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
