"""Conformance: RBAC, and the prevention of privilege escalation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import RBAC, RBAC_PATH, STRATEGIC, Guarded, rule
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


@pytest.mark.parametrize(
    ("role", "allowed", "rejected"),
    [
        ("view", ["GET pods", "GET services", "GET deployments"], ["GET secrets", "DELETE pods/a", "GET {r}/roles"]),
        ("edit", ["GET secrets", "DELETE pods/a", "DELETE deployments/a"], ["GET {r}/roles", "GET {r}/rolebindings"]),
        ("admin", ["GET secrets", "DELETE pods/a", "GET {r}/roles", "DELETE {r}/roles/a"], ["DELETE {s}"]),
        ("cluster-admin", ["GET secrets", "GET {r}/roles", "DELETE events/x"], ["GET /api/v1/nodes"]),
    ],
)
async def test_the_user_facing_roles_exist(
    guarded: Guarded, role: str, allowed: list[str], rejected: list[str]
) -> None:
    await guarded.bind(role, {"kind": "User", "name": guarded.named("anna")}, kind="ClusterRole")
    user = guarded.acting("anna")
    await user.eventually(lambda: user.get(guarded.path("pods")), lambda answer: answer.code == 200)
    for line in (*allowed, *rejected):
        method, _, place = line.partition(" ")
        grants = f"{RBAC_PATH}/namespaces/{guarded.namespace}"
        place = place.replace("{r}", grants).replace("{s}", f"/api/v1/namespaces/{guarded.namespace}/status")
        path = place if place.startswith("/") else guarded.path(*place.split("/"))
        answer = await user.request(method, path)
        assert (answer.code == 403) is (line in rejected), (line, answer.content)


async def test_the_default_roles_are_those_of_the_real_server(guarded: Guarded) -> None:
    names = ["cluster-admin", "admin", "edit", "view", "system:aggregate-to-admin", "system:aggregate-to-edit"]
    names += ["system:aggregate-to-view", "system:basic-user", "system:discovery", "system:public-info-viewer"]
    names += ["system:auth-delegator", "system:monitoring"]
    own = Cluster(seed=0, authorization="rbac")
    for name in names:
        role = (await guarded.get(guarded.grants("clusterroles", name))).content
        mine = await own.get("clusterroles", name)
        for obj in (role, mine):
            assert obj.pop("metadata")["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert role == mine
    for binding in await own.list("clusterrolebindings"):
        path = guarded.grants("clusterrolebindings", binding["metadata"]["name"])
        real = (await guarded.get(path)).content
        assert (real["subjects"], real["roleRef"]) == (binding["subjects"], binding["roleRef"])


# -- giving away ------------------------------------------------------------------------------------------------------


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


# -- validity ---------------------------------------------------------------------------------------------------------


async def test_rules_are_validated(guarded: Guarded) -> None:
    url = {"nonResourceURLs": ["/x"], "verbs": ["get"]}
    rejected = await guarded.make_role("bad", {"verbs": []}, {"verbs": ["get"], "apiGroups": [""]}, url)
    causes = [(item["field"], item["message"]) for item in rejected.content["details"]["causes"]]
    assert (rejected.code, causes) == (
        422,
        [
            ("rules[0].verbs", "Required value: verbs must contain at least one value"),
            ("rules[0].apiGroups", "Required value: resource rules must supply at least one api group"),
            ("rules[0].resources", "Required value: resource rules must supply at least one resource"),
            ("rules[1].resources", "Required value: resource rules must supply at least one resource"),
            ("rules[2].nonResourceURLs", 'Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs'),
        ],
    )
    both = {**url, "apiGroups": [""], "resources": ["pods"]}
    rejected = await guarded.make_role(guarded.named("bad"), both, plural="clusterroles")
    assert rejected.code == 422
    assert "rules cannot apply to both regular resources and non-resource URLs" in rejected.message
    rejected = await guarded.make_role(guarded.named("bad"), plural="clusterroles", aggregationRule={})
    assert "at least one clusterRoleSelector required" in rejected.message


@pytest.mark.parametrize(
    ("term", "field", "message"),
    [
        ({"key": "a", "operator": "Bad"}, "operator", 'Invalid value: "Bad": not a valid selector operator'),
        (
            {"key": "a", "operator": "In"},
            "values",
            "Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        ({"operator": "Exists"}, "key", 'Invalid value: "": name part must be non-empty'),
    ],
)
async def test_aggregation_selectors_are_validated(
    guarded: Guarded, term: dict[str, str], field: str, message: str
) -> None:
    selectors = {"clusterRoleSelectors": [{"matchExpressions": [term]}]}
    rejected = await guarded.make_role(guarded.named("bad"), plural="clusterroles", aggregationRule=selectors)
    causes = [(item["field"], item["message"]) for item in rejected.content["details"]["causes"]]
    path = "aggregationRule.clusterRoleSelectors[0]"
    assert rejected.code == 422
    assert causes[0] == (f"{path}.matchExpressions[0].{field}", message)
    assert causes[-1] == (path, "Invalid value: null: invalid label selector.")


@pytest.mark.parametrize(
    ("subject", "field", "value", "supported"),
    [
        ({"kind": "User"}, "name", None, ()),
        ({"kind": "Pod", "name": "a"}, "kind", "Pod", ("ServiceAccount", "User", "Group")),
        ({"kind": "User", "name": "a", "apiGroup": "x"}, "apiGroup", "x", (RBAC,)),
        ({"kind": "ServiceAccount", "name": "a", "apiGroup": RBAC}, "apiGroup", RBAC, ("",)),
    ],
)
async def test_subjects_are_validated(
    guarded: Guarded, subject: dict[str, str], field: str, value: str | None, supported: tuple[str, ...]
) -> None:
    rejected = await guarded.bind("x", subject)
    causes = [(item["field"], item["message"]) for item in rejected.content["details"]["causes"]]
    shown = ", ".join(f'"{word}"' for word in supported)
    message = f'Unsupported value: "{value}": supported values: {shown}' if value else "Required value"
    assert (rejected.code, causes) == (422, [(f"subjects[0].{field}", message)])


async def test_role_references_are_validated(guarded: Guarded) -> None:
    subject = {"kind": "ServiceAccount", "name": "a"}
    name = guarded.named("bad")
    rejected = await guarded.bind("x", subject, kind="Role", plural="clusterrolebindings", name=name)
    causes = [(item["field"], item["message"]) for item in rejected.content["details"]["causes"]]
    assert causes == [
        ("roleRef.kind", 'Unsupported value: "Role": supported values: "ClusterRole"'),
        ("subjects[0].namespace", "Required value"),
    ]
    assert (await guarded.bind("", subject, name="a")).code == 422


async def test_the_role_of_a_binding_is_immutable(guarded: Guarded) -> None:
    await guarded.bind("one", {"kind": "User", "name": "a"})
    path = guarded.grants("rolebindings", "one")
    rejected = await guarded.merge(path, {"roleRef": {"name": "two"}})
    assert (rejected.code, rejected.content["details"]["causes"][0]["field"]) == (422, "roleRef")
    assert rejected.message.endswith(f'{{"APIGroup":"{RBAC}","Kind":"Role","Name":"two"}}: cannot change roleRef')
    assert (await guarded.merge(path, {"subjects": [{"kind": "Group", "name": "b"}]})).code == 200


async def test_references_and_subjects_have_defaults(guarded: Guarded) -> None:
    made = await guarded.bind("one", {"kind": "User", "name": "a"})
    assert made.content["subjects"] == [{"kind": "User", "name": "a", "apiGroup": RBAC}]
    role = await guarded.make_role("With:Colon")
    assert (role.code, role.content["rules"]) == (201, None)


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
