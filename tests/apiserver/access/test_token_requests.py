"""Tests for :mod:`trioperator.apiserver.access.token_requests`: tokens on request, and in Secrets."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.apiserver.access.accounts import ACCOUNT, bearing, make_account, user_info
from tests.apiserver.conftest import Answer, Guarded
from trioperator.apiserver import Cluster


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


async def test_the_token_secret_of_an_account_is_filled_and_deleted_with_it(cluster: Cluster) -> None:
    await cluster.create(ACCOUNT)
    annotations = {"kubernetes.io/service-account.name": "robot"}
    secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token"}
    await cluster.create({**secret, "metadata": {"name": "s", "annotations": annotations}})
    assert "token" in (await cluster.get("secrets", "s"))["data"]
    await cluster.delete("sa", "robot")
    assert await cluster.find("secrets", "s") is None


async def test_a_token_is_bound_to_a_pod_of_the_account_only(guarded: Guarded) -> None:
    path = await make_account(guarded)
    for name, more in (("other", {}), ("own", {"serviceAccountName": "robot"})):
        spec = {"containers": [{"name": "main", "image": "one"}], "automountServiceAccountToken": False, **more}
        made = await guarded.request("POST", guarded.path("pods"), {"metadata": {"name": name}, "spec": spec})
        assert made.code == 201

    async def ask(**ref: str) -> Answer:
        return await guarded.request(
            "POST", path, {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", **ref}}}
        )

    answer = await ask(name="other")
    text = 'cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.'
    assert (answer.code, answer.message) == (400, text)
    answer = await ask(name="own", uid="another")
    text = "the UID in the bound object reference (another) does not match the UID in record"
    start = f'Operation cannot be fulfilled on Pod "own": {text}.'
    assert (answer.code, answer.message[: len(start)]) == (409, start)
    assert (await ask(name="own", uid=made.content["metadata"]["uid"])).code == 201
