"""Conformance: RBAC."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import RBAC, STRATEGIC, Guarded, rule
from trioperator.apiserver import Cluster, User
from trioperator.apiserver.access.attributes import Attributes
from trioperator.apiserver.access.rbac import RbacAuthorizer

# -- forbidden --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "verb", "full", "name"),
    [
        ("GET /api/v1/pods", "list", "pods", ""),
        ("GET /api/v1/namespaces/{n}/pods", "list", "pods", ""),
        ("GET /api/v1/namespaces/{n}/pods?watch=1", "watch", "pods", ""),
        ("GET /api/v1/namespaces/{n}/pods/a", "get", "pods", "a"),
        ("GET /api/v1/namespaces/{n}/pods/a?watch=1", "get", "pods", "a"),
        ("GET /api/v1/namespaces/{n}/pods?fieldSelector=metadata.name=a", "list", "pods", "a"),
        ("GET /api/v1/namespaces/{n}/pods/a/log", "get", "pods/log", "a"),
        ("POST /api/v1/namespaces/{n}/pods", "create", "pods", ""),
        ("PUT /api/v1/namespaces/{n}/pods/a", "update", "pods", "a"),
        ("DELETE /api/v1/namespaces/{n}/pods/a", "delete", "pods", "a"),
        ("DELETE /apis/apps/v1/namespaces/{n}/deployments", "deletecollection", "deployments.apps", ""),
        ("PATCH /apis/apps/v1/namespaces/{n}/deployments/a/scale", "patch", "deployments/scale.apps", "a"),
        ("GET /apis/nobody.dev/v1/nothings/a", "get", "nothings.nobody.dev", "a"),
        ("GET /api/v1/namespaces/{n}", "get", "namespaces", "{n}"),
        ("GET /api/v1/namespaces", "list", "namespaces", ""),
    ],
)
async def test_a_forbidden_request_names_the_missing_permission(
    guarded: Guarded, line: str, verb: str, full: str, name: str
) -> None:
    method, _, url = line.replace("{n}", guarded.namespace).partition(" ")
    path, _, query = url.partition("?")
    params = dict([query.split("=", 1)]) if query else {}
    body: Any = {} if method in {"POST", "PUT", "PATCH"} else None
    answer = await guarded.acting("nobody").request(method, path, body, STRATEGIC, **params)
    resource, _, group = full.partition(".")
    plural, name = resource.partition("/")[0], name.replace("{n}", guarded.namespace)
    scope = f'in the namespace "{guarded.namespace}"' if guarded.namespace in path else "at the cluster scope"
    title = f"{plural}.{group}" if group else plural
    shown = f'{title} "{name}"' if name else title
    what = f'cannot {verb} resource "{resource}" in API group "{group}" {scope}'
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert answer.message == f'{shown} is forbidden: User "{guarded.named("nobody")}" {what}'
    details = {"name": name, "group": group, "kind": plural}
    assert answer.content["details"] == {key: value for key, value in details.items() if value}


@pytest.mark.parametrize(("method", "path"), [("GET", "/metrics"), ("POST", "/nowhere"), ("GET", "/")])
async def test_a_forbidden_path_is_named(guarded: Guarded, method: str, path: str) -> None:
    answer = await guarded.acting("nobody").request(method, path)
    user = guarded.named("nobody")
    text = f'forbidden: User "{user}" cannot {method.lower()} path "{path}"'
    assert (answer.code, answer.reason, answer.message) == (403, "Forbidden", text)


async def test_authenticated_users_may_read_discovery(guarded: Guarded) -> None:
    user = guarded.acting("nobody")
    for path in ("/api", "/api/v1", "/apis", "/apis/apps/v1", "/version", "/openapi/v3", "/healthz", "/livez/ping"):
        assert (await user.get(path)).code == (403 if path == "/livez/ping" else 200), path


async def test_anonymous_users_may_read_only_health_and_version(guarded: Guarded) -> None:
    stranger = guarded.sending(("Impersonate-User", "system:anonymous"))
    for path in ("/healthz", "/readyz", "/livez", "/version"):
        assert (await stranger.get(path)).code == 200, path
    for path in ("/api", "/apis", "/openapi/v2"):
        answer = await stranger.get(path)
        assert (answer.code, answer.message) == (403, f'forbidden: User "system:anonymous" cannot get path "{path}"')


# -- what is allowed --------------------------------------------------------------------------------------------------


async def test_a_role_applies_to_its_namespace(guarded: Guarded) -> None:
    user = await guarded.give("anna", rule("get,list", "pods"))
    assert (await user.get(guarded.path("pods"))).code == 200
    assert (await user.get(guarded.path("pods", "a"))).code == 404
    assert (await user.get("/api/v1/namespaces/default/pods")).code == 403
    assert (await user.get("/api/v1/pods")).code == 403
    assert (await user.get(guarded.path("pods", "a", "status"))).code == 403
    assert (await user.delete(guarded.path("pods", "a"))).code == 403


async def test_a_cluster_role_binding_applies_everywhere(guarded: Guarded) -> None:
    user = await guarded.give("anna", rule("list", "pods,nodes"), everywhere=True)
    for path in ("/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces/default/pods", guarded.path("pods")):
        assert (await user.get(path)).code == 200, path


async def test_a_role_binding_to_a_cluster_role_applies_to_its_namespace(guarded: Guarded) -> None:
    subject = {"kind": "User", "name": guarded.named("anna")}
    assert (await guarded.bind("view", subject, kind="ClusterRole")).code == 201
    user = guarded.acting("anna")
    await user.eventually(lambda: user.get(guarded.path("pods")), lambda answer: answer.code == 200)
    assert (await user.get(guarded.path("secrets"))).code == 403
    assert (await user.get("/api/v1/namespaces/default/pods")).code == 403


async def test_a_rule_can_be_limited_to_names(guarded: Guarded) -> None:
    user = await guarded.give("anna", rule("get,list,watch,delete", "configmaps", resourceNames=["a"]))
    path = guarded.path("configmaps")
    assert (await user.get(f"{path}/a")).code == 404
    assert (await user.get(f"{path}/b")).code == 403
    assert (await user.get(path)).code == 403
    assert (await user.get(path, fieldSelector="metadata.name=a")).code == 200
    assert (await user.delete(f"{path}/a")).code == 404
    assert (await user.delete(path)).code == 403


async def test_a_subresource_needs_its_own_rule(guarded: Guarded) -> None:
    user = await guarded.give("anna", rule("get", "deployments/scale", "apps"), rule("get", "*/status"))
    assert (await user.get(f"{guarded.path('deployments', 'a')}/scale")).code == 404
    assert (await user.get(guarded.path("deployments", "a"))).code == 403
    assert (await user.get(guarded.path("pods", "a", "status"))).code == 404
    assert (await user.get(guarded.path("pods", "a"))).code == 403


async def test_wildcards_match_everything(guarded: Guarded) -> None:
    user = await guarded.give("anna", rule("*", "*", "*"))
    assert (await user.get(guarded.path("deployments"))).code == 200
    assert (await user.get(f"{guarded.path('deployments', 'a')}/scale")).code == 404
    assert (await user.get("/apis/apps/v1/deployments")).code == 403


async def test_creating_by_update_or_apply_requires_the_create_permission(guarded: Guarded) -> None:
    user = await guarded.give("pat", rule("get,patch,update", "configmaps,services"))
    path, body = guarded.path("configmaps", "a"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    apply = "application/apply-patch+yaml"
    rejected = await user.request("PATCH", path, body, apply, fieldManager="x")
    text = f'User "{guarded.named("pat")}" cannot create resource "configmaps" in API group ""'
    where = f'in the namespace "{guarded.namespace}"'
    assert (rejected.code, rejected.message) == (403, f'configmaps "a" is forbidden: {text} {where}')
    assert (await guarded.request("PATCH", path, body, apply, fieldManager="x")).code == 201
    assert (await user.request("PATCH", path, body, apply, fieldManager="x")).code == 200
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    assert (await user.request("PUT", guarded.path("services", "s"), service)).code == 403
    assert (await guarded.request("PUT", guarded.path("services", "s"), service)).code == 201


async def test_a_rule_can_allow_a_path(guarded: Guarded) -> None:
    rules = {"verbs": ["get"], "nonResourceURLs": ["/nowhere/*"]}
    user = await guarded.give("anna", rules, everywhere=True)
    assert (await user.get("/nowhere/else")).code == 404
    assert (await user.get("/nowhere")).code == 403
    assert (await user.request("POST", "/nowhere/else", {})).code == 403


@pytest.mark.parametrize(
    "subject",
    [
        {"kind": "Group", "name": "{g}"},
        {"kind": "ServiceAccount", "name": "robot", "namespace": "{n}"},
        {"kind": "ServiceAccount", "name": "robot"},
    ],
)
async def test_subjects_can_be_groups_and_service_accounts(guarded: Guarded, subject: dict[str, str]) -> None:
    group = guarded.named("people")
    filled = {key: value.replace("{g}", group).replace("{n}", guarded.namespace) for key, value in subject.items()}
    await guarded.make_role("reader", rule("list", "pods"))
    await guarded.bind("reader", filled)
    account = guarded.sending(("Impersonate-User", f"system:serviceaccount:{guarded.namespace}:robot"))
    user = guarded.acting("anna", group) if subject["kind"] == "Group" else account
    await user.eventually(lambda: user.get(guarded.path("pods")), lambda answer: answer.code == 200)
    assert (await guarded.acting("anna").get(guarded.path("pods"))).code == 403


async def test_removed_permissions_are_revoked(guarded: Guarded) -> None:
    user = await guarded.give("anna", rule("list", "pods"))
    role = guarded.named("anna-role")
    assert (await user.get(guarded.path("pods"))).code == 200
    await guarded.delete(guarded.grants("roles", role))
    lost = await user.eventually(lambda: user.get(guarded.path("pods")), lambda answer: answer.code == 403)
    assert lost.message.endswith(f': RBAC: role.rbac.authorization.k8s.io "{role}" not found')
    await guarded.delete(guarded.grants("rolebindings", role))
    await user.eventually(
        lambda: user.get(guarded.path("pods")), lambda answer: answer.code == 403 and "RBAC" not in answer.message
    )


# -- the embedded server alone ----------------------------------------------------------------------------------------


async def test_decisions_are_cached_until_roles_change() -> None:
    cluster = Cluster(authorization="rbac")
    roles = cluster.api.gate.access.authorizer
    assert isinstance(roles, RbacAuthorizer)
    anna, wanted = User(name="anna"), Attributes(verb="get", resource="pods", namespace="default")
    first = roles.decide(anna, wanted)
    assert not first.allowed
    assert roles.decide(anna, wanted) is first
    ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}
    subjects = [{"kind": "User", "name": "anna"}]
    meta = {"name": "a", "namespace": "default"}
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": ref}
    await cluster.create({**binding, "subjects": subjects})
    assert roles.decide(anna, wanted).allowed
    await cluster.delete("rolebindings", "a")
    assert not roles.decide(anna, wanted).allowed
