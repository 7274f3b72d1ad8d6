"""Conformance: authentication by tokens."""

from __future__ import annotations

import pytest

from tests.apiserver.access.accounts import AUDIENCE, GROUP, bearing, make_account, make_token, review, user_info
from tests.apiserver.conftest import Guarded, rule

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
