"""Tests for :mod:`trioperator.apiserver.access.escalation`: users only grant permissions that they have."""

from __future__ import annotations

from typing import Any

from tests.apiserver.conftest import RBAC, Guarded, rule


async def make_admin(guarded: Guarded) -> Guarded:
    """Return the target as an administrator of the case's namespace."""
    subject = {"kind": "User", "name": guarded.named("carl")}
    await guarded.bind("admin", subject, kind="ClusterRole", name="carl")
    user = guarded.acting("carl")
    await user.eventually(lambda: user.get(guarded.grants("roles")), lambda answer: answer.code == 200)
    return user


def refusal(guarded: Guarded, kind: str, name: str, *lines: str) -> str:
    who = f'user "{guarded.named("carl")}" (groups=["system:authenticated"])'
    text = f"{who} is attempting to grant RBAC permissions not currently held:"
    return "\n".join((f'{kind}.{RBAC} "{name}" is forbidden: {text}', *lines))


async def test_creating_a_role_cannot_escalate_permissions(guarded: Guarded) -> None:
    carl = await make_admin(guarded)
    assert (await carl.make_role("fine", rule("get,list", "pods"))).code == 201
    rejected = await carl.make_role(
        "bad", rule("get", "pods"), rule("get,list", "nodes,x", "a.dev", resourceNames=["n"])
    )
    assert (rejected.code, rejected.reason) == (403, "Forbidden")
    assert rejected.content["details"] == {"name": "bad", "group": RBAC, "kind": "roles"}
    assert rejected.message == refusal(
        guarded,
        "roles",
        "bad",
        '{APIGroups:["a.dev"], Resources:["nodes"], ResourceNames:["n"], Verbs:["get" "list"]}',
        '{APIGroups:["a.dev"], Resources:["x"], ResourceNames:["n"], Verbs:["get" "list"]}',
    )


async def test_changing_a_role_cannot_escalate_permissions(guarded: Guarded) -> None:
    carl = await make_admin(guarded)
    await guarded.make_role("theirs", rule("get", "nodes"))
    path = guarded.grants("roles", "theirs")
    # Even an old rule must be one's own, but for changes that only the garbage collector makes.
    assert (await carl.merge(path, {"metadata": {"labels": {"a": "b"}}})).code == 403
    assert (await carl.merge(path, {"metadata": {"finalizers": ["a.dev/b"]}})).code == 200
    assert (await carl.merge(path, {"metadata": {"finalizers": None}})).code == 200
    rejected = await carl.merge(path, {"rules": [rule("get", "x", "a.dev")]})
    line = '{APIGroups:["a.dev"], Resources:["x"], Verbs:["get"]}'
    assert (rejected.code, rejected.message) == (403, refusal(guarded, "roles", "theirs", line))
    assert (await carl.merge(path, {"rules": [rule("get", "pods")]})).code == 200


async def test_binding_a_role_cannot_escalate_permissions(guarded: Guarded) -> None:
    carl = await make_admin(guarded)
    dora = {"kind": "User", "name": guarded.named("dora")}
    assert (await carl.bind("view", dora, kind="ClusterRole")).code == 201
    rejected = await carl.bind("cluster-admin", dora, kind="ClusterRole")
    lines = ('{APIGroups:["*"], Resources:["*"], Verbs:["*"]}', '{NonResourceURLs:["*"], Verbs:["*"]}')
    assert (rejected.code, rejected.message) == (403, refusal(guarded, "rolebindings", "cluster-admin", *lines))
    missing = await carl.bind("nothing", dora)
    assert (missing.code, missing.message) == (404, f'rolebindings.{RBAC} "nothing" not found')
    assert (await guarded.bind("nothing", dora)).code == 201  # who may do everything may do that


async def test_the_verbs_escalate_and_bind_allow_escalation(guarded: Guarded) -> None:
    fred = await guarded.give("fred", rule("create", "clusterroles,clusterrolebindings", RBAC), everywhere=True)
    name, subject = guarded.named("made"), {"kind": "User", "name": guarded.named("fred")}
    rejected = await fred.make_role(name, rule("get", "x", "a.dev"), plural="clusterroles")
    assert rejected.code == 403
    more = guarded.named("more")
    rules = [rule("escalate", "clusterroles", RBAC), rule("bind", "clusterroles", RBAC, resourceNames=["view"])]
    await guarded.make_role(more, *rules, plural="clusterroles")
    await guarded.bind(more, subject, kind="ClusterRole", plural="clusterrolebindings")
    await fred.until_held(*rules)
    assert (await fred.make_role(name, rule("get", "x", "a.dev"), plural="clusterroles")).code == 201
    options: dict[str, Any] = {"kind": "ClusterRole", "plural": "clusterrolebindings"}
    assert (await fred.bind("view", subject, name=guarded.named("v"), **options)).code == 201
    assert (await fred.bind("edit", subject, name=guarded.named("e"), **options)).code == 403


async def test_only_an_administrator_may_aggregate_roles(guarded: Guarded) -> None:
    fred = await guarded.give("fred", rule("create", "clusterroles", RBAC), everywhere=True)
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    rejected = await fred.make_role(guarded.named("all"), plural="clusterroles", aggregationRule=selectors)
    text = "must have cluster-admin privileges to use the aggregationRule"
    assert (rejected.code, rejected.message) == (
        403,
        f'clusterroles.{RBAC} "{guarded.named("all")}" is forbidden: {text}',
    )
