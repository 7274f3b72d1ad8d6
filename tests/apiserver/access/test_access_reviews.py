"""Conformance: access reviews."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.conftest import TABLE, Answer, Guarded, Target, rule
from trioperator.apiserver import Cluster

REVIEWS = "/apis/authorization.k8s.io/v1"
WHO = "/apis/authentication.k8s.io/v1"


async def ask(target: Guarded, plural: str, spec: Any, *, group: str = REVIEWS) -> Answer:
    return await target.request("POST", f"{group}/{plural}", {"spec": spec})


def pods(verb: str, namespace: str, **more: str) -> dict[str, Any]:
    return {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": namespace, **more}}


async def test_a_user_can_review_their_own_access(guarded: Guarded) -> None:
    user = await guarded.give("anna", rule("get,list", "pods"))
    role, name = guarded.named("anna-role"), guarded.named("anna")
    allowed = await ask(user, "selfsubjectaccessreviews", pods("list", guarded.namespace))
    assert (allowed.code, allowed.content["kind"]) == (201, "SelfSubjectAccessReview")
    assert allowed.content["spec"] == pods("list", guarded.namespace)
    reason = f'RBAC: allowed by RoleBinding "{role}/{guarded.namespace}" of Role "{role}" to User "{name}"'
    assert allowed.content["status"] == {"allowed": True, "reason": reason}
    rejected = await ask(user, "selfsubjectaccessreviews", pods("delete", guarded.namespace))
    assert (rejected.code, rejected.content["status"]) == (201, {"allowed": False})
    for more in ({"subresource": "log"}, {"group": "apps"}, {"namespace": ""}):
        rejected = await ask(user, "selfsubjectaccessreviews", pods("list", **{"namespace": guarded.namespace, **more}))
        assert rejected.content["status"] == {"allowed": False}


async def test_a_user_can_review_their_own_access_to_a_path(guarded: Guarded) -> None:
    user = guarded.acting("anna")
    allowed = await ask(user, "selfsubjectaccessreviews", {"nonResourceAttributes": {"verb": "get", "path": "/apis/x"}})
    role = '"system:discovery"'
    reason = f'RBAC: allowed by ClusterRoleBinding {role} of ClusterRole {role} to Group "system:authenticated"'
    assert allowed.content["status"] == {"allowed": True, "reason": reason}
    rejected = await ask(user, "selfsubjectaccessreviews", {"nonResourceAttributes": {"verb": "get", "path": "/x"}})
    assert rejected.content["status"] == {"allowed": False}


async def test_an_administrator_may_do_everything(guarded: Guarded) -> None:
    allowed = await ask(guarded, "selfsubjectaccessreviews", pods("anything", ""))
    assert allowed.content["status"] == {"allowed": True}


async def test_a_missing_role_is_the_reason(guarded: Guarded) -> None:
    await guarded.bind("nothing", {"kind": "User", "name": guarded.named("anna")})
    user = guarded.acting("anna")
    reason = 'RBAC: role.rbac.authorization.k8s.io "nothing" not found'
    await guarded.eventually(
        lambda: ask(user, "selfsubjectaccessreviews", pods("list", guarded.namespace)),
        lambda answer: bool(answer.content["status"] == {"allowed": False, "reason": reason}),
    )
    rules = await ask(user, "selfsubjectrulesreviews", {"namespace": guarded.namespace})
    assert rules.content["status"]["evaluationError"] == reason.removeprefix("RBAC: ")


async def test_the_access_of_others_can_be_reviewed(guarded: Guarded) -> None:
    await guarded.give("anna", rule("list", "pods"))
    who = {"user": guarded.named("anna")}
    place = guarded.namespace
    assert (await ask(guarded, "subjectaccessreviews", who | pods("list", place))).content["status"]["allowed"]
    assert not (await ask(guarded, "subjectaccessreviews", who | pods("get", place))).content["status"]["allowed"]
    masters = {"user": "x", "groups": ["system:masters"]}
    assert (await ask(guarded, "subjectaccessreviews", masters | pods("get", ""))).content["status"]["allowed"]
    path = {"groups": ["system:authenticated"], "nonResourceAttributes": {"verb": "get", "path": "/api"}}
    assert (await ask(guarded, "subjectaccessreviews", path)).content["status"]["allowed"]


async def test_extra_values_may_be_null(guarded: Guarded) -> None:
    spec = {"user": "anna", "extra": {"floor": None}, **pods("get", "")}
    assert (await ask(guarded, "subjectaccessreviews", spec)).code == 201


async def test_the_access_of_others_can_be_reviewed_in_a_namespace(guarded: Guarded) -> None:
    await guarded.give("anna", rule("list", "pods"))
    plural = f"namespaces/{guarded.namespace}/localsubjectaccessreviews"
    answer = await ask(guarded, plural, {"user": guarded.named("anna")} | pods("list", guarded.namespace))
    assert (answer.code, answer.content["status"]["allowed"]) == (201, True)
    assert answer.content["metadata"]["namespace"] == guarded.namespace


async def test_reviewing_the_access_of_others_requires_a_permission(guarded: Guarded) -> None:
    user = guarded.acting("anna")
    for plural in ("subjectaccessreviews", f"namespaces/{guarded.namespace}/localsubjectaccessreviews"):
        answer = await ask(user, plural, {"user": "x"} | pods("list", guarded.namespace))
        assert (answer.code, answer.reason) == (403, "Forbidden")
    assert (await ask(user, "tokenreviews", {"token": "x"}, group=WHO)).code == 403


BOTH = {"nonResourceAttributes": {"path": "/x", "verb": "get"}, "resourceAttributes": {"verb": "list"}}
PATH = {"user": "x", "nonResourceAttributes": {"path": "/x", "verb": "get"}}


@pytest.mark.parametrize(
    ("plural", "spec", "field", "message"),
    [
        ("selfsubjectaccessreviews", {}, "spec.resourceAttributes", "Invalid value: null: exactly one of"),
        ("selfsubjectaccessreviews", BOTH, "spec.nonResourceAttributes", 'Invalid value: {"Path":"/x","Verb":"get"}: '),
        ("subjectaccessreviews", pods("list", ""), "spec.user", 'Invalid value: "": at least one of user or group'),
        ("{n}localsubjectaccessreviews", PATH, "spec.nonResourceAttributes", "Invalid value: {"),
        ("{n}localsubjectaccessreviews", {"user": "x"} | pods("list", ""), "spec.resourceAttributes.namespace", ""),
        ("{n}localsubjectaccessreviews", {"user": "x"} | pods("list", "x"), "spec.resourceAttributes.namespace", ""),
    ],
)
async def test_an_inconsistent_review_is_rejected(
    guarded: Guarded, plural: str, spec: Any, field: str, message: str
) -> None:
    answer = await ask(guarded, plural.replace("{n}", f"namespaces/{guarded.namespace}/"), spec)
    cause = answer.content["details"]["causes"][0]
    assert (answer.code, answer.reason, cause["field"]) == (422, "Invalid", field)
    assert cause["message"].startswith(message)


@pytest.mark.parametrize("spec", ["x", {"resourceAttributes": "x"}, {"resourceAttributes": {"verb": 1}}])
async def test_a_review_with_wrong_types_is_rejected(guarded: Guarded, spec: Any) -> None:
    answer = await ask(guarded, "selfsubjectaccessreviews", spec)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert "cannot unmarshal" in answer.message


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("GET selfsubjectaccessreviews", 405),
        ("PUT subjectaccessreviews", 405),
        ("DELETE subjectaccessreviews", 405),
        ("GET selfsubjectaccessreviews/x", 404),
        ("POST localsubjectaccessreviews", 404),
        ("POST namespaces/{n}/subjectaccessreviews", 404),
        ("GET namespaces/{n}/localsubjectaccessreviews", 405),
    ],
)
async def test_reviews_are_not_stored(guarded: Guarded, line: str, code: int) -> None:
    method, _, path = line.replace("{n}", guarded.namespace).partition(" ")
    answer = await guarded.request(method, f"{REVIEWS}/{path}", {} if method in {"POST", "PUT"} else None)
    assert answer.code == code


async def test_a_user_can_list_their_own_rules(guarded: Guarded) -> None:
    own = rule("get,list", "pods", resourceNames=["a", "b"])
    user = await guarded.give("anna", own)
    answer = await ask(user, "selfsubjectrulesreviews", {"namespace": guarded.namespace})
    status = answer.content["status"]
    assert (answer.code, answer.content["spec"], status["incomplete"]) == (201, {}, False)
    basic = rule("create", "selfsubjectaccessreviews,selfsubjectrulesreviews", "authorization.k8s.io")
    for item in (own, basic, rule("create", "selfsubjectreviews", "authentication.k8s.io")):
        assert item in status["resourceRules"]
    paths = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
    assert {"verbs": ["get"], "nonResourceURLs": paths} in status["nonResourceRules"]
    elsewhere = await ask(user, "selfsubjectrulesreviews", {"namespace": "default"})
    assert own not in elsewhere.content["status"]["resourceRules"]
    nowhere = await ask(user, "selfsubjectrulesreviews", {})
    assert (nowhere.code, nowhere.message) == (400, "no namespace on request")


async def test_discovery_lists_the_reviews(guarded: Guarded) -> None:
    for group in (REVIEWS, WHO):
        answer = await guarded.get(group)
        own = await Cluster(seed=0).client().get(group)
        assert own.json() == answer.content


async def test_everything_is_allowed_without_rbac() -> None:
    client = Cluster().client()
    review = await client.post(f"{REVIEWS}/selfsubjectaccessreviews", json={"spec": pods("list", "")})
    assert review.json()["status"] == {"allowed": True}
    rules = await client.post(f"{REVIEWS}/selfsubjectrulesreviews", json={"spec": {"namespace": "default"}})
    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    assert rules.json()["status"]["resourceRules"] == everything


@pytest.mark.parametrize(("accept", "code"), [(TABLE, 201), (TABLE.partition(",")[0], 406)])
async def test_there_is_no_table_of_a_review(target: Target, accept: str, code: int) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    answer = await target.request("POST", path, review, accept=accept)
    assert answer.code == code
    if code == 406:
        assert answer.reason == "NotAcceptable"
        assert answer.message.startswith("only the following media types are accepted: application/json")
