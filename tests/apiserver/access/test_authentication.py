"""Conformance: authentication by tokens, and impersonation."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from tests.apiserver.conftest import Answer, Guarded, rule

GROUP = "/apis/authentication.k8s.io/v1"
REVIEW = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
AUDIENCE = "https://kubernetes.default.svc"


async def who_am_i(target: Guarded) -> Answer:
    return await target.request("POST", f"{GROUP}/selfsubjectreviews", REVIEW)


async def user_info(target: Guarded) -> dict[str, Any]:
    answer = await who_am_i(target)
    assert answer.code == 201, answer.content
    return dict(answer.content["status"]["userInfo"])


def bearing(guarded: Guarded, token: str) -> Guarded:
    return guarded.sending(("Authorization", f"Bearer {token}"))


async def make_account(guarded: Guarded, name: str = "robot") -> str:
    """Create a service account; return the path of its token subresource."""
    path = f"/api/v1/namespaces/{guarded.namespace}/serviceaccounts"
    answer = await guarded.request("POST", path, {"metadata": {"name": name}})
    assert answer.code == 201
    return f"{path}/{name}/token"


async def make_token(guarded: Guarded, path: str, **spec: Any) -> str:
    answer = await guarded.request("POST", path, {"spec": spec})
    assert answer.code == 201, answer.content
    return str(answer.content["status"]["token"])


async def review(guarded: Guarded, token: str, **spec: Any) -> dict[str, Any]:
    answer = await guarded.request("POST", f"{GROUP}/tokenreviews", {"spec": {"token": token, **spec}})
    assert answer.code == 201, answer.content
    return dict(answer.content["status"])


# -- tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/pods", "/healthz", "/nowhere", "/apis/nobody.dev/v1/nothings"])
async def test_an_unknown_token_is_unauthorized_everywhere(guarded: Guarded, path: str) -> None:
    answer = await bearing(guarded, "unknown").get(path)
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    assert answer.code == 401
    assert answer.content == {**status, "message": "Unauthorized", "reason": "Unauthorized", "code": 401}


@pytest.mark.parametrize("header", ["", "Bearer", "Basic YTpi", "Nonsense"])
async def test_requests_without_a_token_are_anonymous(guarded: Guarded, header: str) -> None:
    answer = await guarded.sending(("Authorization", header)).get("/api/v1/pods")
    assert answer.code == 403
    assert answer.message.startswith('pods is forbidden: User "system:anonymous" cannot list')


async def test_a_service_account_has_tokens(guarded: Guarded) -> None:
    path = await make_account(guarded)
    answer = await guarded.request("POST", path, {})
    assert (answer.code, answer.content["kind"]) == (201, "TokenRequest")
    assert answer.content["metadata"]["name"] == "robot"
    assert answer.content["metadata"]["namespace"] == guarded.namespace
    assert answer.content["spec"] == {"audiences": [AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": None}
    info = await user_info(bearing(guarded, answer.content["status"]["token"]))
    assert info["username"] == f"system:serviceaccount:{guarded.namespace}:robot"
    assert info["uid"] == answer.content["metadata"]["uid"]
    accounts = ["system:serviceaccounts", f"system:serviceaccounts:{guarded.namespace}"]
    assert info["groups"] == [*accounts, "system:authenticated"]
    assert info["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")


async def test_a_token_has_the_claims_of_the_api(guarded: Guarded) -> None:
    path = await make_account(guarded)
    token = await make_token(guarded, path, audiences=["x"], expirationSeconds=700)
    claims = msgspec.json.decode(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    own = claims["kubernetes.io"]
    assert (own["namespace"], own["serviceaccount"]["name"]) == (guarded.namespace, "robot")
    assert (claims["aud"], claims["exp"] - claims["iat"], claims["iss"]) == (["x"], 700, AUDIENCE)
    assert claims["sub"] == f"system:serviceaccount:{guarded.namespace}:robot"
    assert claims.keys() == {"aud", "exp", "iat", "iss", "jti", "kubernetes.io", "nbf", "sub"}


async def test_a_service_account_has_the_permissions_of_its_bindings(guarded: Guarded) -> None:
    robot = bearing(guarded, await make_token(guarded, await make_account(guarded)))
    await guarded.make_role("reader", rule("list", "pods"))
    await guarded.bind("reader", {"kind": "ServiceAccount", "name": "robot", "namespace": guarded.namespace})
    await robot.eventually(lambda: robot.get(guarded.path("pods")), lambda answer: answer.code == 200)
    rejected = await robot.get(guarded.path("secrets"))
    assert (rejected.code, f'User "system:serviceaccount:{guarded.namespace}:robot"' in rejected.message) == (403, True)


async def test_a_token_for_other_audiences_is_unauthorized(guarded: Guarded) -> None:
    token = await make_token(guarded, await make_account(guarded), audiences=["x"])
    assert (await bearing(guarded, token).get("/version")).code == 401
    found = await review(guarded, token, audiences=["x", "y"])
    assert (found["authenticated"], found["audiences"]) == (True, ["x"])
    text = f'token audiences ["x"] is invalid for the target audiences ["{AUDIENCE}"]'
    assert await review(guarded, token) == {"user": {}, "error": f"[invalid bearer token, {text}]"}


async def test_a_token_can_be_reviewed(guarded: Guarded) -> None:
    token = await make_token(guarded, await make_account(guarded))
    found = await review(guarded, token)
    assert found["user"] == await user_info(bearing(guarded, token))
    assert (found["authenticated"], found["audiences"]) == (True, [AUDIENCE])
    assert await review(guarded, "unknown") == {"user": {}, "error": "invalid bearer token"}
    nothing = await guarded.request("POST", f"{GROUP}/tokenreviews", {"spec": {}})
    assert (nothing.code, nothing.message) == (400, "token is required for TokenReview in authentication")


async def test_a_token_expires_with_its_secret(guarded: Guarded) -> None:
    path = await make_account(guarded)
    assert (await guarded.request("POST", guarded.path("secrets"), {"metadata": {"name": "s"}})).code == 201
    token = await make_token(guarded, path, boundObjectRef={"kind": "Secret", "apiVersion": "v1", "name": "s"})
    assert (await who_am_i(bearing(guarded, token))).code == 201
    await guarded.delete(guarded.path("secrets", "s"))
    lost = await guarded.eventually(lambda: who_am_i(bearing(guarded, token)), lambda answer: answer.code == 401)
    assert lost.reason == "Unauthorized"


async def test_a_secret_is_filled_with_a_token(guarded: Guarded) -> None:
    await make_account(guarded)
    meta = {"name": "s", "annotations": {"kubernetes.io/service-account.name": "robot"}}
    secret = {"metadata": meta, "type": "kubernetes.io/service-account-token"}
    assert (await guarded.request("POST", guarded.path("secrets"), secret)).code == 201
    path = guarded.path("secrets", "s")
    filled = await guarded.eventually(lambda: guarded.get(path), lambda answer: "data" in answer.content)
    assert filled.content["data"]["namespace"] == base64.b64encode(guarded.namespace.encode()).decode()
    assert "kubernetes.io/service-account.uid" in filled.content["metadata"]["annotations"]
    token = base64.b64decode(filled.content["data"]["token"]).decode()
    info = await user_info(bearing(guarded, token))
    assert info["username"] == f"system:serviceaccount:{guarded.namespace}:robot"
    assert "extra" not in info


async def test_a_secret_of_a_missing_account_is_deleted(guarded: Guarded) -> None:
    meta = {"name": "s", "annotations": {"kubernetes.io/service-account.name": "nobody"}}
    secret = {"metadata": meta, "type": "kubernetes.io/service-account-token"}
    assert (await guarded.request("POST", guarded.path("secrets"), secret)).code == 201
    await guarded.until(guarded.path("secrets", "s"), 404)
    del meta["annotations"]
    rejected = await guarded.request("POST", guarded.path("secrets"), secret)
    field = "metadata.annotations[kubernetes.io/service-account.name]"
    assert (rejected.code, rejected.message) == (422, f'Secret "s" is invalid: {field}: Required value')


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ({"expirationSeconds": 5}, 422, "Invalid value: 5: may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 2**33}, 422, "may not specify a duration larger than 2^32 seconds"),
        ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}, 404, 'pods "p" not found'),
        (
            {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "p"}},
            400,
            "of type /v1, Kind=ConfigMap",
        ),
    ],
)
async def test_a_token_request_is_validated(guarded: Guarded, spec: Any, code: int, message: str) -> None:
    answer = await guarded.request("POST", await make_account(guarded), {"spec": spec})
    assert answer.code == code
    assert message in answer.message


async def test_tokens_can_only_be_requested(guarded: Guarded) -> None:
    path = await make_account(guarded)
    assert (await guarded.get(path)).code == 405
    assert (await guarded.request("PUT", path, {})).code == 405
    assert (await guarded.request("POST", path.replace("robot", "nobody"), {})).code == 404
    other = await guarded.request("POST", path, {"metadata": {"name": "other"}})
    text = "must match the service account name if specified"
    assert (other.code, other.message) == (
        422,
        f'TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "other": {text}',
    )


# -- acting as somebody else ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "info"),
    [
        ([("User", "bob")], {"username": "bob", "groups": ["system:authenticated"]}),
        (
            [("User", "bob"), ("Group", "g"), ("Group", "h")],
            {"username": "bob", "groups": ["g", "h", "system:authenticated"]},
        ),
        ([("User", "bob"), ("Uid", "u")], {"username": "bob", "uid": "u", "groups": ["system:authenticated"]}),
        (
            [("User", "bob"), ("Extra-a%2Fb", "1"), ("Extra-a%2Fb", "2")],
            {"username": "bob", "groups": ["system:authenticated"], "extra": {"a/b": ["1", "2"]}},
        ),
        (
            [("User", "system:serviceaccount:x:y")],
            {
                "username": "system:serviceaccount:x:y",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:x", "system:authenticated"],
            },
        ),
        (
            [("User", "system:serviceaccount:x:y"), ("Group", "g")],
            {"username": "system:serviceaccount:x:y", "groups": ["g", "system:authenticated"]},
        ),
    ],
)
async def test_an_administrator_may_impersonate_anybody(
    guarded: Guarded, headers: list[tuple[str, str]], info: dict[str, Any]
) -> None:
    acting = guarded.sending(*((f"Impersonate-{name}", value) for name, value in headers))
    assert await user_info(acting) == info


async def test_impersonation_requires_a_user(guarded: Guarded) -> None:
    answer = await guarded.sending(("Impersonate-Group", "g")).get("/version")
    text = 'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)}'
    assert (answer.code, answer.message) == (400, f"{text} without impersonating a user name")


async def make_robot(guarded: Guarded, *rules: dict[str, Any]) -> Guarded:
    """Return the target as a service account with these cluster-wide rules."""
    robot = bearing(guarded, await make_token(guarded, await make_account(guarded)))
    name = guarded.named("robot")
    await guarded.make_role(name, *rules, plural="clusterroles")
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": guarded.namespace}
    await guarded.bind(name, subject, kind="ClusterRole", plural="clusterrolebindings")
    await robot.until_held(*rules)
    return robot


async def test_impersonation_requires_a_permission(guarded: Guarded) -> None:
    robot = await make_robot(
        guarded,
        rule("impersonate", "users", resourceNames=["anna"]),
        rule("impersonate", "groups", resourceNames=["g"]),
        rule("impersonate", "userextras/scopes", "authentication.k8s.io", resourceNames=["1"]),
        rule("impersonate", "serviceaccounts", resourceNames=["one"]),
    )
    anna = ("Impersonate-User", "anna")
    assert (await user_info(robot.sending(anna)))["username"] == "anna"
    assert (await user_info(robot.sending(anna, ("Impersonate-Group", "g"))))["groups"][0] == "g"
    scoped = robot.sending(anna, ("Impersonate-Extra-Scopes", "1"))
    assert (await user_info(scoped))["extra"] == {"scopes": ["1"]}
    account = ("Impersonate-User", f"system:serviceaccount:{guarded.namespace}:one")
    assert (await user_info(robot.sending(account)))["username"] == account[1]
    for header in (("Group", "h"), ("Extra-Scopes", "2"), ("Uid", "1")):
        rejected = await who_am_i(robot.sending(anna, (f"Impersonate-{header[0]}", header[1])))
        assert (rejected.code, rejected.reason) == (403, "Forbidden")
    for name in ("bob", f"system:serviceaccount:{guarded.namespace}:two"):
        assert (await who_am_i(robot.sending(("Impersonate-User", name)))).code == 403


async def test_a_forbidden_impersonation_names_the_newer_verb(guarded: Guarded) -> None:
    user = f"system:serviceaccount:{guarded.namespace}:robot"
    robot = bearing(guarded, await make_token(guarded, await make_account(guarded)))
    rejected = await robot.sending(("Impersonate-User", "anna")).get("/api/v1/pods")
    what = 'resource "pods" in API group "" at the cluster scope'
    text = f'pods is forbidden: User "{user}" cannot impersonate-on:user-info:list {what}'
    assert (rejected.code, rejected.message) == (403, text)
    rejected = await robot.sending(("Impersonate-User", "system:serviceaccount:x:y")).get("/healthz")
    text = f'forbidden: User "{user}" cannot impersonate-on:serviceaccount:get path "/healthz"'
    assert (rejected.code, rejected.message) == (403, text)


async def test_impersonation_can_be_limited_to_verbs(guarded: Guarded) -> None:
    group = "authentication.k8s.io"
    robot = await make_robot(
        guarded,
        rule("impersonate:user-info", "users", group, resourceNames=[guarded.named("anna")]),
        rule("impersonate-on:user-info:list", "pods"),
    )
    anna = robot.sending(("Impersonate-User", guarded.named("anna")))
    rejected = await anna.get("/api/v1/pods")
    assert rejected.message.startswith(f'pods is forbidden: User "{guarded.named("anna")}" cannot list')
    rejected = await anna.get("/api/v1/nodes")
    assert "cannot impersonate-on:user-info:list" in rejected.message
    rejected = await robot.sending(("Impersonate-User", guarded.named("bob"))).get("/api/v1/pods")
    text = f'users.{group} "{guarded.named("bob")}" is forbidden: '
    assert rejected.message.startswith(text)
    masters = await anna.sending(("Impersonate-Group", "system:masters")).get("/api/v1/pods")
    assert masters.code == 403
